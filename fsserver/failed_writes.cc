#include "fsserver/failed_writes.h"

#include <cerrno>

#include "fsserver/handle_codec.h"
#include "proto/base/result.h"

namespace tusk::server {

void FailedWrites::note(const std::string& handle, std::uint64_t log, const schema::Reply& answer) {
  const auto error = static_cast<ErrorCode>(answer.error());
  if (error == from_errno(ESTALE) || error == from_errno(EBADF)) return;  // there was nothing to write to
  if (handle.size() > kHandleBytesMax || files_.size() >= kFailedWritesMax) return;
  files_.try_emplace(handle, log, answer);
}

void FailedWrites::forget(std::uint64_t answered) {
  std::erase_if(files_, [answered](const auto& file) { return file.second.log <= answered; });
}

const schema::Reply* FailedWrites::find(const std::string& handle) const {
  const auto found = files_.find(handle);
  return found == files_.end() ? nullptr : &found->second.answer;
}

}  // namespace tusk::server
