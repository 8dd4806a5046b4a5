#include "tests/support/sim_traffic.h"

#include <algorithm>
#include <cstring>

#include "proto/base/bytes.h"
#include "proto/base/check.h"

namespace tusk::support {
namespace {

constexpr ByteCount kStreamBlock = 1 << 20;
// Contents start all over the first part, at odd distances: bytes of one call never fit another.
constexpr ByteCount kContentStarts = 1 << 20;
constexpr ByteCount kContentStep = 4099;
constexpr std::size_t kWrongsMax = 20;

// The same for all runs: what differs is where a call's content starts.
SharedBytes all_content() {
  static const SharedBytes kContent = [] {
    MutableSharedBytes bytes = allocate_bytes(kContentStarts + wire::kMessageBodyMax);
    Random random(0x5eed);
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(bytes.bytes.data() + i, &word, 8);
    }
    return bytes.first(bytes.size());
  }();
  return kContent;
}

// Kind, size, which content; the rest is content too, so that every byte is checked.
SharedBytes make_header(SimTraffic::Kind kind, ByteCount size, std::uint64_t content, std::size_t header_size,
                        const SharedBytes& filler) {
  MutableSharedBytes header = allocate_bytes(header_size);
  ByteWriter writer(header.bytes);
  writer.u8(static_cast<std::uint8_t>(kind));
  writer.u64(size);
  writer.u64(content);
  writer.bytes(filler.bytes.subspan(content, writer.room()));
  return header.first(header_size);
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::string name(wire::ExchangeId exchange) { return "exchange " + std::to_string(exchange.value()); }

}  // namespace

SimTraffic::SimTraffic(std::uint64_t seed, Now now, Later later)
    : random_(seed), now_(std::move(now)), later_(std::move(later)), content_(all_content()) {}

void SimTraffic::wrong(std::string what) {
  ++content_errors_;
  if (wrongs_.size() < kWrongsMax) wrongs_.push_back(std::move(what));
}

wire::ExchangeId SimTraffic::call(Call call) {
  TUSK_CHECK(call.header_size >= kHeaderMin && call.size <= wire::kMessageBodyMax);
  const std::uint64_t content = random_.below(kContentStarts / kContentStep) * kContentStep;
  Pending pending{call.kind,   call.size, content, call.header_size,    call.priority,
                  call.caller, now_(),    {},      std::move(call.done)};
  const bool fetch = call.kind == Kind::kFetch;
  if (fetch) pending.place = allocate_bytes(call.size);
  const auto exchange =
      connection(call.caller)
          .open_exchange(make_header(call.kind, call.size, content, call.header_size, content_),
                         fetch ? SharedBytes{} : content_.subspan(content, call.size), pending.place,
                         call.priority);
  asked_ += pending.bytes();
  asked_max_ = std::max(asked_max_, asked_);
  pending_.emplace(exchange, std::move(pending));
  return exchange;
}

void SimTraffic::stream(ByteCount total, ByteCount window, Kind kind) {
  streams_.push_back({total, window, 0, kind});
  top_up();
}

ByteCount SimTraffic::streams_left() const {
  ByteCount left = 0;
  for (const Stream& stream : streams_) left += stream.left;
  return left;
}

void SimTraffic::top_up() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    while (streams_[i].left > 0 && streams_[i].in_flight < streams_[i].window) {
      const ByteCount size = std::min(kStreamBlock, streams_[i].left);
      streams_[i].left -= size;
      streams_[i].in_flight += size;
      call({streams_[i].kind, size, Priority::kBulk, kHeaderUsual, Role::kClient,
            [this, i, size] { streams_[i].in_flight -= size; }});
    }
  }
}

void SimTraffic::cancel_oldest() {
  if (pending_.empty()) return;
  cancel(std::min_element(pending_.begin(), pending_.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; }));
}

