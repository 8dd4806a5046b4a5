// Who may enter which export: tokens and client keys in the state directory.
//
// tokens.toml holds the SHA-256 of tokens only; a token itself is shown once. Both files are rewritten
// whole and atomically, under a lock, by whichever tuskd command changes them; a running server reads
// them again when they have changed. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsserver/export.h"
#include "fsserver/state_file.h"
#include "proto/base/result.h"
#include "proto/crypto/fingerprint.h"
#include "proto/crypto/primitives.h"
#include "proto/rpc/mount_url.h"

namespace tusk::server {

constexpr std::size_t kTokensMax = 10'000;
constexpr std::size_t kAllowedClientsMax = 10'000;

struct TokenEntry {
  crypto::Sha256Digest sha256{};
  std::string export_name;
  Access access = Access::kReadOnly;
  std::optional<std::int64_t> expires_unix_s;
};

struct AllowedClient {
  crypto::Fingerprint key;
  std::string export_name;
  Access access = Access::kReadOnly;
};

class AccessStore {
 public:
  // Makes the directory (0700) if there is none. kBadConfig if a file is damaged, naming the line.
  [[nodiscard]] static Result<std::shared_ptr<AccessStore>> open(std::filesystem::path state_dir);
  // The same to show it only: root also looks into directories of other users.
  [[nodiscard]] static Result<std::shared_ptr<AccessStore>> look(std::filesystem::path state_dir);

  // The strongest right of this key or this token to this export, as the files are now. A file that has
  // become unreadable counts as it was before (and is logged).
  [[nodiscard]] std::optional<Access> right_of(std::string_view export_name, const crypto::Fingerprint& key,
                                               std::span<const std::byte> token, std::int64_t now_unix_s);

  // The key has a right of its own to this export, whatever token comes with it.
  [[nodiscard]] bool lists(std::string_view export_name, const crypto::Fingerprint& key);

  // Another number whenever a right may have changed since: a file was read again, or a token's time is over.
  [[nodiscard]] std::uint64_t generation(std::int64_t now_unix_s);

  // A new token for an export, kTokenBytes.
  [[nodiscard]] Result<std::vector<std::byte>> new_token(const std::string& export_name, Access access,
                                                         std::optional<std::int64_t> expires_unix_s,
                                                         std::int64_t now_unix_s);
  // The token of `tuskd share` for this directory under this name with this right: the same one each time, so
  // that mounts survive a restart. Who was given the URL to read stays a reader when another may write.
  [[nodiscard]] Result<std::vector<std::byte>> share_token(const std::string& export_name,
                                                           const std::filesystem::path& directory,
                                                           Access access, std::int64_t now_unix_s);
  // Replaces what was said before about this key and export.
  [[nodiscard]] Result<void> allow(const AllowedClient& client);

  [[nodiscard]] std::vector<AllowedClient> allowed();

 private:
  explicit AccessStore(std::filesystem::path state_dir) : state_dir_(std::move(state_dir)) {}

  // With mutex_ held.
  Result<void> refresh();
  void refresh_or_keep();
  Result<void> put_token(TokenEntry entry, std::int64_t now_unix_s,
                         std::span<const crypto::Sha256Digest> replaces);

  const std::filesystem::path state_dir_;
  std::mutex mutex_;
  WatchedFile tokens_file_{state_dir_ / "tokens.toml"};
  WatchedFile clients_file_{state_dir_ / "clients.toml"};
  std::vector<TokenEntry> tokens_;
  std::vector<AllowedClient> clients_;
  std::uint64_t generation_ = 1;
  std::ptrdiff_t expired_ = 0;  // tokens, when generation() last looked
};

}  // namespace tusk::server
