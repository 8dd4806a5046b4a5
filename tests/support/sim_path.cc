#include "tests/support/sim_path.h"

#include <algorithm>

namespace tusk::support {
namespace {

constexpr std::uint64_t kDamageStream = 0xda3a6e;

}  // namespace

std::shared_ptr<SimPath::Links> SimPath::make_links(const Options& options, std::uint64_t seed) {
  return std::make_shared<Links>(
      Links{Link(options.to_client, seed * 2 + 1), Link(options.to_server, seed * 2 + 2)});
}

SimPath::SimPath(const Options& options, std::uint64_t seed, std::shared_ptr<Links> links)
    : links_(std::move(links)),
      damage_(seed ^ kDamageStream),
      mtu_(options.mtu),
      deliver_damaged_(options.deliver_damaged) {}

void SimPath::send(TimePoint now, Role receiver, std::span<std::byte> bytes, std::uint32_t size,
                   SimAddress address) {
  for (const Sieve& sieve : sieves_[index(receiver)])
    if (!sieve(bytes)) return;
  inject(now, receiver, bytes, size, address);
}

void SimPath::inject(TimePoint now, Role receiver, std::span<const std::byte> bytes, std::uint32_t size,
                     SimAddress address) {
  if (size + kIpOverhead > mtu_) {
    ++too_large_;
    return;
  }
  const Verdict verdict = link(receiver).enqueue(now, size + kIpOverhead);
  if (verdict.copies == 0 || (verdict.corrupted && !deliver_damaged_)) return;
  const std::uint32_t buffer = take_buffer();
  buffers_[buffer].bytes.assign(bytes.begin(), bytes.end());
  buffers_[buffer].flights = verdict.copies;
  for (std::size_t copy = 0; copy < verdict.copies; ++copy) {
    flights_.push_back({verdict.deliver_at[copy], order_++, verdict.departs_at, address, size, buffer,
                        receiver, verdict.congestion_marked, verdict.corrupted});
    std::push_heap(flights_.begin(), flights_.end());
  }
}

std::optional<SimPath::Arrival> SimPath::poll_arrival(TimePoint now) {
  if (handed_out_) release(*std::exchange(handed_out_, std::nullopt));
  if (next_arrival() > now) return std::nullopt;
  std::pop_heap(flights_.begin(), flights_.end());
  const Flight flight = flights_.back();
  flights_.pop_back();
  Buffer& buffer = buffers_[flight.buffer];
  Arrival arrival{flight.receiver, flight.address, flight.size, flight.marked, buffer.bytes};
  handed_out_ = flight.buffer;
  if (buffer.flights > 1) {
    // A duplicate follows; the receiver may decrypt this one in place.
    copy_.assign(buffer.bytes.begin(), buffer.bytes.end());
    arrival.bytes = copy_;
  }
  if (flight.damaged && !arrival.bytes.empty())
    arrival.bytes[damage_.below(arrival.bytes.size())] ^= static_cast<std::byte>(1u << damage_.below(8));
  return arrival;
}

void SimPath::change(TimePoint now, const LinkParameters& to_server, const LinkParameters& to_client) {
  retime(Role::kServer, link(Role::kServer).change(now, to_server));
  retime(Role::kClient, link(Role::kClient).change(now, to_client));
}

void SimPath::retime(Role receiver, const Retiming& retiming) {
  if (retiming.changes_nothing()) return;
  for (Flight& flight : flights_) {
    if (flight.receiver != receiver) continue;
    const Duration shift = retiming.shift(flight.departs_at);
    flight.at += shift;
    flight.departs_at += shift;
  }
  std::make_heap(flights_.begin(), flights_.end());
}

std::uint32_t SimPath::take_buffer() {
  if (free_buffers_.empty()) {
    buffers_.emplace_back();
    return static_cast<std::uint32_t>(buffers_.size() - 1);
  }
  const std::uint32_t buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return buffer;
}

void SimPath::release(std::uint32_t buffer) {
  if (--buffers_[buffer].flights == 0) free_buffers_.push_back(buffer);
}

}  // namespace tusk::support
