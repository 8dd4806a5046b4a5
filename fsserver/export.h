// One directory that clients may mount: what the operator said about it, and its open root.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsserver/acting.h"
#include "fsserver/commits.h"
#include "fsserver/fd.h"
#include "fsserver/node_table.h"
#include "fsserver/owner_rights.h"
#include "proto/base/result.h"
#include "proto/crypto/fingerprint.h"
#include "proto/crypto/primitives.h"

namespace tusk::server {

enum class Access : std::uint8_t { kReadOnly, kReadWrite };

[[nodiscard]] inline std::string_view access_name(Access access) {
  return access == Access::kReadWrite ? "rw" : "ro";
}

struct ExportSettings {
  std::string name;
  std::filesystem::path path;
  Access access = Access::kReadOnly;
  std::optional<std::string> act_as;  // a user; only when tuskd is root
  bool setuid = false;  // clients may make what gives privileges on this machine (special_bits.h)
  std::vector<crypto::Fingerprint> clients;  // enter without a token, with the export's access

  bool operator==(const ExportSettings&) const = default;
};

// What an export needs of this machine. kBadConfig with a sentence for each.
[[nodiscard]] Result<Fd> open_exported_directory(const std::filesystem::path& path);
// Nothing: as the server itself.
[[nodiscard]] Result<std::optional<Credentials>> acting_user(const std::optional<std::string>& user);

// Both, and the name, as Export::open() will want them.
[[nodiscard]] Result<void> check_export(const ExportSettings& settings);

class Export {
 public:
  // `handle_secret` must be the same after a restart, else all handles die with it. Errors: kBadConfig
  // with what to do, for a path that is no directory or cannot be opened, or a user that is none.
  [[nodiscard]] static Result<std::shared_ptr<Export>> open(ExportSettings settings,
                                                            const crypto::Secret& handle_secret,
                                                            NodeTableSettings table = {},
                                                            std::shared_ptr<OwnerRights> owner_rights = {});

  [[nodiscard]] const ExportSettings& settings() const { return settings_; }
  [[nodiscard]] const std::string& name() const { return settings_.name; }
  [[nodiscard]] NodeTable& nodes() { return *nodes_; }

  // What brings its clients' changes to the disk; an export of the same directory may share it. Set before
  // the first client.
  void commit_by(std::shared_ptr<Commits> commits) { commits_ = std::move(commits); }
  [[nodiscard]] const std::shared_ptr<Commits>& commits() const { return commits_; }

  // nullptr: as the server process.
  [[nodiscard]] const Credentials* acts_as() const { return act_as_ ? &*act_as_ : nullptr; }
  [[nodiscard]] uid_t owner_uid() const { return owner_.uid; }
  [[nodiscard]] gid_t owner_gid() const { return owner_.gid; }
  // Owners as they are, and acting for whoever asks: only root can, and only if it was not told to act
  // as one user.
  [[nodiscard]] bool can_be_real() const { return !act_as_ && can_act_as_others(); }

  // A regular file of whom the server acts as (an O_PATH descriptor), whatever its mode says. EACCES: it is
  // another user's, or this server has no way to.
  [[nodiscard]] Result<Fd> reopen_as_owner(const Fd& node, const Status& status, int access) const;

  // False once the exported directory has been removed; says so in the log when that changes.
  [[nodiscard]] bool root_exists();

 private:
  Export() = default;

  ExportSettings settings_;
  std::optional<Credentials> act_as_;
  Credentials owner_;
  std::unique_ptr<NodeTable> nodes_;
  std::shared_ptr<Commits> commits_;
  std::shared_ptr<OwnerRights> owner_rights_;  // null: the server is root, or may not
  std::atomic<bool> removal_logged_{false};
};

// The same directory, or one inside the other: by where they are now, and by what their roots are.
[[nodiscard]] bool overlap(Export& one, Export& other);

}  // namespace tusk::server
