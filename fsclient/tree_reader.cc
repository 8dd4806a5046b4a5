#include "fsclient/tree_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tusk::client {
namespace {

constexpr std::size_t kFilesMax = 4096;  // found and waiting, so that memory has a bound
constexpr std::size_t kReadBytes = 1024 * 1024;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

TreeReader::TreeReader(std::vector<std::filesystem::path> roots) {
  threads_.emplace_back([this, roots = std::move(roots)] { find_all(roots); });
  for (unsigned i = 0; i < kReaders; ++i) threads_.emplace_back([this] { read_files(); });
}

TreeReader::~TreeReader() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

TreeReader::Progress TreeReader::progress() const {
  const std::lock_guard lock(mutex_);
  Progress progress = progress_;
  progress.bytes_read = bytes_read_;
  return progress;
}

bool TreeReader::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return reading_ == 0; });
}

// ---------------------------------------------------------------- finding

void TreeReader::find_all(const std::vector<std::filesystem::path>& roots) {
  for (const auto& root : roots) {
    struct stat st {};
    if (::lstat(root.c_str(), &st) != 0)
      note_failure(root);
    else if (S_ISDIR(st.st_mode))
      find_below(root, st.st_dev);
    else if (S_ISREG(st.st_mode))
      add(root, static_cast<ByteCount>(st.st_size));
  }
  const std::lock_guard lock(mutex_);
  progress_.all_found = true;
  changed_.notify_all();
}

// Folders wait on a stack of our own: a tree can be deeper than a thread's.
void TreeReader::find_below(const std::filesystem::path& top, dev_t device) {
  std::vector<std::filesystem::path> folders{top};
  while (!folders.empty() && !stopping_) {
    const std::filesystem::path path = std::move(folders.back());
    folders.pop_back();
    const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
    if (!folder) {
      note_failure(path);
      continue;
    }
    const auto first_below = static_cast<std::ptrdiff_t>(folders.size());
    while (const dirent* entry = ::readdir(folder.get())) {
      const std::string_view name = entry->d_name;
      struct stat st {};
      if (name == "." || name == ".." || stopping_) continue;
      if (::fstatat(::dirfd(folder.get()), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone
      if (st.st_dev != device) continue;
      if (S_ISDIR(st.st_mode)) folders.push_back(path / name);
      if (S_ISREG(st.st_mode)) add(path / name, static_cast<ByteCount>(st.st_size));
    }
    std::reverse(folders.begin() + first_below, folders.end());  // as they are listed
  }
}

void TreeReader::add(std::filesystem::path path, ByteCount size) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return files_.size() < kFilesMax || stopping_; });
  ++progress_.files_found;
  progress_.bytes_found += size;
  files_.push_back({std::move(path), size});
  changed_.notify_all();
}

// ---------------------------------------------------------------- reading

void TreeReader::read_files() {
  for (;;) {
    File file;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !files_.empty() || progress_.all_found || stopping_; });
      if (files_.empty() || stopping_) {
        --reading_;
        return changed_.notify_all();
      }
      file = std::move(files_.front());
      files_.pop_front();
      changed_.notify_all();
    }
    read_file(file);
    const std::lock_guard lock(mutex_);
    ++progress_.files_read;
  }
}

void TreeReader::read_file(const File& file) {
  const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return note_failure(file.path);
  // What the kernel has of it would not be seen by the mount's daemon; and nobody needs it in memory
  // afterwards.
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  thread_local std::vector<std::byte> buffer(kReadBytes);
  while (!stopping_) {
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) note_failure(file.path);
    if (size <= 0) break;
    bytes_read_ += static_cast<ByteCount>(size);
  }
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

// Of the last system call.
void TreeReader::note_failure(const std::filesystem::path& path) {
  const std::string why = path.string() + ": " + std::strerror(errno);
  const std::lock_guard lock(mutex_);
  ++progress_.failures;
  progress_.last_failure = why;
}

}  // namespace tusk::client
