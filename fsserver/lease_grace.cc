#include "fsserver/lease_grace.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <utility>
#include <vector>

#include "fsserver/state_file.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

const std::string kBootFile = "boot";
const std::string kAnybody = "anybody";  // no session's name

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

Duration uptime() {
  timespec time{};
  (void)::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec);
}

bool store_unsynced(const std::filesystem::path& file, const std::string& content) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  return fd.valid() &&
         ::write(fd.number(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

}  // namespace

LeaseGrace::LeaseGrace(std::filesystem::path folder, LeaseKeeper& leases)
    : folder_(std::move(folder)),
      ends_(io::now() + leases.limits().lease + leases.limits().slack),
      leases_(leases) {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  anybody_awaited_ = another_boot_just_before();
}

bool LeaseGrace::another_boot_just_before() const {
  const auto before = read_state_file(folder_ / kBootFile);
  const std::string now = boot_id();
  const bool known = before && *before;
  if (known && **before == now) return false;
  if (const auto written = write_state_file(folder_ / kBootFile, now); !written)
    spdlog::warn("leases that were told before a power cut may be forgotten: {}", written.error().message());
  return known && uptime() < time();
}

void LeaseGrace::begin(const std::map<std::string, std::shared_ptr<Export>>& exports,
                       const std::function<SessionNumber()>& new_number) {
  const std::lock_guard lock(mutex_);
  std::error_code ended;
  for (std::filesystem::directory_iterator item(folder_, ended), end; !ended && item != end;
       item.increment(ended)) {
    const std::string session = item->path().filename();
    const auto export_name = read_state_file(item->path());
    if (session == kBootFile || !export_name || !*export_name) continue;
    const auto served = exports.find(**export_name);
    entries_[session].stored = true;
    await(session, served == exports.end() ? nullptr : served->second.get(), new_number());
  }
  if (anybody_awaited_) await(kAnybody, nullptr, new_number());
  if (!awaited_.empty())
    spdlog::info("after an unclean end changes wait until {} mounts are back, for {} s at most",
                 awaited_.size(), to_seconds(time()));
}

void LeaseGrace::await(const std::string& session, const Export* exported, SessionNumber number) {
  awaited_[session] = number;
  leases_.await(number, exported);
}

Duration LeaseGrace::remaining(const Export& exported, TimePoint now) const {
  if (now >= ends_ || !leases_.awaits(exported)) return Duration::zero();
  return ends_ - now;
}

bool LeaseGrace::waits() const {
  const std::lock_guard lock(mutex_);
  return !awaited_.empty();
}

void LeaseGrace::attached(const std::string& session, const Export& exported, bool leases) {
  std::optional<SessionNumber> awaited;
  bool last = false;
  {
    const std::lock_guard disk(disk_mutex_);
    bool store = false;
    {
      const std::lock_guard lock(mutex_);
      Entry& entry = entries_[session];
      ++entry.attaches;
      store = leases && !std::exchange(entry.stored, entry.stored || leases);
      if (const auto item = awaited_.extract(session)) awaited = item.mapped();
      last = awaited && awaited_.empty();
    }
    if (store && !store_unsynced(folder_ / session, exported.name()))
      spdlog::warn("what a mount may trust will not outlive a crash: cannot write {}",
                   (folder_ / session).string());
  }
  if (awaited) leases_.end(*awaited);
  if (last) spdlog::info("all mounts are back: changes wait no longer");
}

std::uint64_t LeaseGrace::attaches(const std::string& session) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(session);
  return found == entries_.end() ? 0 : found->second.attaches;
}

void LeaseGrace::over(const std::string& session, std::uint64_t as_of) {
  const std::lock_guard disk(disk_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found == entries_.end() || found->second.attaches != as_of || awaited_.contains(session)) return;
    const bool stored = found->second.stored;
    entries_.erase(found);
    if (!stored) return;
  }
  (void)::unlink((folder_ / session).c_str());
}

void LeaseGrace::housekeep(TimePoint now) {
  if (now < ends_) return;
  std::map<std::string, SessionNumber> late;
  {
    const std::lock_guard lock(mutex_);
    late.swap(awaited_);
  }
  for (const auto& [session, number] : late) {
    leases_.end(number);
    over(session);
  }
}

}  // namespace tusk::server
