#include "fsserver/lease_grace.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "fsserver/state_file.h"
#include "proto/io/clock.h"

namespace tusk::server {
namespace {

const std::string kBootFile = "boot";
const std::string kServerPrefix = "server-";
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

void remove(const std::vector<std::filesystem::path>& notes) {
  for (const std::filesystem::path& note : notes) {
    (void)::unlink(note.c_str());
    const std::filesystem::path folder = note.parent_path();
    if (folder.filename().string().starts_with(kServerPrefix)) (void)::rmdir(folder.c_str());
  }
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
  begin_own_folder();
  anybody_awaited_ = another_boot_just_before();
}

// Between making it and locking it, another server may take it for one that was left, and remove it.
void LeaseGrace::begin_own_folder() {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    own_ = folder_ / (kServerPrefix + unique_suffix());
    if (::mkdir(own_.c_str(), 0700) != 0) break;
    held_ = Fd(::open(own_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held_.valid() && ::flock(held_.number(), LOCK_EX | LOCK_NB) == 0 && is_at(held_, own_)) return;
  }
  spdlog::warn("what mounts may trust will not outlive a crash: cannot make {}", own_.string());
}

std::vector<std::filesystem::path> LeaseGrace::notes_left() const {
  std::vector<std::filesystem::path> notes;
  std::error_code ended;
  for (std::filesystem::directory_iterator item(folder_, ended), end; !ended && item != end;
       item.increment(ended)) {
    std::error_code ignored;
    if (!item->is_directory(ignored)) {  // of a server before there were folders
      if (item->path().filename() != kBootFile) notes.push_back(item->path());
      continue;
    }
    const Fd folder(::open(item->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || ::flock(folder.number(), LOCK_EX | LOCK_NB) != 0) continue;  // its server runs
    for (std::filesystem::directory_iterator note(item->path(), ignored), last; !ignored && note != last;
         note.increment(ignored))
      notes.push_back(note->path());
    (void)::rmdir(item->path().c_str());  // if it is empty
  }
  return notes;
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
  for (const std::filesystem::path& note : notes_left()) {
    const std::string session = note.filename();
    const auto export_name = read_state_file(note);
    if (!export_name || !*export_name) continue;
    const auto served = exports.find(**export_name);
    auto& of_before = entries_[session].of_before;
    of_before.push_back(note);
    // Noted by two that have died: on any export.
    if (const auto twice = awaited_.find(session); twice != awaited_.end()) leases_.end(twice->second);
    const bool known = served != exports.end() && of_before.size() == 1;
    await(session, known ? served->second.get() : nullptr, new_number());
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
    std::vector<std::filesystem::path> of_before;
    {
      const std::lock_guard lock(mutex_);
      Entry& entry = entries_[session];
      entry.attaches = ++attaches_;
      if (leases || entry.stored) of_before.swap(entry.of_before);
      store = leases && !std::exchange(entry.stored, entry.stored || leases);
      if (const auto item = awaited_.extract(session)) awaited = item.mapped();
      last = awaited && awaited_.empty();
    }
    if (store && !store_unsynced(own_ / session, exported.name()))
      spdlog::warn("what a mount may trust will not outlive a crash: cannot write {}",
                   (own_ / session).string());
    remove(of_before);  // this server's own note has taken their place
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
  std::vector<std::filesystem::path> notes;
  const std::lock_guard disk(disk_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found == entries_.end() || found->second.attaches != as_of || awaited_.contains(session)) return;
    notes = std::move(found->second.of_before);
    if (found->second.stored) notes.push_back(own_ / session);
    entries_.erase(found);
  }
  remove(notes);
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
