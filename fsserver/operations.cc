#include "fsserver/operations.h"

#include <fcntl.h>

#include <algorithm>

namespace tusk::server {
namespace {

using Request = schema::Request;
using Effect = Operation::Effect;

constexpr Operation kOperations[] = {
    {Request::kLookup, "lookup", Effect::kReads, Lane::kMetadata, ops::lookup},
    {Request::kGetattr, "getattr", Effect::kReads, Lane::kMetadata, ops::getattr},
    {Request::kSetattr, "setattr", Effect::kMutates, Lane::kMetadata, ops::setattr},
    {Request::kReaddir, "readdir", Effect::kReads, Lane::kWalk, ops::readdir},
    {Request::kOpen, "open", Effect::kMutatesIfOpenedForWriting, Lane::kMetadata, ops::open},
    {Request::kCreate, "create", Effect::kMutates, Lane::kMetadata, ops::create},
    {Request::kRead, "read", Effect::kReads, Lane::kData, ops::read},
    {Request::kWrite, "write", Effect::kMutates, Lane::kData, ops::write},
    // Nothing to write can exist on a read-only export, so a commit there is harmless.
    {Request::kCommit, "commit", Effect::kReads, Lane::kSlow, ops::commit},
    {Request::kClose, "close", Effect::kReads, Lane::kMetadata, ops::close},
    {Request::kMakeNode, "make_node", Effect::kMutates, Lane::kMetadata, ops::make_node},
    {Request::kRemove, "remove", Effect::kMutates, Lane::kMetadata, ops::remove},
    {Request::kRename, "rename", Effect::kMutates, Lane::kMetadata, ops::rename},
    {Request::kLink, "link", Effect::kMutates, Lane::kMetadata, ops::link},
    {Request::kReadlink, "readlink", Effect::kReads, Lane::kMetadata, ops::readlink},
    {Request::kStatfs, "statfs", Effect::kReads, Lane::kMetadata, ops::statfs},
    {Request::kGetxattr, "getxattr", Effect::kReads, Lane::kMetadata, ops::getxattr},
    {Request::kSetxattr, "setxattr", Effect::kMutates, Lane::kMetadata, ops::setxattr},
    {Request::kListxattr, "listxattr", Effect::kReads, Lane::kMetadata, ops::listxattr},
    {Request::kRemovexattr, "removexattr", Effect::kMutates, Lane::kMetadata, ops::removexattr},
    {Request::kAllocate, "allocate", Effect::kMutates, Lane::kSlow, ops::allocate},
    {Request::kSeek, "seek", Effect::kReads, Lane::kMetadata, ops::seek},
    {Request::kCopyRange, "copy_range", Effect::kMutates, Lane::kSlow, ops::copy_range},
    {Request::kWalk, "walk", Effect::kReads, Lane::kWalk, ops::walk},
    {Request::kReadFiles, "read_files", Effect::kReads, Lane::kWalk, ops::read_files},
    {Request::kLock, "lock", Effect::kReads, Lane::kMetadata, ops::lock},
    {Request::kAcquire, "acquire", Effect::kReads, Lane::kMetadata, ops::acquire},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(Request::OperationCase operation) {
  const auto* const found = std::ranges::find(kOperations, operation, &Operation::operation);
  return found == std::end(kOperations) ? nullptr : found;
}

bool mutates(const Operation& operation, const Request& request) {
  switch (operation.effect) {
    case Effect::kReads:
      return false;
    case Effect::kMutates:
      return true;
    case Effect::kMutatesIfOpenedForWriting: {
      const std::uint32_t flags = request.open().flags();
      return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    }
  }
  __builtin_unreachable();
}

bool runs_once(const Operation& operation) {
  return operation.effect != Effect::kReads || operation.operation == Request::kCommit;
}

ByteCount reply_body_bytes(const Request& request) {
  switch (request.operation_case()) {
    case Request::kRead:
      return std::min(request.read().length(), kReadBytesMax);
    case Request::kOpen:
      return std::min(request.open().read_ahead(), kReadBytesMax);
    case Request::kWalk:
      return std::min(request.walk().limit_bytes(), kWalkBytesMax);
    case Request::kReadFiles:
      return std::min(request.read_files().limit_bytes(), kReadBytesMax);
    default:
      return 0;
  }
}

ByteCount reserved_body_bytes(const Request& request) {
  const bool makes_more = request.has_walk() && request.walk().known_size() > 0;
  return makes_more ? kWalkBytesMax : reply_body_bytes(request);
}

}  // namespace tusk::server
