// Reads all files below some paths to their end, several at once, and forgets what it read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/strong_int.h"

namespace tusk::client {

class TreeReader {
 public:
  // So many files at once: few are enough for the line where files are large, and where they are small most
  // of a file's time is waiting.
  static constexpr unsigned kReaders = 8;

  // Begins. Symbolic links are not followed, what is mounted below is left out.
  explicit TreeReader(std::vector<std::filesystem::path> roots);
  // Gives up what is not read yet.
  ~TreeReader();
  TreeReader(const TreeReader&) = delete;
  TreeReader& operator=(const TreeReader&) = delete;

  struct Progress {
    std::uint64_t files_found = 0, files_read = 0;
    ByteCount bytes_found = 0, bytes_read = 0;
    bool all_found = false;  // the numbers of what was found grow no more
    std::uint64_t failures = 0;
    std::string last_failure;
  };
  [[nodiscard]] Progress progress() const;
  // True: all is read, or has failed. False after `limit`.
  bool wait(std::chrono::milliseconds limit);

 private:
  struct File {
    std::filesystem::path path;
    ByteCount size;
  };

  void find_all(const std::vector<std::filesystem::path>& roots);
  void find_below(const std::filesystem::path& folder, dev_t device);
  void add(std::filesystem::path path, ByteCount size);
  void read_files();
  void read_file(const File& file);
  void note_failure(const std::filesystem::path& path);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<File> files_;  // found and not begun, at most kFilesMax
  Progress progress_;
  unsigned reading_ = kReaders;
  std::atomic<ByteCount> bytes_read_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tusk::client
