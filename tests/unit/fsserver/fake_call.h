// An IncomingCall without a network: the test is the client, and may give up, hang up or wait.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/rpc/service.h"

namespace tusk::server {

// What came back.
struct Answer {
  schema::Reply reply;
  SharedBytes body;

  [[nodiscard]] ErrorCode error() const { return static_cast<ErrorCode>(reply.error()); }
  [[nodiscard]] std::string text() const { return std::string(as_text(body.bytes)); }
};

// The client's side of one call.
class PendingCall {
 public:
  // The answer; fails the test's patience (and the process) after 20 s.
  Answer wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return answer_.has_value(); })) std::abort();
    return *answer_;
  }
  [[nodiscard]] bool answered() {
    const std::lock_guard lock(mutex_);
    return answer_.has_value();
  }
  // The server still has the call, and what was sent with it.
  [[nodiscard]] bool lives() {
    const std::lock_guard lock(mutex_);
    return lives_;
  }
  void cancel() {
    std::move_only_function<void()> notify;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      notify = std::move(on_cancel_);
    }
    if (notify) notify();
  }
  // Forgets the answer, as the network does once the client has it.
  void release() {
    Answer released;
    const std::lock_guard lock(mutex_);
    std::swap(released, *answer_);
  }

 private:
  friend class FakeCall;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Answer> answer_;
  bool cancelled_ = false;
  bool lives_ = true;
  std::move_only_function<void()> on_cancel_;
};

class FakeCall : public rpc::IncomingCall {
 public:
  FakeCall(rpc::Peer peer, schema::Request message, SharedBytes body, ByteCount capacity)
      : peer_(std::move(peer)), message_(std::move(message)), body_(std::move(body)), capacity_(capacity) {}
  ~FakeCall() override {
    // Dropped unanswered.
    if (!client_->answered()) reply_error(ErrorCode::kInternal, "dropped");
    const std::lock_guard lock(client_->mutex_);
    client_->lives_ = false;
  }

  [[nodiscard]] std::shared_ptr<PendingCall> client() const { return client_; }

  [[nodiscard]] const rpc::Peer& peer() const override { return peer_; }
  [[nodiscard]] const schema::Request& message() const override { return message_; }
  [[nodiscard]] SharedBytes body() const override { return body_; }
  [[nodiscard]] ByteCount reply_body_capacity() const override { return capacity_; }
  [[nodiscard]] bool cancelled() const override {
    const std::lock_guard lock(client_->mutex_);
    return client_->cancelled_;
  }
  void on_cancel(std::move_only_function<void()> notify) override {
    {
      const std::lock_guard lock(client_->mutex_);
      if (!client_->cancelled_) {
        client_->on_cancel_ = std::move(notify);
        return;
      }
    }
    notify();
  }
  void reply(schema::Reply message, SharedBytes body) override {
    const std::lock_guard lock(client_->mutex_);
    if (client_->answer_) std::abort();  // answered twice
    client_->answer_ = Answer{std::move(message), std::move(body)};
    client_->changed_.notify_all();
  }

 private:
  const rpc::Peer peer_;
  const schema::Request message_;
  const SharedBytes body_;
  const ByteCount capacity_;
  const std::shared_ptr<PendingCall> client_ = std::make_shared<PendingCall>();
};

}  // namespace tusk::server
