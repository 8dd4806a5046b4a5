// Changes that were answered before the server's machine restarted, made again (docs/PROTOCOL.md, "Redo"):
// any of them may have reached the disk, and others may have changed things since.
#include <sys/stat.h>

#include <cerrno>

#include "fsserver/operations.h"
#include "proto/io/clock.h"

namespace tusk::server::ops {
namespace {

using Request = schema::Request;

// Whose bytes or attributes an entry changes; "": those of none.
std::string_view changed_node(const Request& request) {
  switch (request.operation_case()) {
    case Request::kSetattr:
      return request.setattr().handle();
    case Request::kWrite:
      return request.write().handle();
    case Request::kSetxattr:
      return request.setxattr().handle();
    case Request::kRemovexattr:
      return request.removexattr().handle();
    case Request::kAllocate:
      return request.allocate().handle();
    default:
      return {};
  }
}

// The node that an entry is about, whose change time it moves; "": none that was there before.
std::string_view subject_of(const Request& request) {
  switch (request.operation_case()) {
    case Request::kLink:
      return request.link().handle();
    case Request::kRename:
      return request.rename().expected();
    case Request::kRemove:
      return request.remove().expected().empty() ? request.node() : request.remove().expected();
    default:
      return changed_node(request);
  }
}

// A file, by somebody else, since this process began to serve. Its change time says so when the redo comes to
// the file first, and only then: the redo moves it, too. A time that is still to come was stamped by a clock
// that went wrong. Kernels before Linux 6.13 stamp a change with the last timer tick: what changes within one
// tick of the beginning is not noticed.
bool changed_by_others(const Call& call, std::string_view handle) {
  LogStream::Visited& visited = *call.redo()->visited;
  if (const auto known = visited.changed_by_others(handle)) return *known;
  const auto node = call.node(handle);
  const auto status = node ? status_of(**node) : std::unexpected(node.error());
  if (!status || !S_ISREG(status->stx_mode)) return false;
  const std::int64_t ctime_ns = status->stx_ctime.tv_sec * 1'000'000'000 + status->stx_ctime.tv_nsec;
  const auto now_ns = static_cast<std::int64_t>(io::unix_nanoseconds());
  const bool changed = ctime_ns > call.log()->began_ns && ctime_ns <= now_ns;
  visited.note(handle, changed);
  return changed;
}

// What a MAKE_NODE has made is on the disk, wherever it is by now.
bool is_there(Call& call) {
  if (call.request().node().empty()) return false;
  const auto node = call.node(call.request().node());
  const auto status = node ? status_of(**node) : std::unexpected(node.error());
  if (!status || status->stx_nlink == 0) return false;
  *call.reply.mutable_node()->mutable_node() = call.node_of({*node, *status, call.request().node()});
  return true;
}

bool is_linked(Call& call) {
  const auto& request = call.request().link();
  const auto parent = call.node(request.new_parent());
  if (!parent) return false;
  const auto found = call.nodes().lookup(*parent, request.new_parent(), request.new_name());
  if (!found || found->handle != request.handle()) return false;
  *call.reply.mutable_node()->mutable_node() = call.node_of(*found);
  return true;
}

}  // namespace

Result<void> redo(Call& call, const Operation& operation) {
  const Request& request = call.request();
  if (request.has_make_node() && is_there(call)) return {};
  if (const std::string_view handle = subject_of(request); !handle.empty()) {
    if (changed_by_others(call, handle) && !changed_node(request).empty())
      return fail(from_errno(ECANCELED), "somebody else has changed the file since the server is back");
  }
  if (const std::string& replaced = request.rename().replaced(); !replaced.empty())
    (void)changed_by_others(call, replaced);  // noted, before it is replaced: it may live on by another name
  const Result<void> done = operation.run(call);
  if (request.has_make_node() && S_ISREG(request.make_node().mode()) && call.reply.has_node())
    call.redo()->visited->note(call.reply.node().node().handle(), false);
  if (done) return done;
  if (done.error().code == from_errno(EEXIST) && request.has_link() && is_linked(call)) return {};
  const bool absent = done.error().code == from_errno(ENODATA) && request.has_removexattr();
  if (absent) (void)call.reply.mutable_empty();
  if (done.error().code == from_errno(EEXIST))
    return fail(from_errno(ECANCELED), "another file has the name by now");
  return absent ? Result<void>() : done;
}

}  // namespace tusk::server::ops
