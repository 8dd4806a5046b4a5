// A mount URL that comes out of a file or a pipe: its token is in no process list, shell history or log of
// sudo.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fsclient/mount_settings.h"
#include "proto/base/result.h"
#include "proto/rpc/mount_url.h"

namespace tusk::client {

constexpr std::string_view kStandardInput = "-";

// The first line of `file`, or of standard input ("-"), without blanks around it. kBadConfig with a sentence
// if it cannot be read, is empty or too long, or if others than its owner may read it (as ssh has it with
// keys).
[[nodiscard]] Result<std::string> read_url_file(const std::string& file);

// What the command line says about the URL and the place, by its positional arguments.
struct MountWords {
  std::string url;  // empty: only `url_file` says it
  std::string mountpoint;
};
// With `has_url_file` the URL may be left out. kBadConfig with a sentence.
[[nodiscard]] Result<MountWords> mount_words(const std::optional<std::string>& first,
                                             const std::optional<std::string>& second, bool has_url_file);

// The URL that the settings' file and the command line say together: a URL beside a file must name the same
// export and carry no token. Never repeats a token. kBadConfig.
[[nodiscard]] Result<rpc::MountUrl> mount_url(const std::string& url, const std::string& url_file);

}  // namespace tusk::client
