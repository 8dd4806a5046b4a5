// Which key a server had when it was mounted first, so that another one in its place is noticed.
//
// A text file in the client's state directory, one line a server: "HOST:PORT FINGERPRINT". A fingerprint
// in the URL is newer knowledge than the file: whoever sends the URL vouches for it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/result.h"
#include "proto/crypto/fingerprint.h"

namespace tusk::client {

class KnownServers {
 public:
  explicit KnownServers(std::filesystem::path file) : file_(std::move(file)) {}

  // kBadConfig, with the line, for a file that cannot be understood; no file: nullopt.
  [[nodiscard]] Result<std::optional<crypto::Fingerprint>> find(const std::string& server) const;
  // Replaces what was known. Atomic; the file is 0600.
  [[nodiscard]] Result<void> remember(const std::string& server, const crypto::Fingerprint& key) const;

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }

 private:
  const std::filesystem::path file_;
};

// Where the client's key and known servers are kept: $XDG_CONFIG_HOME/tusk, ~/.config/tusk (the home of
// the user database if HOME is not set, as in mount units), /etc/tusk for root without either.
[[nodiscard]] std::filesystem::path default_state_directory();

}  // namespace tusk::client
