#include "fsclient/mount_settings.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "fsclient/disk_folder.h"
#include "proto/base/suggestion.h"

namespace tusk::client {
namespace {

constexpr ByteCount kMiB = 1024 * 1024;
constexpr ByteCount kCacheMin = 16 * kMiB;

template <class Number>
Result<Number> parse_number(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    return fail(ErrorCode::kBadConfig, fmt::format("'{}' is not a number", text));
  return number;
}

Result<Duration> parse_seconds(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr double kMax = 1e9;
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds > kMax)
    return fail(ErrorCode::kBadConfig, fmt::format("'{}' is not a number of seconds", text));
  return from_seconds(seconds);
}

Result<uid_t> parse_user(const std::string& text) {
  if (const passwd* user = ::getpwnam(text.c_str())) return user->pw_uid;
  if (const auto number = parse_number<uid_t>(text)) return *number;
  return fail(ErrorCode::kBadConfig, fmt::format("there is no user '{}' here, and it is not a number", text));
}

Result<gid_t> parse_group(const std::string& text) {
  if (const group* found = ::getgrnam(text.c_str())) return found->gr_gid;
  if (const auto number = parse_number<gid_t>(text)) return *number;
  return fail(ErrorCode::kBadConfig,
              fmt::format("there is no group '{}' here, and it is not a number", text));
}

// ---------------------------------------------------------------- options with a meaning for us

using Set = Result<void> (*)(MountSettings&, const std::string& value);

struct Option {
  std::string_view name;
  std::string_view value;  // what to write after '=', "" for none
  std::string_view help;
  Set set;
};

template <class T, class Parse>
Result<void> assign(T& target, Parse parsed) {
  if (!parsed) return std::unexpected(std::move(parsed).error());
  target = *parsed;
  return {};
}

Result<void> set_identity(MountSettings& settings, const std::string& value) {
  if (value == "auto")
    settings.identity = IdentityWish::kAuto;
  else if (value == "real")
    settings.identity = IdentityWish::kReal;
  else if (value == "user")
    settings.identity = IdentityWish::kUser;
  else
    return fail(ErrorCode::kBadConfig, "auto, real or user");
  return {};
}

Result<void> set_outage(MountSettings& settings, const std::string& value) {
  constexpr std::string_view kFail = "fail:";
  if (value == "wait") {
    settings.outage.fail_after.reset();
    return {};
  }
  if (!value.starts_with(kFail)) return fail(ErrorCode::kBadConfig, "wait or fail:SECONDS");
  TUSK_ASSIGN(const unsigned seconds, parse_number<unsigned>(std::string_view(value).substr(kFail.size())));
  settings.outage.fail_after = std::chrono::seconds(seconds);
  return {};
}

Result<void> set_umask(MountSettings& settings, const std::string& value) {
  constexpr mode_t kBitsMax = 0777;
  const auto mask = parse_number<mode_t>(value, 8);
  if (!mask || *mask > kBitsMax)
    return fail(ErrorCode::kBadConfig, fmt::format("'{}' is not an octal number from 0 to 777", value));
  settings.umask = *mask;
  return {};
}

Result<void> set_connect_timeout(MountSettings& settings, const std::string& value) {
  TUSK_ASSIGN(const unsigned seconds, parse_number<unsigned>(value));
  if (seconds == 0) return fail(ErrorCode::kBadConfig, "at least 1 second");
  settings.connect_timeout = std::chrono::seconds(seconds);
  return {};
}

Result<void> set_cache(MountSettings& settings, const std::string& value) {
  TUSK_ASSIGN(settings.cache_bytes, parse_size(value));
  if (settings.cache_bytes < kCacheMin) return fail(ErrorCode::kBadConfig, "at least 16M");
  return {};
}

Result<void> set_cache_folder(MountSettings& settings, const std::string& value) {
  if (value.empty()) return fail(ErrorCode::kBadConfig, "name a folder of this machine");
  std::error_code failed;
  settings.cache_folder = std::filesystem::absolute(value, failed);
  if (failed) return fail(ErrorCode::kBadConfig, failed.message());
  return {};
}

Result<void> set_url_file(MountSettings& settings, const std::string& value) {
  if (value.empty()) return fail(ErrorCode::kBadConfig, "name a file of this machine");
  settings.url_file = value;
  return {};
}

Result<void> set_cache_size(MountSettings& settings, const std::string& value) {
  TUSK_ASSIGN(settings.cache_folder_bytes, parse_size(value));
  if (settings.cache_folder_bytes < DiskFolder::kBytesMin) return fail(ErrorCode::kBadConfig, "at least 64M");
  return {};
}

Result<void> set_connections(MountSettings& settings, const std::string& value) {
  if (value == "auto") return settings.connections = 0, Result<void>();
  TUSK_ASSIGN(const unsigned connections, parse_number<unsigned>(value));
  if (connections < 1 || connections > rpc::LaneOptions::kConnectionsMax)
    return fail(ErrorCode::kBadConfig, fmt::format("auto, or 1 to {}", rpc::LaneOptions::kConnectionsMax));
  settings.connections = connections;
  return {};
}

constexpr Option kOptions[] = {
    {"ro", "", "read-only",
     [](MountSettings& s, const std::string&) -> Result<void> { return s.read_only = true, Result<void>(); }},
    {"rw", "", "read and write (default; the server may allow less)",
     [](MountSettings& s, const std::string&) -> Result<void> {
       return s.read_only = false, Result<void>();
     }},
    {"url_file", "FILE",
     "the URL stands in this file of mode 0600 and in no process list (as --url-file; for fstab)",
     set_url_file},
    {"allow_other", "", "other users may use the mount (default for root)",
     [](MountSettings& s, const std::string&) -> Result<void> {
       return s.allow_other = true, Result<void>();
     }},
    {"identity", "auto|real|user",
     "whose files they are: as on the server (real), or the mounting user's (user); auto: real for root "
     "where the server grants it",
     set_identity},
    {"uid", "USER", "owner to show; implies identity=user",
     [](MountSettings& s, const std::string& v) { return assign(s.uid, parse_user(v)); }},
    {"gid", "GROUP", "group to show; implies identity=user",
     [](MountSettings& s, const std::string& v) { return assign(s.gid, parse_group(v)); }},
    {"umask", "OCTAL", "permission bits not to show", set_umask},
    {"acl", "", "the kernel here enforces ACLs (default with identity=real)",
     [](MountSettings& s, const std::string&) -> Result<void> { return s.acls = true, Result<void>(); }},
    {"noacl", "", "it checks modes only; the server still enforces ACLs",
     [](MountSettings& s, const std::string&) -> Result<void> { return s.acls = false, Result<void>(); }},
    {"nolog", "",
     "the server is asked before a program is told that a name was made, removed or changed (default: where "
     "nobody else has looked, it is told at once, and the changes follow as a log)",
     [](MountSettings& s, const std::string&) -> Result<void> { return s.log = false, Result<void>(); }},
    {"cache_mem", "SIZE",
     "memory for file data, e.g. 256M (default 128M, more on long fast paths, at most 1G or 1/8 of RAM)",
     set_cache},
    {"cache", "DIR", "keep file data in this folder of this machine between mounts (made if there is none)",
     set_cache_folder},
    {"cache_size", "SIZE", "of that folder, for each export (default: a tenth of what is free, at most 10G)",
     set_cache_size},
    {"attr_timeout", "SECONDS", "how long names and attributes are trusted (default: the server says, 1)",
     [](MountSettings& s, const std::string& v) { return assign(s.attr_timeout, parse_seconds(v)); }},
    {"outage", "wait|fail:SECONDS", "while the server is out of reach: wait (default), or fail after a while",
     set_outage},
    {"connect_timeout", "SECONDS", "how long the mount command tries (default 10)", set_connect_timeout},
    {"background", "", "yield to all others on the line: take what they leave",
     [](MountSettings& s, const std::string&) -> Result<void> {
       return s.background = true, Result<void>();
     }},
    {"connections", "auto|N",
     "to the server at once, 1 to 8 (default 1); they share what one would get of the line; auto: one, and "
     "more when a core or 3 Gbit/s limits it",
     set_connections},
    {"no_auto_unmount", "", "leave the mount point as it is if the daemon dies",
     [](MountSettings& s, const std::string&) -> Result<void> {
       return s.auto_unmount = false, Result<void>();
     }},
};

// Passed on to the kernel.
constexpr std::string_view kKernelOptions[] = {
    "nosuid",      "suid",          "nodev",      "dev",      "noexec",   "exec",
    "noatime",     "atime",         "nodiratime", "diratime", "relatime", "norelatime",
    "strictatime", "nostrictatime", "sync",       "async",    "dirsync"};

// For mount(8), fstab and init systems, or the only way we know.
constexpr std::string_view kIgnored[] = {"defaults",
                                         "_netdev",
                                         "nofail",
                                         "auto",
                                         "noauto",
                                         "user",
                                         "users",
                                         "nouser",
                                         "nousers",
                                         "owner",
                                         "group",
                                         "reconnect",
                                         "nonempty",
                                         "big_writes",
                                         "silent",
                                         "loud",
                                         "default_permissions"};

// Mount tables name the same thing with '-' and with '_'.
std::string normal(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

std::string suggestion(std::string_view name) {
  std::vector<std::string_view> known(std::begin(kKernelOptions), std::end(kKernelOptions));
  for (const Option& option : kOptions) known.push_back(option.name);
  const std::string_view meant = closest_word(name, known);
  return meant.empty() ? "tusk mount --help lists them" : fmt::format("did you mean {}?", meant);
}

Result<void> apply_option(std::string_view text, MountSettings& settings) {
  const auto equals = text.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string name = normal(text.substr(0, equals));
  const std::string value(has_value ? text.substr(equals + 1) : "");
  if (name.starts_with("x_") || name == "comment" || std::ranges::find(kIgnored, name) != std::end(kIgnored))
    return {};
  if (std::ranges::find(kKernelOptions, name) != std::end(kKernelOptions)) {
    settings.kernel_options.push_back(name);
    return {};
  }
  for (const Option& option : kOptions) {
    if (option.name != name) continue;
    if (has_value == option.value.empty())
      return fail(ErrorCode::kBadConfig, option.value.empty() ? fmt::format("option {} takes no value", name)
                                                              : fmt::format("option {} needs a value: {}={}",
                                                                            name, name, option.value));
    Result<void> set = option.set(settings, value);
    if (!set) return fail(ErrorCode::kBadConfig, fmt::format("option {}: {}", name, set.error().context));
    return set;
  }
  return fail(ErrorCode::kBadConfig, fmt::format("unknown option '{}': {}", name, suggestion(name)));
}

}  // namespace

ByteCount cache_bytes_default() {
  const auto pages = static_cast<ByteCount>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page_size = static_cast<ByteCount>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  return std::clamp(pages * page_size / 8, 64 * kMiB, 1024 * kMiB);
}

std::string size_text(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format(fmt::runtime(unit == 0 ? "{:.0f} {}" : "{:.1f} {}"), bytes, kUnits[unit]);
}

Result<ByteCount> parse_size(std::string_view text) {
  ByteCount number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::tolower(c); });
  if (unit.ends_with("ib"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("b"))
    unit.resize(unit.size() - 1);
  constexpr std::string_view kUnits = "kmgt";
  const auto power = unit.empty() ? 0 : kUnits.find(unit.front()) + 1;
  const bool known = unit.empty() || (unit.size() == 1 && power != 0);
  constexpr ByteCount kMax = 1ull << 50;
  if (error != std::errc() || !known || number > (kMax >> (10 * power)))
    return fail(ErrorCode::kBadConfig, fmt::format("'{}' is not a size (like 256M or 2G)", text));
  return number << (10 * power);
}

