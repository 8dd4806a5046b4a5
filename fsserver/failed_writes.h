// Files of which a WRITE in a session's LOGs could not be done: those after it, which the client sent before
// it knew of that, are not done either. Otherwise a disk that has no room for a large piece and has some for
// the last, smaller one would make a file as long as the whole and with a hole in it, and who compares sizes
// would take it for complete. Not thread-safe: used by the LOG whose turn it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "proto/schema/tusk.pb.h"

namespace tusk::server {

constexpr std::size_t kFailedWritesMax = 16'384;  // files of a session: what a client has on its way in LOGs

class FailedWrites {
 public:
  // A WRITE to the file in the LOG of this number was answered so, which is an error. Not remembered: when
  // there are too many; that there is no such file or open (ESTALE, EBADF); what is longer than any handle.
  void note(const std::string& handle, std::uint64_t log, const schema::Reply& answer);
  // The client knows of those in LOGs up to this one: what it writes from now on it means to.
  void forget(std::uint64_t answered);
  // What a WRITE to the file is to be answered with; nullptr: it is to be done.
  [[nodiscard]] const schema::Reply* find(const std::string& handle) const;

 private:
  struct Failure {
    std::uint64_t log;
    schema::Reply answer;
  };
  std::unordered_map<std::string, Failure> files_;
};

}  // namespace tusk::server
