#include "proto/rpc/channel_status.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/io/clock.h"

namespace tusk::rpc {

Result<void> ChannelStatus::wait_until_attached(const ChannelOptions& options) const {
  std::unique_lock lock(mutex_);
  const bool settled = changed_.wait_for(lock, options.connect_timeout,
                                         [this] { return ever_attached_ || failure_.has_value(); });
  if (failure_) return std::unexpected(*failure_);
  if (settled) return {};
  const std::string patience = " within " + std::to_string(options.connect_timeout.count()) + " s";
  // A server that answers, but with something that may pass, is not out of reach.
  if (refusal_)
    return fail(refusal_->code, options.host + " did not let us in" + patience + ": " + refusal_->context);
  return fail(ErrorCode::kUnreachable,
              "no answer from " + options.host + " on UDP port " + std::to_string(options.port) + patience);
}

schema::AttachReply ChannelStatus::attached() const {
  const std::lock_guard lock(mutex_);
  return attach_reply_;
}

crypto::Fingerprint ChannelStatus::server_fingerprint() const {
  const std::lock_guard lock(mutex_);
  return key_;
}

std::optional<Error> ChannelStatus::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

ChannelStats ChannelStatus::stats() const {
  const TimePoint silent_since = silent_since_;
  const std::lock_guard lock(mutex_);
  ChannelStats stats = stats_;
  // Reckoned here: the network thread may sleep for seconds while nothing comes.
  stats.silent = silent_since == kNever ? Duration(0) : std::max(io::now() - silent_since, Duration(0));
  return stats;
}

void ChannelStatus::note_key(const crypto::Fingerprint& key) {
  const std::lock_guard lock(mutex_);
  key_ = key;
}

void ChannelStatus::note_attached(const schema::AttachReply& reply) {
  const std::lock_guard lock(mutex_);
  refusal_.reset();
  attach_reply_ = reply;
  ever_attached_ = true;
  changed_.notify_all();
}

void ChannelStatus::note_refused(const Error& refusal) {
  confirmed_ = TimePoint::min();  // nothing rests on a right that has ended
  const std::lock_guard lock(mutex_);
  refusal_ = refusal;
}

void ChannelStatus::note_failure(const Error& failure) {
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  stats_.over = true;
  changed_.notify_all();
}

void ChannelStatus::publish(ChannelStats stats) {
  connected_ = stats.connected;
  const std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
}

}  // namespace tusk::rpc
