#include "fsclient/umount_command.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "fsclient/cli.h"
#include "fsclient/mount.h"
#include "fsclient/mount_settings.h"
#include "fsclient/mount_table.h"
#include "fsclient/status.h"
#include "proto/base/text.h"

namespace tusk::client {
namespace {

namespace fs = std::filesystem;

using Place = fs::path;   // of the mount
using Daemon = fs::path;  // its socket, which goes when it goes

constexpr std::chrono::seconds kEndsSoon{2};         // without a word
constexpr std::chrono::seconds kEndsElsewhere{8};    // nothing here keeps it any more, so something else does
constexpr std::chrono::seconds kEndsWhenDropped{5};  // then it hangs

void tell(const std::string& text) { fmt::print(stderr, "tusk: {}\n", printable(text, text.size())); }

std::string amount(ByteCount bytes) { return size_text(static_cast<double>(bytes)); }

bool mounted_by_us(const Place& place) {
  const std::optional<MountedAt> mounted = mounted_at(place);
  return mounted && mounted->type == kFilesystemType;
}

// ---------------------------------------------------------------- asking the daemon

// How far a daemon is with its data.
struct Standing {
  ByteCount pending = 0;
  std::uint64_t uncommitted = 0;  // changes that may not be on the server's disk
  bool in_reach = true;           // the server, as far as one can know
  bool flushed = false;
  UntoldFailures::Value untold;  // once it is flushed
};

std::optional<Standing> parse_standing(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return Standing{.pending = json.value("pending_bytes", ByteCount{0}),
                  .uncommitted = json.value("uncommitted", std::uint64_t{0}),
                  .in_reach = json.value("connected", true) && !json.value("silent", false),
                  .flushed = json.value("flushed", false),
                  .untold = {json.value("untold", std::uint64_t{0}), json.value("untold_last", "")}};
}

std::optional<Standing> standing_of(const std::optional<Daemon>& daemon) {
  std::optional<Standing> standing;
  const auto take = [&standing](std::string_view line) { standing = parse_standing(line); };
  if (!daemon || !control(*daemon, "status", take)) return std::nullopt;
  return standing;
}

std::string pid_text(const Daemon& daemon) {
  const Result<pid_t> pid = daemon_at(daemon);
  return pid && *pid > 0 ? fmt::format("PID {}", *pid) : "PID unknown";
}

// Only a daemon that is there has its socket; one that was killed may have left its own.
std::optional<Daemon> daemon_of(const Place& place) {
  std::optional<Daemon> daemon = control_socket(place);
  if (!daemon) return std::nullopt;
  const Result<pid_t> pid = daemon_at(*daemon);
  const bool foreign = !pid && pid.error().code == from_errno(EPERM);
  if (foreign) tell(pid.error().context);
  if (foreign || (!pid && pid.error().code == ErrorCode::kUnreachable)) return std::nullopt;
  return daemon;
}

void tell_that_nobody_knows(const Place& place) {
  tell(
      fmt::format("the daemon of {} cannot be asked (it died, hangs, or has no socket in {} since it is "
                  "another user's), so nobody knows whether the server has everything",
                  place.string(), control_directory().string()));
}

bool ends_within(const Daemon& daemon, std::chrono::seconds limit) {
  constexpr auto kStep = std::chrono::milliseconds(10);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::error_code ignored;
  while (fs::exists(daemon, ignored)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

// ---------------------------------------------------------------- in good order

// Tells people what a flush waits for: nothing in its first second, unless that cannot end soon.
class FlushReport {
 public:
  FlushReport(const Place& place, bool unmounted) : place_(place), unmounted_(unmounted) {}

  void handle(const Standing& standing) {
    flushed_ = standing.flushed;
    untold_ = standing.untold;
    const bool first = std::exchange(first_, false);
    if (flushed_ || (standing.pending == 0 && standing.uncommitted == 0)) return;
    if (!standing.in_reach)
      tell_out_of_reach(standing);
    else if (standing.pending == 0)
      return;
    else if (!first && std::exchange(told_, standing.pending) != standing.pending)
      tell(fmt::format("waiting for {} to reach the server", amount(standing.pending)));
    was_in_reach_ = standing.in_reach;
  }
  [[nodiscard]] bool flushed() const { return flushed_; }
  [[nodiscard]] const UntoldFailures::Value& untold() const { return untold_; }

 private:
  void tell_out_of_reach(const Standing& standing) const {
    if (!was_in_reach_) return;  // said before
    const std::string name = place_.string();
    const std::string what = standing.pending > 0
                                 ? fmt::format("it does not have {} yet", amount(standing.pending))
                                 : "what it has may not be on its disk yet";
    tell(
        fmt::format("the server is out of reach, waiting for it: {} (Ctrl-C leaves {}, tusk umount -f {} {} "
                    "and may lose that)",
                    what, unmounted_ ? "that to the daemon" : name + " mounted", name,
                    unmounted_ ? "ends it" : "unmounts it"));
  }

  const Place& place_;
  const bool unmounted_;  // already
  bool first_ = true;
  ByteCount told_ = 0;
  bool was_in_reach_ = true;
  bool flushed_ = false;
  UntoldFailures::Value untold_;
};

// What could not be done of all that programs were told is, and nobody was told of.
Result<UntoldFailures::Value> flush(const Place& place, const Daemon& daemon, bool unmounted) {
  FlushReport report(place, unmounted);
  TUSK_TRY(control(daemon, "flush", [&report](std::string_view line) {
    if (const std::optional<Standing> standing = parse_standing(line)) report.handle(*standing);
  }));
  if (!report.flushed()) return fail(ErrorCode::kConnectionLost, "the daemon ended while it sent the rest");
  return report.untold();
}

int complain_of_use(const Place& place, const std::optional<Daemon>& daemon) {
  const std::string name = place.string();
  const std::optional<Standing> standing = standing_of(daemon);
  if (!standing || standing->in_reach)
    return complain(kMountFailed, fmt::format("{} is in use (fuser -vm {} shows by whom); tusk umount -l {} "
                                              "unmounts it all the same",
                                              name, name, name));
  return complain(kMountFailed,
                  fmt::format("{} is in use and its server is out of reach; tusk umount -f {} takes it from "
                              "its users at once, and loses what the server does not have ({})",
                              name, name, amount(standing->pending)));
}

// After unmounting: with the last place where it is mounted the daemon goes, too.
int see_it_end(const Place& place, const Daemon& daemon) {
  if (ends_within(daemon, kEndsSoon)) return 0;
  tell(fmt::format("{} is unmounted; waiting for its daemon ({}) to end", place.string(), pid_text(daemon)));
  if (ends_within(daemon, kEndsElsewhere)) return 0;
  return complain(
      kPartlyDone,
      fmt::format("{} is unmounted here, but still in use in another mount namespace ({} of the daemon); it "
                  "ends when that is gone (grep -l fuse.tusk /proc/[0-9]*/mountinfo names the processes "
                  "there), or with tusk umount -f {}",
                  place.string(), pid_text(daemon), place.string()));
}

int unmount_in_good_order(const Place& place, const std::optional<Daemon>& daemon) {
  if (!daemon) tell_that_nobody_knows(place);
  UntoldFailures::Value untold;
  if (daemon) {
    const Result<UntoldFailures::Value> flushed = flush(place, *daemon, false);
    if (!flushed && mounted_by_us(place)) return complain(kMountFailed, flushed.error().message());
    untold = flushed.value_or(untold);
  }
  if (mounted_by_us(place)) {
    const Result<void> unmounted = unmount_path(place, false);
    if (!unmounted && mounted_by_us(place))
      return unmounted.error().code == from_errno(EBUSY)
                 ? complain_of_use(place, daemon)
                 : complain(kMountFailed, unmounted.error().message());
  }
  if (!daemon) return 0;
  untold = flush(place, *daemon, true).value_or(untold);  // what was written until the last moment
  const int end = see_it_end(place, *daemon);
  if (untold.count == 0) return end;
  return complain(kPartlyDone,
                  fmt::format("{} is unmounted, but {} of the changes that programs were told are "
                              "done could not be done; the last: {}",
                              place.string(), untold.count, untold.last));
}

// ---------------------------------------------------------------- at once

int unmount_lazily(const Place& place, const std::optional<Daemon>& daemon) {
  const std::optional<Standing> standing = standing_of(daemon);
  const Result<void> unmounted = unmount_path(place, true);
  if (!unmounted && mounted_by_us(place)) return complain(kMountFailed, unmounted.error().message());
  const std::string name = place.string();
  if (!standing)
    tell_that_nobody_knows(place);
  else if (standing->pending > 0 && standing->in_reach)
    tell(
        fmt::format("{} is unmounted; its daemon ({}) sends {} more in the background (tusk status {} shows "
                    "how far it is)",
                    name, pid_text(*daemon), amount(standing->pending), name));
  else if (standing->pending > 0)
    tell(fmt::format(
        "{} is unmounted, but the server is out of reach: the daemon ({}) waits in the background "
        "to send {} (tusk umount -f {} ends it and loses them)",
        name, pid_text(*daemon), amount(standing->pending), name));
  return 0;
}

// What is lost, in bytes.
Result<ByteCount> drop(const Daemon& daemon) {
  std::optional<ByteCount> lost;
  TUSK_TRY(control(daemon, "drop", [&lost](std::string_view line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object()) lost = json.value("lost_bytes", ByteCount{0});
  }));
  if (!lost) return fail(ErrorCode::kConnectionLost, "the daemon ended before it answered");
  return *lost;
}

void kill_if_it_hangs(const Daemon& daemon) {
  if (ends_within(daemon, kEndsWhenDropped)) return;
  if (const Result<void> killed = kill_daemon(daemon); !killed) tell(killed.error().message());
}

int unmount_by_force(const Place& place, const std::optional<Daemon>& daemon) {
  const Result<ByteCount> lost = daemon ? drop(*daemon) : fail(ErrorCode::kUnreachable);
  if (daemon) kill_if_it_hangs(*daemon);
  if (mounted_by_us(place)) {
    if (::geteuid() == 0) (void)::umount2(place.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW);  // ends requests
    const Result<void> unmounted = mounted_by_us(place) ? unmount_path(place, true) : Result<void>();
    if (!unmounted && mounted_by_us(place)) return complain(kMountFailed, unmounted.error().message());
  }
  if (!lost)
    tell_that_nobody_knows(place);
  else if (*lost > 0)
    tell(fmt::format("{} is unmounted; {} that the server did not have are lost", place.string(),
                     amount(*lost)));
  return 0;
}

}  // namespace

int umount_at(const fs::path& place, UmountWay way) {
  const bool mounted = mounted_by_us(place);
  if (const Result<void> ours = check_control_directory(); !ours) tell(ours.error().context);
  const std::optional<Daemon> daemon = daemon_of(place);
  if (!mounted && !daemon) return complain(kMountFailed, place.string() + " is not mounted by Tusk");
  if (way == UmountWay::kForce) return unmount_by_force(place, daemon);
  return way == UmountWay::kLazy ? unmount_lazily(place, daemon) : unmount_in_good_order(place, daemon);
}

}  // namespace tusk::client