Result<void> apply_options(std::string_view list, MountSettings& settings) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    const std::string_view option = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (!option.empty()) TUSK_TRY(apply_option(option, settings));
  }
  return {};
}

Result<void> check_options(const MountSettings& settings) {
  if (settings.identity == IdentityWish::kReal && (settings.uid || settings.gid))
    return fail(
        ErrorCode::kBadConfig,
        "option identity: uid and gid show files as one user's, real as they are on the server; leave "
        "out one or the other");
  if (settings.background && settings.connections > 1)
    return fail(ErrorCode::kBadConfig, "option connections: a mount in the background has one");
  if (settings.cache_folder_bytes != 0 && settings.cache_folder.empty())
    return fail(ErrorCode::kBadConfig,
                "option cache_size: it is the size of a folder that cache=DIR names, and there is none; for "
                "memory there is cache_mem=SIZE");
  return {};
}

std::string options_help() {
  std::string text = "Options for -o:\n";
  for (const Option& option : kOptions) {
    const std::string left =
        option.value.empty() ? std::string(option.name) : fmt::format("{}={}", option.name, option.value);
    text += fmt::format("  {:<28}{}\n", left, option.help);
  }
  text +=
      "  nosuid, nodev, noexec, noatime, sync, ... as for mount(8); x-*, _netdev, nofail, noauto are "
      "ignored\n";
  return text;
}

}  // namespace tusk::client
