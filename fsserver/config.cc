#include "fsserver/config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fsserver/state_file.h"

namespace tusk::server {
namespace {

template <class T>
void take(TomlReader& reader, std::string_view key, std::int64_t min, std::int64_t max, T& into) {
  if (const auto value = reader.integer(key, min, max)) into = static_cast<T>(*value);
}

void read_limits(TomlReader& reader, ServerLimits& limits) {
  constexpr std::int64_t kCountMax = 1'000'000;
  constexpr std::int64_t kMebibytesMax = 1'000'000;
  constexpr std::int64_t kRequestMebibytesMin = 64;  // what one client may send before its first answer
  constexpr std::int64_t kMillisecondsMax = 3'600'000;
  constexpr std::int64_t kSecondsMax = 30 * 24 * 3600;
  take(reader, "workers", 2, kWorkersMax, limits.workers);
  take(reader, "mounts", 1, kCountMax, limits.mounts);
  take(reader, "connections", 1, kCountMax, limits.connections);
  std::int64_t mebibytes = 0;
  take(reader, "reply_memory_mib", 16, kMebibytesMax, mebibytes);
  if (mebibytes != 0) limits.reply_memory_bytes = static_cast<ByteCount>(mebibytes) << 20;
  mebibytes = 0;
  take(reader, "request_memory_mib", kRequestMebibytesMin, kMebibytesMax, mebibytes);
  if (mebibytes != 0) limits.request_memory_bytes = static_cast<ByteCount>(mebibytes) << 20;
  take(reader, "attr_lifetime_ms", 0, kMillisecondsMax, limits.attr_lifetime_ms);
  take(reader, "session_keep_s", 0, kSecondsMax, limits.session_keep);
  reader.done();
}

void read_listen(TomlReader& reader, std::vector<io::Address>& listen) {
  const auto items = reader.texts("listen");
  if (items.empty()) return;
  if (items.size() > kListenAddressesMax) return reader.complain("listen", "too many addresses in 'listen'");
  listen.clear();
  for (const auto& [text, line] : items) {
    if (const auto address = io::parse(text))
      listen.push_back(*address);
    else
      reader.complain_at(line, "'" + text + "' is not an address: " + address.error().context);
  }
}

void read_watch(TomlReader& reader, WatchWish& watch) {
  const auto word = reader.text("watch");
  if (!word) return;
  if (const auto wish = watch_wish(*word))
    watch = *wish;
  else
    reader.complain("watch", "'watch' must be \"auto\", \"fanotify\", \"inotify\" or \"none\"");
}

ExportSettings read_export(TomlReader& reader) {
  ExportSettings settings;
  if (const auto name = reader.required_text("name")) {
    settings.name = *name;
    if (const auto good = rpc::check_export_name(*name); !good) reader.complain("name", good.error().context);
  }
  if (const auto path = reader.required_text("path")) {
    settings.path = *path;
    if (!settings.path.is_absolute()) reader.complain("path", "'path' must begin with '/'");
  }
  if (const auto access = reader.text("access")) {
    if (*access != "ro" && *access != "rw") reader.complain("access", "'access' must be \"ro\" or \"rw\"");
    settings.access = *access == "rw" ? Access::kReadWrite : Access::kReadOnly;
  }
  for (const auto& [text, line] : reader.texts("clients")) {
    if (const auto key = crypto::Fingerprint::parse(text))
      settings.clients.push_back(*key);
    else
      reader.complain_at(line, "'" + text + "' is not a client's fingerprint (43 characters)");
  }
  settings.act_as = reader.text("as");
  settings.setuid = reader.boolean("setuid").value_or(false);
  reader.done();
  return settings;
}

void read_exports(TomlReader& top, std::vector<ExportSettings>& exports, const ExportCheck& check) {
  std::set<std::string> names;
  for (TomlReader& reader : top.tables("export")) {
    exports.push_back(read_export(reader));
    if (check) check(exports.back(), reader);
    const std::string& name = exports.back().name;
    if (!name.empty() && !names.insert(name).second)
      reader.complain("name", "a second export named '" + name + "'");
  }
  if (!top.has("export")) top.complain_at(0, "nothing is exported: add [[export]] with a name and a path");
  if (exports.size() > kExportsMax)
    top.complain("export", "more than " + std::to_string(kExportsMax) + " exports");
}

}  // namespace

std::expected<ServerConfig, Complaints> parse_config(std::string_view text, const ExportCheck& check) {
  Complaints complaints;
  ServerConfig config;
  if (const auto table = parse_toml(text, complaints)) {
    TomlReader top(*table, "", complaints);
    if (const auto dir = top.text("state_dir")) {
      config.state_dir = *dir;
      if (!config.state_dir.is_absolute()) top.complain("state_dir", "'state_dir' must begin with '/'");
    }
    read_listen(top, config.listen);
    read_watch(top, config.watch);
    config.sandbox = top.boolean("sandbox").value_or(true);
    if (auto limits = top.table("limits")) read_limits(*limits, config.limits);
    read_exports(top, config.exports, check);
    top.done();
  }
  const auto about_the_whole_last = [](const Complaint& complaint) {
    return std::pair(complaint.line == 0, complaint.line);
  };
  std::ranges::stable_sort(complaints, {}, about_the_whole_last);
  if (!complaints.empty()) return std::unexpected(std::move(complaints));
  return config;
}

std::optional<WatchWish> watch_wish(std::string_view word) {
  constexpr std::pair<std::string_view, WatchWish> kWishes[] = {{"auto", WatchWish::kAuto},
                                                                {"fanotify", WatchWish::kFanotify},
                                                                {"inotify", WatchWish::kInotify},
                                                                {"none", WatchWish::kNone}};
  const auto* const found = std::ranges::find(kWishes, word, &std::pair<std::string_view, WatchWish>::first);
  return found == std::end(kWishes) ? std::nullopt : std::optional(found->second);
}

std::string needs_restart(const ServerConfig& running, const ServerConfig& fresh) {
  std::string names;
  const auto add = [&](bool differs, std::string_view name) {
    if (differs) names.append(names.empty() ? "" : ", ").append(name);
  };
  const auto state_dir = [](const ServerConfig& config) {
    return config.state_dir.empty() ? default_state_dir().value_or(config.state_dir) : config.state_dir;
  };
  add(state_dir(fresh) != state_dir(running), "state_dir");
  add(fresh.listen != running.listen, "listen");
  add(fresh.watch != running.watch, "watch");
  add(fresh.sandbox != running.sandbox, "sandbox");
  add(fresh.limits != running.limits, "limits");
  return names;
}

}  // namespace tusk::server
