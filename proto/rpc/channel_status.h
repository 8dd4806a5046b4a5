// What a channel's network thread lets other threads know of it.
//
// Thread-safe. What is not const is for the network thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/crypto/identity.h"
#include "proto/rpc/channel.h"

namespace tusk::rpc {

class ChannelStatus {
 public:
  // Blocks until an export is attached, until it is clear that none will be, or for options.connect_timeout.
  [[nodiscard]] Result<void> wait_until_attached(const ChannelOptions& options) const;

  [[nodiscard]] schema::AttachReply attached() const;
  [[nodiscard]] crypto::Fingerprint server_fingerprint() const;
  // Why no call will succeed any more.
  [[nodiscard]] std::optional<Error> failure() const;
  [[nodiscard]] ChannelStats stats() const;
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] TimePoint confirmed() const { return confirmed_; }
  // Since when the server has owed us a packet; kNever: it does not.
  [[nodiscard]] TimePoint silent_since() const { return silent_since_; }

  void note_key(const crypto::Fingerprint& key);
  void note_attached(const schema::AttachReply& reply);
  void note_refused(const Error& refusal);
  void note_failure(const Error& failure);
  void note_confirmed(TimePoint sent) { confirmed_ = std::max(confirmed_.load(), sent); }
  void note_silence(TimePoint since) { silent_since_ = since; }
  void publish(ChannelStats stats);

 private:
  std::atomic<bool> connected_ = false;
  std::atomic<TimePoint> silent_since_ = kNever;
  std::atomic<TimePoint> confirmed_ = TimePoint::min();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ever_attached_ = false;
  std::optional<Error> failure_;
  std::optional<Error> refusal_;  // what the server answered to the last attach, if not a welcome
  schema::AttachReply attach_reply_;
  crypto::Fingerprint key_;
  ChannelStats stats_;
};

}  // namespace tusk::rpc
