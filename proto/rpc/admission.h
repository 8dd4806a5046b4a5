// Whether a server lets a channel in: by which key it is known, and what it said to the last attach.
//
// Pure. Not thread-safe: the network thread's.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/crypto/identity.h"

namespace tusk::rpc {

class Admission {
 public:
  // `expected`: the server's key; nullopt: any, until one has let us in. `other_key_believed`: for how long
  // another one must be shown to count.
  Admission(std::optional<crypto::Fingerprint> expected, Duration other_key_believed)
      : expected_key_(expected), other_key_believed_(other_key_believed) {}

  [[nodiscard]] const std::optional<crypto::Fingerprint>& expected_key() const { return expected_key_; }
  [[nodiscard]] bool ever_let_in() const { return ever_let_in_; }
  // What came of the last attach, if it was no welcome.
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }

  // After one of these the same try would end the same way.
  [[nodiscard]] static bool is_final(ErrorCode code);

  void handle_expected_key() { other_key_since_.reset(); }
  void handle_welcome(const crypto::Fingerprint& key) {
    expected_key_ = key;
    ever_let_in_ = true;
    refusal_.reset();
  }
  // Of a server that is authenticated: before that it could be anybody's forgery.
  void handle_refusal(Error refusal) { refusal_ = std::move(refusal); }
  // A server that was set up anew never has the old key again: to wait for that is to hang. A forger on the
  // path, who could cut it as well, gains that programs fail instead of waiting. True: it is believed now.
  [[nodiscard]] bool handle_other_key(std::string reason, TimePoint now);

  // The server let us in once and will not any more, or is another one now. EACCES whatever it said: the
  // ENOENT of a missing export would tell programs that their files do not exist.
  [[nodiscard]] bool refused() const { return ever_let_in_ && refusal_ && is_final(refusal_->code); }
  [[nodiscard]] bool key_changed() const {
    return refused() && refusal_->code == ErrorCode::kFingerprintMismatch;
  }
  [[nodiscard]] std::string refused_text() const {
    return key_changed() ? "the server has another key than it had" : "the server refuses this mount";
  }
  // refused() only.
  [[nodiscard]] Error refused_error() const {
    return {from_errno(EACCES), refused_text() + ": " + refusal_->context};
  }

 private:
  std::optional<crypto::Fingerprint> expected_key_;
  Duration other_key_believed_;
  std::optional<TimePoint> other_key_since_;  // shown without the expected one in between
  bool ever_let_in_ = false;
  std::optional<Error> refusal_;
};

inline bool Admission::is_final(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFingerprintMismatch:
    case ErrorCode::kTokenRefused:
    case ErrorCode::kNoSuchExport:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kAuthenticationFailed:
    case ErrorCode::kBadConfig:
      return true;
    default:
      return false;
  }
}

inline bool Admission::handle_other_key(std::string reason, TimePoint now) {
  if (!other_key_since_) other_key_since_ = now;
  if (now - *other_key_since_ < other_key_believed_) return false;
  refusal_ = Error{ErrorCode::kFingerprintMismatch, std::move(reason)};
  return true;
}

}  // namespace tusk::rpc
