// The operations of the schema on an export, one function each; and the table that says of each what the
// dispatcher must know before it runs.
//
// An operation resolves handles, makes its system calls and fills call.reply. It runs on a worker thread
// that already acts as the right user. It does not check read-only exports, repeats or cancellation:
// FileService has, for all of them.
#pragma once

#include <span>
#include <string_view>

#include "fsserver/call.h"
#include "fsserver/worker_pool.h"
#include "proto/base/result.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

struct Operation {
  enum class Effect : std::uint8_t {
    kReads,
    kMutates,
    kMutatesIfOpenedForWriting,  // OPEN: its flags decide
  };
  schema::Request::OperationCase operation;
  std::string_view name;
  Effect effect;
  Lane lane;
  Result<void> (*run)(Call& call);
};

// Every operation but attach, detach and log: the first two are about the session and not about files, the
// last one is made of others.
[[nodiscard]] std::span<const Operation> operations();
// nullptr: not known.
[[nodiscard]] const Operation* find_operation(schema::Request::OperationCase operation);

[[nodiscard]] bool mutates(const Operation& operation, const schema::Request& request);
// True: a repeat gets the first answer instead of a second run, which would do something again, lose an
// open file, or not tell the error that fsync tells once. What only looks is run again: its answers may be
// large.
[[nodiscard]] bool runs_once(const Operation& operation);
// Bytes of bulk reply the request may make: for the budget.
[[nodiscard]] ByteCount reply_body_bytes(const schema::Request& request);
// And while it is made: a WALK makes listings that it need not send.
[[nodiscard]] ByteCount reserved_body_bytes(const schema::Request& request);

namespace ops {
// operations_metadata.cc
Result<void> lookup(Call& call);
// For ATTACH: the root's attributes under a lease and, if they are few, the names in it.
void tell_root(Call& call, schema::AttachReply& attached);
Result<void> getattr(Call& call);
Result<void> setattr(Call& call);
Result<void> readlink(Call& call);
Result<void> statfs(Call& call);
// operations_directory.cc
Result<void> readdir(Call& call);
// operations_walk.cc
Result<void> walk(Call& call);
Result<void> read_files(Call& call);
// operations_names.cc
Result<void> make_node(Call& call);
Result<void> remove(Call& call);
Result<void> rename(Call& call);
Result<void> link(Call& call);
// operations_open.cc
Result<void> open(Call& call);
Result<void> create(Call& call);
// What CLOSE does; for opens that nobody will close.
void close_file(Call& call, std::uint64_t open_id);
Result<void> close(Call& call);
// operations_data.cc
Result<void> read(Call& call);
Result<void> write(Call& call);
Result<void> allocate(Call& call);
Result<void> seek(Call& call);
// operations_copy.cc
Result<void> copy_range(Call& call);
// operations_xattr.cc
Result<void> getxattr(Call& call);
Result<void> setxattr(Call& call);
Result<void> listxattr(Call& call);
Result<void> removexattr(Call& call);
// operations_lock.cc
Result<void> lock(Call& call);
// exclusive_names.cc
Result<void> acquire(Call& call);
// operations_commit.cc
Result<void> commit(Call& call);
// operations_redo.cc
// An entry of a redo (LogRequest.redo): `operation`, as far as it is not done already, and as nobody else has
// changed the file since the server is back. ECANCELED: somebody has.
Result<void> redo(Call& call, const Operation& operation);
}  // namespace ops

// A lock that a program of this session says to have: whether it still has it. `may_reclaim`: the server was
// restarted, and nobody else can have had it since (LockTable::reclaim).
[[nodiscard]] Result<bool> keep_lock(const Attachment& attachment, LockTable& locks,
                                     const schema::LockRequest& request, bool may_reclaim);

// pread until `into` is full or the file ends; how many bytes there were.
[[nodiscard]] Result<std::size_t> read_fully(const Fd& fd, std::uint64_t offset, std::span<std::byte> into);

// Packed, if that makes them shorter. It costs the turn.
[[nodiscard]] std::optional<SharedBytes> compress(std::span<const std::byte> bytes);

// The same of up to `length` bytes, for a body of the reply.
[[nodiscard]] Result<SharedBytes> read_body(const Fd& fd, std::uint64_t offset, std::size_t length);

}  // namespace tusk::server
