// The one line that a user carries from the server to the client: tusk://HOST[:PORT]/EXPORT[#RIGHT]
//
// HOST is a name, an IPv4 address or an IPv6 address in brackets. EXPORT is percent-encoded
// (RFC 3986 §2.1). RIGHT is base64url without padding (RFC 4648 §5) of the server key's fingerprint
// (32 bytes), a token (16 bytes), or the one followed by the other: 43, 22 or 64 characters.
// What it does not do: resolve the host, or say whether the token is good.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/crypto/identity.h"

namespace tusk::rpc {

constexpr std::uint16_t kDefaultPort = 8875;  // UDP
constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kExportNameBytesMax = 255;
constexpr std::size_t kMountUrlBytesMax = 2048;

// What both sides call a good name of an export: 1 to kExportNameBytesMax bytes, neither "." nor "..",
// without
// '/', comma and control characters, so that it can stand in mount options, mount tables and logs.
// kBadConfig with a sentence.
[[nodiscard]] Result<void> check_export_name(std::string_view name);

struct MountUrl {
  std::string host;  // without brackets
  std::uint16_t port = kDefaultPort;
  std::string export_name;                         // decoded; check_export_name() holds
  std::optional<crypto::Fingerprint> fingerprint;  // of the server's key; absent: pin what answers
  std::vector<std::byte> token;                    // kTokenBytes, or empty: the client's key is listed

  // kBadConfig, saying which part is wrong and what it should look like. The token never appears in
  // the message.
  [[nodiscard]] static Result<MountUrl> parse(std::string_view text);

  // parse(to_text()) is the same URL again.
  [[nodiscard]] std::string to_text() const;

  bool operator==(const MountUrl&) const = default;
};

}  // namespace tusk::rpc
