#include "proto/rpc/incoming_calls.h"

#include <atomic>

#include "proto/rpc/message_codec.h"

namespace tusk::rpc {

// ---------------------------------------------------------------- ReplyRoute, CallFate

bool ReplyRoute::post(io::Task task) {
  const std::lock_guard lock(mutex_);
  if (!reactor_) return false;
  reactor_->post(std::move(task));
  return true;
}

void ReplyRoute::cut() {
  const std::lock_guard lock(mutex_);
  reactor_ = nullptr;
}

bool CallFate::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void CallFate::on_cancel(std::move_only_function<void()> notify) {
  {
    const std::lock_guard lock(mutex_);
    if (settled_) return;
    if (!cancelled_) {
      notify_ = std::move(notify);
      return;
    }
  }
  notify();
}

void CallFate::cancel() {
  std::move_only_function<void()> notify;
  {
    const std::lock_guard lock(mutex_);
    if (settled_ || cancelled_) return;
    cancelled_ = true;
    notify = std::move(notify_);
  }
  if (notify) notify();
}

void CallFate::settle() {
  std::move_only_function<void()> dropped;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  settled_ = true;
  dropped = std::move(notify_);
}

// ---------------------------------------------------------------- the call

namespace {

class Incoming final : public IncomingCall {
 public:
  Incoming(const Peer& peer, schema::Request message, const transport::RequestArrived& request,
           std::shared_ptr<CallFate> fate, std::shared_ptr<ReplyRoute> route, IncomingCalls::Send send)
      : peer_(peer),
        message_(std::move(message)),
        exchange_(request.exchange),
        // Nobody asks for the bytes of any other call: while it waits they would take memory for nothing.
        body_(message_.has_write() || message_.has_log() ? request.body : SharedBytes{}),
        capacity_(request.reply_capacity),
        fate_(std::move(fate)),
        route_(std::move(route)),
        send_(std::move(send)) {}

  ~Incoming() override {
    if (!answered_) reply_error(ErrorCode::kInternal, "the request was dropped");
  }

  [[nodiscard]] const Peer& peer() const override { return peer_; }
  [[nodiscard]] const schema::Request& message() const override { return message_; }
  [[nodiscard]] SharedBytes body() const override { return body_; }
  [[nodiscard]] ByteCount reply_body_capacity() const override { return capacity_; }
  [[nodiscard]] bool cancelled() const override { return fate_->cancelled(); }
  void on_cancel(std::move_only_function<void()> notify) override { fate_->on_cancel(std::move(notify)); }

  void note_right(std::string right) override { right_ = std::move(right); }

  void reply(schema::Reply message, SharedBytes body) override {
    TUSK_CHECK(!answered_.exchange(true));
    fate_->settle();
    std::optional<Answer::Entry> entry;
    if (message.error() == 0 && message.has_attach())
      entry = {.session = message_.attach().session(), .lane = message_.attach().lane(), .right = right_};
    Result<SharedBytes> header = encode_message(message);
    // How much there is room for the peer says: an operation that did not look must not end the server.
    if (body.size() > capacity_) header = fail(ErrorCode::kInternal, "the answer is longer than asked for");
    if (!header) {
      schema::Reply error;
      error.set_error(static_cast<std::uint32_t>(header.error().code));
      error.set_message(header.error().context);
      header = encode_message(error);
      body = {};
      entry.reset();
    }
    Answer answer{exchange_, std::move(*header), std::move(body), std::move(entry)};
    route_->post([send = send_, answer = std::move(answer)]() mutable { send(std::move(answer)); });
  }

 private:
  const Peer peer_;
  const schema::Request message_;
  const wire::ExchangeId exchange_;
  const SharedBytes body_;
  const ByteCount capacity_;
  const std::shared_ptr<CallFate> fate_;
  const std::shared_ptr<ReplyRoute> route_;
  const IncomingCalls::Send send_;
  std::string right_;  // by whoever answers
  std::atomic<bool> answered_ = false;
};

}  // namespace

Result<std::unique_ptr<IncomingCall>> IncomingCalls::accept(const Peer& peer,
                                                            const transport::RequestArrived& request,
                                                            std::shared_ptr<ReplyRoute> route, Send send) {
  schema::Request message;
  TUSK_TRY(decode_message(request.header.bytes, message, attached_ ? kRequestLimits : kStrangersLimits));
  auto fate = std::make_shared<CallFate>();
  fates_.emplace(request.exchange, fate);
  return std::make_unique<Incoming>(peer, std::move(message), request, std::move(fate), std::move(route),
                                    std::move(send));
}

void IncomingCalls::handle_cancelled(wire::ExchangeId exchange) {
  const auto found = fates_.find(exchange);
  if (found == fates_.end()) return;
  const auto fate = std::move(found->second);
  fates_.erase(found);
  fate->cancel();
}

void IncomingCalls::cancel_all() {
  const auto fates = std::move(fates_);
  fates_.clear();
  for (const auto& [exchange, fate] : fates) fate->cancel();
}

}  // namespace tusk::rpc
