#include "hostile_client.h"

#include <poll.h>

#include <cstdio>
#include <cstdlib>

#include "proto/crypto/primitives.h"
#include "proto/io/clock.h"
#include "proto/rpc/message_codec.h"

namespace tusk::hostile {
namespace {

constexpr Duration kPatience = 5s;
constexpr int kPollMs = 5;
constexpr std::size_t kSessionIdBytes = 16;

template <class Value>
Value must(Result<Value> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "hostile_client: %s\n", result.error().message().c_str());
  std::exit(EXIT_FAILURE);
}

}  // namespace

Client::Client(const crypto::Identity& identity, const rpc::MountUrl& url)
    : url_(url),
      route_{must(io::parse(url.host + ":" + std::to_string(url.port))), {}},
      socket_(must(io::UdpSocket::open({.buffer_bytes = 1 << 20}))),
      batch_(2),
      secure_(must(rpc::SecureConnection::client({identity, url.fingerprint, {}, {}, {}}, io::now()))) {}

void Client::leave() {
  secure_->close(io::now(), ErrorCode::kOk, "enough");
  flush(io::now());
}

void Client::flush(TimePoint now) {
  const auto too_big = [](const io::Address&, std::size_t) {};
  if (rpc::transmit(*secure_, now, route_, queue_, socket_, too_big)) (void)queue_.flush(socket_, too_big);
}

void Client::handle(const transport::Event& event) {
  if (std::holds_alternative<transport::Closed>(event)) closed_ = true;
  const auto* const reply = std::get_if<transport::ReplyArrived>(&event);
  if (reply == nullptr) return;
  ++answers_;
  const auto found = waiting_.find(reply->exchange.value());
  if (found == waiting_.end()) return;
  const Answer answer = std::move(found->second);
  waiting_.erase(found);
  schema::Reply message;
  if (answer && rpc::decode_message(reply->header.bytes, message)) answer(message);
}

void Client::turn(TimePoint now) {
  socket_.receive(batch_, [&](const io::Datagram& datagram) {
    secure_->handle_datagram(now, datagram.bytes, datagram.ecn);
  });
  if (secure_->next_timeout() <= now) secure_->handle_timeout(now);
  flush(now);
  while (const auto event = secure_->poll_event())
    if (const auto* const of_transport = std::get_if<transport::Event>(&*event)) handle(*of_transport);
  flush(now);
}

void Client::ask(const schema::Request& request, Answer answer, std::size_t room, SharedBytes body) {
  const auto exchange = secure_->connection().open_exchange(
      must(rpc::encode_message(request)), std::move(body),
      room > 0 ? allocate_bytes(room) : MutableSharedBytes{}, wire::Priority::kInteractive);
  waiting_[exchange.value()] = std::move(answer);
}

std::optional<schema::Reply> Client::call(const schema::Request& request) {
  std::optional<schema::Reply> reply;
  ask(request, [&](const schema::Reply& answer) { reply = answer; });
  run(
      {this}, [&] { return reply || closed_; }, kPatience);
  return reply;
}

std::optional<unsigned> Client::attach(bool leases) {
  run(
      {this}, [&] { return established() || closed_; }, kPatience);
  if (!established() || closed_) return std::nullopt;
  schema::Request request;
  schema::AttachRequest& attach = *request.mutable_attach();
  std::string session(kSessionIdBytes, '\0');
  crypto::random_bytes(std::as_writable_bytes(std::span(session)));
  attach.set_export_name(url_.export_name);
  attach.set_token(std::string(as_text(url_.token)));
  attach.set_session(session);
  attach.set_version(1);
  attach.set_leases(leases);
  attach.set_client_name("hostile");
  const auto reply = call(request);
  if (!reply) return std::nullopt;
  root_ = reply->attach().root().handle();
  return reply->error();
}

std::string Client::lookup(const std::string& name) {
  schema::Request request;
  request.mutable_lookup()->set_parent(root_);
  request.mutable_lookup()->set_name(name);
  const auto reply = call(request);
  return reply ? reply->node().node().handle() : std::string();
}

bool run(const std::vector<Client*>& clients, const std::function<bool()>& done, Duration at_most) {
  const TimePoint until = io::now() + at_most;
  std::vector<pollfd> waits;
  while (!done()) {
    const TimePoint now = io::now();
    if (now >= until) return false;
    waits.clear();
    for (Client* const client : clients) {
      if (!client->closed()) client->turn(now);
      waits.push_back({.fd = client->descriptor(), .events = POLLIN, .revents = 0});
    }
    (void)::poll(waits.data(), waits.size(), kPollMs);
  }
  return true;
}

std::vector<Client*> all_of(const Clients& clients) {
  std::vector<Client*> all;
  for (const auto& client : clients) all.push_back(client.get());
  return all;
}

}  // namespace tusk::hostile
