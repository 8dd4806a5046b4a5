// What the server keeps for one mount while its connections come and go: open files, remembered
// replies, directory streams. (Its locks are in the LockTable, under the session's number.)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fsserver/attributes.h"
#include "fsserver/export.h"
#include "fsserver/fd.h"
#include "fsserver/lock_table.h"
#include "fsserver/quota.h"
#include "fsserver/reply_memory.h"
#include "proto/base/result.h"

namespace tusk::server {

constexpr std::size_t kSessionIdBytes = 16;
constexpr std::size_t kDirectoryStreamsMax = 32;  // per session, held open between two pages

struct OpenFile {
  SharedFd fd;
  int access = 0;  // O_RDONLY, O_WRONLY or O_RDWR
  std::string handle;
  FileKey key;
  Quota::Place place;
  std::mutex position;  // for the calls that use the descriptor's own offset: append and seek

  [[nodiscard]] bool readable() const { return access != O_WRONLY; }
  [[nodiscard]] bool writable() const { return access != O_RDONLY; }
};

// Thread-safe.
class Session {
 public:
  // `number` is unique in the process. `descriptors`: what the client may have open in all its sessions.
  Session(std::uint64_t number, std::shared_ptr<Export> exported, std::shared_ptr<Quota> descriptors);

  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] Export& exported() const { return *export_; }
  [[nodiscard]] const std::shared_ptr<Quota>& descriptors() const { return descriptors_; }
  [[nodiscard]] ReplyMemory& replies() { return replies_; }

  // The session is over: a call still running must leave nothing behind that outlives it.
  void end() { ended_ = true; }
  [[nodiscard]] bool ended() const { return ended_; }

  // The new file's open_id, never 0 and never one of an earlier server's.
  [[nodiscard]] std::uint64_t add(std::shared_ptr<OpenFile> file);
  // nullptr when there is none (any more).
  [[nodiscard]] std::shared_ptr<OpenFile> find(std::uint64_t open_id) const;
  // `last`: nothing else of this session has that file open.
  struct Closed {
    std::shared_ptr<OpenFile> file;
    bool last = false;
  };
  [[nodiscard]] Closed close(std::uint64_t open_id);
  [[nodiscard]] std::size_t open_files() const;

  // A directory opened for reading whose next entry is the one at `cookie`, or nothing: then the caller
  // opens it and seeks.
  [[nodiscard]] Fd take_stream(std::string_view handle, std::uint64_t cookie);
  void keep_stream(std::string_view handle, std::uint64_t cookie, Fd fd);

 private:
  struct Stream {
    std::string handle;
    std::uint64_t cookie;
    Fd fd;
    Quota::Place place;
  };
  const std::uint64_t number_;
  const std::shared_ptr<Export> export_;
  const std::shared_ptr<Quota> descriptors_;
  ReplyMemory replies_;
  std::atomic<bool> ended_{false};

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<OpenFile>> files_;
  std::unordered_map<FileKey, std::size_t> opens_of_;
  std::uint64_t next_open_id_;
  std::list<Stream> streams_;  // least recently used first
};

}  // namespace tusk::server
