#include "fsserver/name_memory.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include "fsserver/state_file.h"
#include "proto/crypto/key_file.h"

namespace tusk::server {
namespace {

constexpr std::size_t kSizesBytes = 6;

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

void visit_records(std::string_view text, const NameMemory::Visitor& visit) {
  while (text.size() >= kSizesBytes) {
    const std::size_t handle = size_at(text, 0), parent = size_at(text, 2), name = size_at(text, 4);
    if (text.size() < kSizesBytes + handle + parent + name) return;
    text.remove_prefix(kSizesBytes);
    visit(text.substr(0, handle), text.substr(handle, parent), text.substr(handle + parent, name));
    text.remove_prefix(handle + parent + name);
  }
}

Result<Fd> open_for_appending(const std::filesystem::path& file) {
  Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail_errno(file.string());
  return fd;
}

}  // namespace

Result<std::unique_ptr<NameMemory>> NameMemory::open(std::filesystem::path file, const Visitor& visit,
                                                     std::size_t bytes_max) {
  TUSK_TRY(crypto::prepare_private_directory(file.parent_path()));
  TUSK_ASSIGN(const auto text, read_state_file(file, bytes_max));
  if (text) visit_records(*text, visit);
  std::unique_ptr<NameMemory> memory(new NameMemory(std::move(file), bytes_max));
  memory->size_ = text ? text->size() : 0;
  TUSK_ASSIGN(memory->fd_, open_for_appending(memory->file_));
  return memory;
}

bool NameMemory::worn() const {
  const std::lock_guard lock(mutex_);
  return full_ && !given_up_;
}

Result<void> NameMemory::rewrite(const std::function<void(const Visitor&)>& visit_all) {
  const std::lock_guard writing(writing_);
  {
    const std::lock_guard lock(mutex_);
    pending_.clear();
    size_ = 0;
    full_ = false;
  }
  std::string text;
  visit_all([&](std::string_view handle, std::string_view parent, std::string_view name) {
    const std::string record = to_record(handle, parent, name);
    if (text.size() + record.size() <= bytes_max_) text += record;
  });
  auto written = write_state_file(file_, text);
  if (written) {
    auto opened = open_for_appending(file_);
    if (opened) fd_ = std::move(*opened);
    if (!opened) written = std::unexpected(opened.error());
  }
  const std::lock_guard lock(mutex_);
  size_ += text.size();
  // Else it would be rewritten again and again for a few names.
  if (!written || text.size() > bytes_max_ / 4 * 3) given_up_ = true;
  return written;
}

void NameMemory::remember(std::string_view handle, std::string_view parent, std::string_view name) {
  const std::string record = to_record(handle, parent, name);
  const std::lock_guard lock(mutex_);
  if (size_ + record.size() > bytes_max_) {
    if (given_up_ && !std::exchange(full_, true))
      spdlog::warn("{} is full: mounts lose files first seen from now on when tuskd restarts",
                   file_.string());
    full_ = true;
    return;
  }
  size_ += record.size();
  pending_ += record;
}

// All of it or nothing: behind half a record nothing could be read.
Result<void> NameMemory::append(std::string_view text) {
  const off_t before = ::lseek(fd_.number(), 0, SEEK_END);
  if (before < 0) return fail_errno("seek");
  while (!text.empty()) {
    const ssize_t size = ::write(fd_.number(), text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const auto failed = fail_errno("write");
      if (::ftruncate(fd_.number(), before) != 0) return fail_errno("truncate");
      return failed;
    }
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

void NameMemory::flush() {
  const std::lock_guard writing(writing_);
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text.swap(pending_);
  }
  const auto written = append(text);
  if (written) {
    failing_ = false;
    return;
  }
  if (!std::exchange(failing_, true))
    spdlog::warn("{}: {}; tried again every second", file_.string(), written.error().message());
  const std::lock_guard lock(mutex_);
  pending_.insert(0, text);
}

}  // namespace tusk::server
