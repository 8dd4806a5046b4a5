// As whom a worker thread touches files: the server's own user, or another one when tuskd is root.
//
// Linux keeps file-system ids and capabilities per thread; these scopes change the calling thread's
// and put them back. Failing to become whom the operator chose, or oneself again, is not survivable (files
// would be touched as root), so it is checked; only an owner that a client names may be none here. Scopes
// nest and end in reverse order, on the thread that made them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/result.h"

namespace tusk::server {

struct Credentials {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;

  // Of a user by name or number. kBadConfig when there is none.
  [[nodiscard]] static Result<Credentials> of_user(const std::string& user);
  // Of the server process.
  [[nodiscard]] static Credentials own();

  bool operator==(const Credentials&) const = default;
};

// Only root can act as another user.
[[nodiscard]] bool can_act_as_others();

// Within the scope the kernel judges this thread's file operations as `credentials`: no privilege of
// root is left that matters to a file system. nullptr: the server itself. `credentials` must outlive it.
class ActingAs {
 public:
  explicit ActingAs(const Credentials* credentials);
  ~ActingAs();
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  const Credentials* outer_;
};

// Within the scope an enclosing ActingAs is suspended: for finding again what a client has already been
// shown, which needs the right to open by handle.
class ActingAsServer {
 public:
  ActingAsServer() : suspended_(nullptr) {}
  ActingAsServer(const ActingAsServer&) = delete;
  ActingAsServer& operator=(const ActingAsServer&) = delete;

 private:
  ActingAs suspended_;
};

// Within the scope root's privilege to exceed quotas is not used: the thread works for somebody else, whoever
// that is.
class ObeyingLimits {
 public:
  explicit ObeyingLimits(bool wanted);
  ~ObeyingLimits();
  ObeyingLimits(const ObeyingLimits&) = delete;
  ObeyingLimits& operator=(const ObeyingLimits&) = delete;

 private:
  const bool changed_;
};

// Within the scope writes do not use up what a file system keeps for root, which it knows by the user id. For
// writing to open files and nothing else: a new file would be nobody's.
class SparingReserve {
 public:
  explicit SparingReserve(bool wanted);
  ~SparingReserve();
  SparingReserve(const SparingReserve&) = delete;
  SparingReserve& operator=(const SparingReserve&) = delete;

 private:
  const bool changed_;
};

// Within the scope new files belong to `uid` and `gid` from their first moment (so set-group-ID
// directories and quotas work as they do for that user), while permission checks are root's: the
// client's kernel has made them. nullopt: changes nothing. Only for a server that is root. EINVAL, as of
// chown(2), for ids that the server's kernel does not know: a client can ask for any number.
class CreatingFor {
 public:
  struct Owner {
    uid_t uid;
    gid_t gid;
  };
  [[nodiscard]] static Result<CreatingFor> begin(std::optional<Owner> owner);
  CreatingFor(CreatingFor&& other) noexcept : changed_(std::exchange(other.changed_, false)) {}
  CreatingFor& operator=(CreatingFor&&) = delete;
  ~CreatingFor();

 private:
  explicit CreatingFor(bool changed) : changed_(changed) {}

  bool changed_;
};

}  // namespace tusk::server
