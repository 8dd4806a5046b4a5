#include "fsclient/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "fsclient/mount_settings.h"
#include "proto/base/text.h"

namespace tusk::client {

using Json = nlohmann::ordered_json;

namespace {

Json disk_cache_json(const DiskCache* disk) {
  if (disk == nullptr) return nullptr;
  const DiskCacheStats stats = disk->stats();
  return {{"folder", stats.folder.string()},
          {"used_bytes", stats.used_bytes},
          {"max_bytes", stats.max_bytes},
          {"pinned_bytes", stats.pinned_bytes},
          {"blocks", stats.blocks},
          {"hits", stats.hits},
          {"hit_bytes", stats.hit_bytes},
          {"stored_bytes", stats.stored_bytes},
          {"evicted_bytes", stats.evicted_bytes},
          {"skipped_bytes", stats.skipped_bytes},
          {"damaged", stats.damaged},
          {"pending_bytes", stats.pending_bytes},
          {"loading", stats.loading},
          {"problem", stats.problem},
          {"pins", stats.pins}};
}

}  // namespace

std::string status_json(const MountFacts& facts, const rpc::ChannelStats& path, Filesystem& filesystem,
                        TimePoint now) {
  const Counters& counters = filesystem.counters();
  const auto [last_error, errors] = filesystem.last_error().value();
  const Json json{
      {"version", facts.version},
      {"pid", ::getpid()},
      {"mountpoint", facts.mountpoint.string()},
      {"server", facts.server},
      {"server_name", facts.server_name},
      {"server_key", facts.server_key},
      {"client_key", path.own_key.to_text()},
      {"read_only", facts.read_only},
      {"identity", facts.identity_real ? "real" : "user"},
      {"priority", facts.background ? "background" : "normal"},
      {"connected", path.connected},
      {"refused", path.refused},
      {"key_changed", path.key_changed},
      {"down_because", path.down_because},
      {"silent_s", to_seconds(path.silent)},
      {"silent", is_silent(path)},
      {"mounted_s", to_seconds(now - facts.mounted_at)},
      {"path",
       {{"address", path.peer_address},
        {"rtt_s", to_seconds(path.rtt_smoothed)},
        {"rtt_min_s", to_seconds(path.rtt_min)},
        {"queueing_delay_s", to_seconds(path.queueing_delay)},
        {"send_bytes_per_s", path.send_bandwidth},
        {"receive_bytes_per_s", path.receive_bandwidth},
        {"loss", path.loss},
        {"cipher", path.cipher},
        {"mtu", path.mtu},
        {"bytes_sent", path.bytes_sent},
        {"bytes_received", path.bytes_received},
        {"packets_sent", path.packets_sent},
        {"packets_received", path.packets_received},
        {"packets_lost", path.packets_lost},
        {"connections", path.connections},
        {"reconnects", path.reconnects},
        {"calls_in_flight", path.calls_in_flight}}},
      {"read_bytes", counters.read.load()},
      {"read_cached_bytes", counters.read_from_cache.load()},
      {"fetched_bytes", counters.fetched.load()},
      {"fetched_ahead_bytes", counters.fetched_ahead.load()},
      {"written_bytes", counters.written.load()},
      {"sent_bytes", counters.sent.load()},
      {"pending_bytes", filesystem.pending_bytes()},
      {"lookups", counters.lookups.load()},
      {"lookups_cached", counters.lookups_from_cache.load()},
      {"operations", counters.operations.load()},
      {"cache_used_bytes", filesystem.cache_used()},
      {"cache_max_bytes", filesystem.cache_cap()},
      {"disk_cache", disk_cache_json(filesystem.disk())},
      {"inodes", filesystem.inodes_known()},
      {"coherence", filesystem.coherence()},
      {"grace_s", to_seconds(filesystem.grace_remaining())},
      {"leases", filesystem.leases_held()},
      {"errors", errors},
      {"last_error", last_error},
  };
  // File names in errors are bytes, JSON is UTF-8.
  constexpr bool kAsciiOnly = true;  // and so no control characters, whatever encodes them
  return json.dump(-1, ' ', kAsciiOnly, Json::error_handler_t::replace);
}

namespace {

std::string rate_text(double bytes_per_s) { return fmt::format("{:.1f} Mbit/s", bytes_per_s * 8 / 1e6); }

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "-";
}

// An older daemon does not say.
bool key_changed(const Json& json) { return json.value("key_changed", false); }

// Not "up" while nothing is heard: nobody knows yet whether it is.
std::string connection_text(const Json& json) {
  const auto silent_s = json.at("silent_s").get<double>();
  const bool silent = json.value("silent", silent_s >= to_seconds(kSilentMin));  // an older daemon does not say
  const std::string seconds = fmt::format("{:.0f} s", std::floor(silent_s));
  if (json.at("connected").get<bool>()) {
    const auto address = json.at("path").at("address").get<std::string>();
    return silent ? fmt::format("WAITING: no answer for {} from {}", seconds, address) : "up, " + address;
  }
  const auto reason = json.at("down_because").get<std::string>();
  if (key_changed(json)) return "ANOTHER SERVER KEY: " + reason;
  if (json.at("refused").get<bool>()) return "refused: " + reason;
  return silent ? fmt::format("DOWN for {}: {}", seconds, reason) : "DOWN: " + reason;
}

// A key may begin with a dash: hence the "--".
std::string advice_when_refused(const Json& json) {
  if (key_changed(json))
    return "if the server was set up anew: tusk umount, then mount with a new URL (tuskd share or tuskd "
           "token prints it); else somebody is in between. Once the old key is back, this mount goes on by "
           "itself";
  const auto server = json.at("server").get<std::string>();
  return fmt::format(
      "mount again with a new URL (tuskd token), or have this client's key allowed "
      "(tuskd allow --export {} -- {}); once let in again, this mount goes on by itself",
      shell_word(server.substr(server.rfind('/') + 1)), json.at("client_key").get<std::string>());
}

// Nothing without a disk cache; an older daemon does not say.
std::vector<std::pair<std::string, std::string>> disk_cache_rows(const Json& json) {
  const auto found = json.find("disk_cache");
  if (found == json.end() || found->is_null()) return {};
  const Json& disk = *found;
  const auto size = [&disk](const char* key) { return size_text(disk.at(key).get<double>()); };
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("disk cache",
                    fmt::format("{} of {} in {}{}", size("used_bytes"), size("max_bytes"),
                                disk.at("folder").get<std::string>(),
                                disk.at("loading").get<bool>() ? " (being looked through)" : ""));
  std::string traffic = fmt::format("{} read from it, {} stored", size("hit_bytes"), size("stored_bytes"));
  if (const auto damaged = disk.at("damaged").get<std::uint64_t>(); damaged > 0)
    traffic += fmt::format(", {} damaged blocks fetched anew", damaged);
  rows.emplace_back("", traffic);
  const auto pins = disk.at("pins").get<std::vector<std::string>>();
  for (const std::string& pin : pins)
    rows.emplace_back(&pin == pins.data() ? "pinned" : "", pin.empty() ? "all of it" : pin);
  if (const auto problem = disk.at("problem").get<std::string>(); !problem.empty())
    rows.emplace_back("", "PROBLEM: " + problem);
  return rows;
}

std::string describe(const Json& json) {
  const Json& path = json.at("path");
  const auto number = [](const Json& from, const char* key) { return from.at(key).get<double>(); };
  const std::string first = fmt::format("{} on {}{}", json.at("server").get<std::string>(),
                                        json.at("mountpoint").get<std::string>(),
                                        json.at("read_only").get<bool>() ? " (read-only)" : "");
  std::string text = printable(first, first.size()) + "\n";
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<16}{}\n", name, printable(value, value.size()));
  };
  row("connection", connection_text(json));
  // An older daemon does not say.
  if (json.value("priority", "normal") == "background")
    row("priority", "background: yields to all others on the line");
  if (const auto connections = path.value("connections", 1U); connections > 1)
    row("connections", fmt::format("{}, which share what one would get of the line", connections));
  if (json.at("refused").get<bool>()) row("what to do", advice_when_refused(json));
  row("client key", json.at("client_key").get<std::string>());
  row("round trip",
      fmt::format("{:.1f} ms (at best {:.1f} ms, {:.1f} ms of it queueing)", number(path, "rtt_s") * 1e3,
                  number(path, "rtt_min_s") * 1e3, number(path, "queueing_delay_s") * 1e3));
  row("bandwidth", fmt::format("{} out, {} in", rate_text(number(path, "send_bytes_per_s")),
                               rate_text(number(path, "receive_bytes_per_s"))));
  row("loss", fmt::format("{:.2f} %", number(path, "loss") * 100));
  // An older daemon does not say.
  if (const auto cipher = path.value("cipher", ""); !cipher.empty()) row("encryption", cipher);
  row("packet size", fmt::format("{:.0f} bytes", number(path, "mtu")));
  row("read", fmt::format("{}, {} of it from the cache", size_text(number(json, "read_bytes")),
                          share_text(number(json, "read_cached_bytes"), number(json, "read_bytes"))));
  row("written", size_text(number(json, "written_bytes")));
  row("not sent yet", size_text(number(json, "pending_bytes")));
  row("lookups", fmt::format("{:.0f}, {} of them without asking", number(json, "lookups"),
                             share_text(number(json, "lookups_cached"), number(json, "lookups"))));
  row("coherence",
      fmt::format("{}, {:.0f} held", json.at("coherence").get<std::string>(), number(json, "leases")));
  if (const double grace = json.value("grace_s", 0.0); grace > 0)
    row("grace",
        fmt::format("the server has crashed: changes may wait {:.0f} s more for other mounts", grace));
  row("memory", fmt::format("{} of {}", size_text(number(json, "cache_used_bytes")),
                            size_text(number(json, "cache_max_bytes"))));
  for (const auto& [name, value] : disk_cache_rows(json)) row(name, value);
  const std::string last_error = json.at("last_error").get<std::string>();
  row("last error", last_error.empty() ? "none" : last_error);
  return text;
}

}  // namespace

Result<std::string> status_text(std::string_view json) try {
  return describe(Json::parse(json));
} catch (const std::exception& error) {
  return fail(ErrorCode::kMalformed, fmt::format("the daemon's answer: {}", error.what()));
}

}  // namespace tusk::client
