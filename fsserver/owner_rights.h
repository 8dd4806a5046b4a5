// Opens files of the server's own user again, whatever their modes say: those that were open before a
// restart.
//
// A user may change the modes of their own files, so this gives nobody a right that they could not give
// themselves. It is done without changing any: a process beside tuskd has a user namespace of its own, and in
// it CAP_DAC_OVERRIDE alone. The kernel lets that capability count for files of the namespace's one user and
// one group (user_namespaces(7)), here tuskd's. Files of the user's other groups stay closed.
//
// What it does not do: decide for whom (Call::file). Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>

#include "fsserver/fd.h"
#include "fsserver/sandbox.h"
#include "proto/base/result.h"

namespace tusk::server {

class OwnerRights {
 public:
  // Before the sandbox is entered and before any thread is started. `sandbox` is what the process enters,
  // too. Errors: this system lets no user make a namespace.
  [[nodiscard]] static Result<std::unique_ptr<OwnerRights>> start(const SandboxWish& sandbox);
  // Ends the process.
  ~OwnerRights();
  OwnerRights(const OwnerRights&) = delete;
  OwnerRights& operator=(const OwnerRights&) = delete;

  // The regular file of an O_PATH descriptor, opened with `access` (O_RDONLY, O_WRONLY or O_RDWR). Waits for
  // a program that has a lease on it (F_SETLEASE); others do not wait with it.
  [[nodiscard]] Result<Fd> reopen(const Fd& node, int access);

 private:
  // EAGAIN: a program has a lease on it, and was told.
  [[nodiscard]] Result<Fd> try_reopen(const Fd& node, int access);
  OwnerRights(Fd socket, pid_t process) : socket_(std::move(socket)), process_(process) {}

  Fd socket_;
  const pid_t process_;
  std::mutex mutex_;  // one question at a time
};

}  // namespace tusk::server
