#include "proto/rpc/mount_url.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "proto/base/percent_encoding.h"
#include "proto/base/text.h"
#include "proto/crypto/base64url.h"

namespace tusk::rpc {
namespace {

constexpr std::string_view kScheme = "tusk://";
constexpr std::string_view kShape = "expected tusk://HOST[:PORT]/EXPORT[#TOKEN]";
constexpr std::size_t kFingerprintBytes = 32;

std::unexpected<Error> bad(std::string what) {
  return fail(ErrorCode::kBadConfig, "URL: " + std::move(what) + " (" + std::string(kShape) + ")");
}

Result<std::uint16_t> parse_port(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > 65535)
    return bad("port '" + std::string(text) + "' is not a number from 1 to 65535");
  return static_cast<std::uint16_t>(value);
}

Result<void> parse_authority(std::string_view authority, MountUrl& url) {
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("'[' without ']' around the IPv6 address");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && !port.starts_with(':')) return bad("only ':PORT' may follow ']'");
    if (url.host.find(':') == std::string::npos) return bad("no IPv6 address between '[' and ']'");
  } else {
    const std::size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
    if (!port.empty() && port.find(':', 1) != std::string_view::npos)
      return bad("an IPv6 address needs brackets, as in [2001:db8::1]");
  }
  if (url.host.empty()) return bad("the host is missing");
  constexpr std::string_view kNeverInAHost = " ,@?#[]/\\\"'<>";
  if (url.host.find_first_of(kNeverInAHost) != std::string::npos || has_control_characters(url.host))
    return bad("the host has a character that no host name has");
  if (!port.empty()) {
    TUSK_ASSIGN(url.port, parse_port(port.substr(1)));
  }
  return {};
}

Result<void> parse_right(std::string_view text, MountUrl& url) {
  const auto decoded = crypto::base64url_decode(text);
  if (!decoded) return bad("the part after '#' is damaged; was the URL pasted whole, within quotes?");
  std::span<const std::byte> rest(*decoded);
  if (rest.size() == kFingerprintBytes || rest.size() == kFingerprintBytes + kTokenBytes) {
    crypto::Fingerprint fingerprint;
    std::ranges::copy(rest.first(kFingerprintBytes), fingerprint.bytes.begin());
    url.fingerprint = fingerprint;
    rest = rest.subspan(kFingerprintBytes);
  }
  if (!rest.empty() && rest.size() != kTokenBytes)
    return bad("the part after '#' has " + std::to_string(text.size()) +
               " characters instead of 64 (43 without a token); was the URL pasted whole?");
  url.token.assign(rest.begin(), rest.end());
  return {};
}

}  // namespace

Result<void> check_export_name(std::string_view name) {
  if (name.empty()) return fail(ErrorCode::kBadConfig, "an export needs a name");
  if (name.size() > kExportNameBytesMax)
    return fail(ErrorCode::kBadConfig, "an export's name has at most 255 bytes");
  if (name == "." || name == "..") return fail(ErrorCode::kBadConfig, "an export's name is no directory's");
  if (name.find_first_of("/,") != std::string_view::npos || has_control_characters(name))
    return fail(ErrorCode::kBadConfig, "an export's name has no '/', no comma and no control characters");
  return {};
}

Result<MountUrl> MountUrl::parse(std::string_view text) {
  if (text.size() > kMountUrlBytesMax)
    return bad("longer than " + std::to_string(kMountUrlBytesMax) + " characters");
  if (!text.starts_with(kScheme)) return bad("does not begin with tusk://");
  text.remove_prefix(kScheme.size());

  MountUrl url;
  if (const std::size_t hash = text.find('#'); hash != std::string_view::npos) {
    TUSK_TRY(parse_right(text.substr(hash + 1), url));
    text = text.substr(0, hash);
  }
  const std::size_t slash = text.find('/');
  TUSK_TRY(parse_authority(text.substr(0, slash), url));
  if (slash == std::string_view::npos || slash + 1 == text.size()) return bad("the export's name is missing");
  const std::string_view name = text.substr(slash + 1);
  if (name.find('/') != std::string_view::npos) return bad("no '/' may be in an export's name or follow it");
  if (name.find('?') != std::string_view::npos) return bad("'?' in an export's name is written as %3F");
  auto decoded = percent_decode(name);
  if (!decoded) return bad("'%' in the export's name needs two hexadecimal digits");
  if (const Result<void> good = check_export_name(*decoded); !good) return bad(good.error().context);
  url.export_name = std::move(*decoded);
  return url;
}

std::string MountUrl::to_text() const {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  std::string text(kScheme);
  text += bare_ipv6 ? "[" + host + "]" : host;
  text += ":" + std::to_string(port) + "/" + percent_encode(export_name);
  std::vector<std::byte> right;
  if (fingerprint) right.insert(right.end(), fingerprint->bytes.begin(), fingerprint->bytes.end());
  right.insert(right.end(), token.begin(), token.end());
  if (!right.empty()) text += "#" + crypto::base64url_encode(right);
  return text;
}

}  // namespace tusk::rpc
