// tuskd's command line: what each command does, what it prints, with which status it ends.
//
// Results go to stdout, so that scripts can use them; everything else goes to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsserver/change_watch.h"
#include "proto/base/result.h"
#include "proto/io/address.h"

namespace tusk::server {

// 0; 1 when it did not work out; 2 when it was not asked in the right way. `built_from`: what --version says
// besides the version.
[[nodiscard]] int run_tuskd(int argc, char** argv, std::string_view built_from);

struct ShareArguments {
  std::string directory;
  std::optional<std::string> name;  // else the directory's own
  bool read_write = false;
  std::optional<std::string> act_as;  // a user; else tuskd's own
  bool setuid = false;
  bool sandbox = true;
  std::string listen;  // empty: every address, the default port
  std::string state_dir;
  std::string url_file;
  WatchWish watch = WatchWish::kAuto;
};

// Where the state is: said directly, or by a configuration file, or the default.
struct StateArguments {
  std::string config_file;
  std::string state_dir;
};

struct TokenArguments {
  StateArguments state;
  std::string export_name;
  bool read_write = false;
  std::string expires;  // empty: never
  std::string host;     // HOST[:PORT] for the URL; empty: this machine's address, the server's port
};

struct AllowArguments {
  StateArguments state;
  std::string fingerprint;
  std::string export_name;
  bool read_write = false;
};

// Each runs a command to its end; an error is one sentence for the user.
[[nodiscard]] Result<void> share(const ShareArguments& arguments);
[[nodiscard]] Result<void> serve(const std::string& config_file);
[[nodiscard]] Result<void> check_config(const std::string& config_file);
[[nodiscard]] Result<void> print_token(const TokenArguments& arguments);
[[nodiscard]] Result<void> allow(const AllowArguments& arguments);
[[nodiscard]] Result<void> print_clients(const StateArguments& arguments);

// "90s", "30m", "12h", "7d" in seconds. kBadConfig.
[[nodiscard]] Result<std::int64_t> parse_lifetime(std::string_view text);
// "1.2.3.4:8875", "[::1]:8875", ":8875", "8875" and "1.2.3.4". kBadConfig.
[[nodiscard]] Result<io::Address> parse_listen(std::string_view text);
// How others reach a server that listens on these addresses.
[[nodiscard]] std::string public_host(const std::vector<io::Address>& listen);

}  // namespace tusk::server
