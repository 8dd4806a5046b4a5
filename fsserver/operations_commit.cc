// COMMIT: what was sent is on the disk before the answer.
#include "fsserver/operations.h"

namespace tusk::server::ops {
namespace {

constexpr Cost kCommitCost = 100;  // however long the disk takes: meanwhile the processor is others'

// Whatever anybody has changed. Each session is told once of a failure.
Result<void> commit_all(const Call& call) {
  if (call.attachment().read_only) return fail(from_errno(EROFS), "a mount that changes nothing");
  auto result = call.session().commits().all(call.answered_under().failures);
  if (!result) call.session().note_told();
  return result;
}

Result<SharedFd> to_commit(const Call& call) {
  const auto& request = call.request().commit();
  if (request.directory()) {
    TUSK_ASSIGN(const SharedFd node, call.node(request.handle()));
    TUSK_ASSIGN(Fd directory, reopen(*node, O_RDONLY | O_DIRECTORY));
    return share(std::move(directory));
  }
  if (const auto open = call.session().find(request.open_id()); open && open->handle == request.handle())
    return open->fd;
  const std::uint64_t lost = call.session().find(request.open_id()) ? 0 : request.open_id();
  auto file = call.file(request.handle(), 0, O_RDONLY);
  if (!file && file.error().code == from_errno(EACCES)) file = call.file(request.handle(), lost, O_WRONLY);
  if (!file) return std::unexpected(std::move(file).error());
  return file->fd;
}

}  // namespace

Result<void> commit(Call& call) {
  this_turn().spend(kCommitCost);
  const auto& request = call.request().commit();
  if (request.all()) {
    TUSK_TRY(commit_all(call));
  } else {
    TUSK_ASSIGN(const SharedFd fd, to_commit(call));
    // The rest of what it lost is for a COMMIT of all to tell.
    TUSK_TRY(call.session().commits().file(*fd, request.data_only(), call.answered_under().failures));
  }
  call.reply.mutable_commit()->set_boot_id(std::string(call.boot_id()));
  return {};
}

}  // namespace tusk::server::ops