void SimTraffic::cancel_random(Random& random) {
  if (pending_.empty()) return;
  // Sorted, because the table's own order is nobody's promise.
  std::vector<wire::ExchangeId> open;
  for (const auto& [exchange, pending] : pending_) open.push_back(exchange);
  std::sort(open.begin(), open.end());
  cancel(pending_.find(open[random.below(open.size())]));
}

void SimTraffic::cancel(std::unordered_map<wire::ExchangeId, Pending>::iterator found) {
  connection(found->second.caller).cancel_exchange(found->first);
  asked_ -= found->second.bytes();
  const Done done = std::move(found->second.done);
  pending_.erase(found);
  ++calls_cancelled_;
  if (done) done();
}

void SimTraffic::handle_event(Role side, transport::Event& event) {
  if (const auto* request = std::get_if<transport::RequestArrived>(&event)) {
    if (!served_.insert(request->exchange).second) wrong(name(request->exchange) + " was delivered twice");
    if (thinking_ == Duration(0)) return answer(side, *request);
    later_(thinking_, [this, side, request = *request] { answer(side, request); });
  } else if (const auto* reply = std::get_if<transport::ReplyArrived>(&event)) {
    finish(*reply);
    top_up();
  } else if (std::holds_alternative<transport::RequestCancelled>(event)) {
    ++cancellations_seen_;
  } else if (auto* closed = std::get_if<transport::Closed>(&event)) {
    closed_.push_back({side, closed->code, closed->reason});
  } else if (std::holds_alternative<transport::PathValidated>(event)) {
    path_validated_ = true;
  } else if (auto* token = std::get_if<transport::AddressTokenArrived>(&event)) {
    address_token_ = std::move(token->token);
  }
}

void SimTraffic::answer(Role side, const transport::RequestArrived& request) {
  ByteReader reader(request.header.bytes);
  const auto kind = static_cast<Kind>(reader.u8());
  const ByteCount size = reader.u64();
  const std::uint64_t content = reader.u64();
  const std::size_t header_size = request.header.size();
  if (!reader.ok() || size > wire::kMessageBodyMax || content >= kContentStarts ||
      !same(request.header.bytes, make_header(kind, size, content, header_size, content_).bytes))
    return wrong(name(request.exchange) + " came with a wrong header");
  const SharedBytes expected = content_.subspan(content, size);
  const bool fetch = kind == Kind::kFetch;
  if (!fetch && !same(request.body.bytes, expected.bytes))
    wrong(name(request.exchange) + " stored wrong bytes");
  connection(side).reply(request.exchange, make_header(kind, size, content, header_size, content_),
                         fetch ? expected : SharedBytes{});
}

void SimTraffic::finish(const transport::ReplyArrived& reply) {
  const auto found = pending_.find(reply.exchange);
  if (found == pending_.end()) return wrong(name(reply.exchange) + " was answered unasked");
  const Pending pending = std::move(found->second);
  asked_ -= pending.bytes();
  pending_.erase(found);
  const SharedBytes expected = content_.subspan(pending.content, pending.size);
  const auto header = make_header(pending.kind, pending.size, pending.content, pending.header_size, content_);
  if (!same(reply.header.bytes, header.bytes))
    wrong(name(reply.exchange) + " was answered with a wrong header");
  if (pending.kind == Kind::kFetch &&
      (reply.body_size != pending.size || !same(pending.place.bytes.first(reply.body_size), expected.bytes)))
    wrong(name(reply.exchange) + " fetched wrong bytes");
  bytes_done_ += pending.size;
  ++calls_done_;
  if (pending.priority == Priority::kInteractive)
    interactive_latency_max_ = std::max(interactive_latency_max_, now_() - pending.asked_at);
  if (pending.done) pending.done();
}

std::vector<std::string> SimTraffic::complaints() const {
  std::vector<std::string> result = wrongs_;
  for (const SeenClosed& closed : closed_)
    result.push_back(std::string(closed.side == Role::kClient ? "the client's" : "the server's") +
                     " connection ended: " + std::string(error_name(closed.code)) + ", " + closed.reason);
  return result;
}

}  // namespace tusk::support
