#include "fsserver/name_memory.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fsserver/state_file.h"
#include "proto/crypto/key_file.h"

namespace tusk::server {
namespace {

constexpr std::size_t kSizesBytes = 6;

// A disk that is full stays so for a while, and each try writes all that waits.
constexpr Duration kPauseMin = 1s;
constexpr Duration kPauseMax = 60s;

void put_size(std::string& out, std::size_t size) {
  out += static_cast<char>(size & 0xff);
  out += static_cast<char>(size >> 8);
}

std::size_t size_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]) | std::size_t{static_cast<unsigned char>(text[at + 1])} << 8;
}

std::string to_record(std::string_view handle, std::string_view parent, std::string_view name) {
  std::string record;
  for (const std::string_view part : {handle, parent, name}) put_size(record, part.size());
  for (const std::string_view part : {handle, parent, name}) record += part;
  return record;
}

// Returns how many bytes the whole records are.
std::size_t visit_records(std::string_view text, const NameMemory::Visitor& visit) {
  const std::size_t all = text.size();
  while (text.size() >= kSizesBytes) {
    const std::size_t handle = size_at(text, 0), parent = size_at(text, 2), name = size_at(text, 4);
    if (text.size() < kSizesBytes + handle + parent + name) break;
    text.remove_prefix(kSizesBytes);
    visit(text.substr(0, handle), text.substr(handle, parent), text.substr(handle + parent, name));
    text.remove_prefix(handle + parent + name);
  }
  return all - text.size();
}

Result<Fd> open_for_appending(const std::filesystem::path& file) {
  Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail_errno(file.string());
  return fd;
}

Result<std::string> read_at_most(const Fd& fd, std::size_t bytes_max) {
  std::string text;
  char buffer[64 * 1024];
  while (text.size() < bytes_max) {
    const std::size_t wanted = std::min(sizeof buffer, bytes_max - text.size());
    const ssize_t size = ::pread(fd.number(), buffer, wanted, static_cast<off_t>(text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail_errno("read");
    if (size == 0) break;
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

bool NameMemory::Patience::note_failure(TimePoint now) {
  const bool first = pause_ == Duration{};
  pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
  next_ = now + pause_;
  return first;
}

Result<std::unique_ptr<NameMemory>> NameMemory::open(std::filesystem::path file, const Visitor& visit,
                                                     std::size_t bytes_max) {
  TUSK_TRY(crypto::prepare_private_directory(file.parent_path()));
  std::unique_ptr<NameMemory> memory(new NameMemory(std::move(file), bytes_max));
  TUSK_ASSIGN(memory->fd_, open_for_appending(memory->file_));
  TUSK_ASSIGN(const std::string text, read_at_most(memory->fd_, bytes_max));
  memory->size_ = visit_records(text, visit);
  if (text.size() > memory->size_ || text.size() == bytes_max)
    memory->tail_ = static_cast<off_t>(memory->size_);
  return memory;
}

NameMemory::~NameMemory() {
  appending_.note_success();  // now or never
  flush({});
}

bool NameMemory::worn(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return full_ && rewriting_.due(now);
}

bool NameMemory::pending() const {
  const std::lock_guard lock(mutex_);
  return full_ || !pending_.empty();
}

// A quarter stays free: for what is remembered meanwhile, and so that it is not soon full again.
Result<void> NameMemory::rewrite(TimePoint now, const std::function<void(const Visitor&)>& visit_all) {
  const std::lock_guard writing(writing_);
  const std::size_t text_max = bytes_max_ / 4 * 3;
  std::string before;
  std::size_t file_size = 0;
  {
    const std::lock_guard lock(mutex_);
    before.swap(pending_);
    file_size = size_ - before.size();
    size_ = text_max;
    full_ = false;
  }
  std::string text;
  bool left_out = false;
  visit_all([&](std::string_view handle, std::string_view parent, std::string_view name) {
    std::string record = to_record(handle, parent, name);
    left_out |= text.size() + record.size() > text_max;
    if (left_out) return;
    std::ranges::reverse(record);
    text += record;
  });
  std::ranges::reverse(text);  // and with it each record, once more: the oldest is the first
  auto written = write_open_state_file(file_, text);

  const std::lock_guard lock(mutex_);
  if (!written) {
    (void)rewriting_.note_failure(now);
    const std::string meanwhile = std::exchange(pending_, std::move(before));
    size_ = file_size + pending_.size();
    (void)visit_records(meanwhile, [&](std::string_view handle, std::string_view parent,
                                       std::string_view name) { add(to_record(handle, parent, name)); });
    full_ = true;
    return std::unexpected(written.error());
  }
  fd_ = std::move(*written);
  tail_.reset();
  size_ = text.size() + pending_.size();
  appending_.note_success();
  rewriting_.note_success();
  if (left_out && !std::exchange(told_full_, true))
    spdlog::warn("{} is full: when tuskd restarts, mounts lose the files that were used longest ago",
                 file_.string());
  return {};
}

void NameMemory::add(std::string_view record) {
  if (size_ + record.size() > bytes_max_) {
    full_ = true;
    return;
  }
  size_ += record.size();
  pending_ += record;
}

void NameMemory::remember(std::string_view handle, std::string_view parent, std::string_view name) {
  const std::string record = to_record(handle, parent, name);
  const std::lock_guard lock(mutex_);
  add(record);
}

// Behind half a record nothing could be read.
Result<void> NameMemory::cut_tail() {
  if (!tail_) return {};
  if (::ftruncate(fd_.number(), *tail_) != 0) return fail_errno("truncate");
  tail_.reset();
  return {};
}

// All of it or nothing.
Result<void> NameMemory::append(std::string_view text) {
  TUSK_TRY(cut_tail());
  const off_t before = ::lseek(fd_.number(), 0, SEEK_END);
  if (before < 0) return fail_errno("seek");
  while (!text.empty()) {
    const ssize_t size = ::write(fd_.number(), text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const auto failed = fail_errno("write");
      tail_ = before;
      (void)cut_tail();  // else before the next time
      return failed;
    }
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

void NameMemory::flush(TimePoint now) {
  const std::lock_guard writing(writing_);
  if (!appending_.due(now)) return;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text.swap(pending_);
  }
  if (text.empty() && !tail_) return;
  const auto written = append(text);
  if (written) return appending_.note_success();
  if (appending_.note_failure(now))
    spdlog::warn("{}: {}; tried again from time to time", file_.string(), written.error().message());
  const std::lock_guard lock(mutex_);
  pending_.insert(0, text);
}

}  // namespace tusk::server
