#include "fsserver/access_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>

#include "fsserver/toml_reader.h"
#include "proto/base/shared_bytes.h"
#include "proto/crypto/base64url.h"
#include "proto/crypto/key_file.h"

namespace tusk::server {
namespace {

std::string quote(std::string_view text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::optional<Access> read_access(TomlReader& entry) {
  const auto access = entry.required_text("access");
  if (access == "ro") return Access::kReadOnly;
  if (access == "rw") return Access::kReadWrite;
  if (access) entry.complain("access", "'access' must be \"ro\" or \"rw\"");
  return std::nullopt;
}

template <class Entry, class Read>
Result<std::vector<Entry>> read_entries(const std::filesystem::path& file, std::string_view key,
                                        std::size_t max, Read read) {
  TUSK_ASSIGN(const auto text, read_state_file(file));
  std::vector<Entry> entries;
  if (!text) return entries;
  Complaints complaints;
  if (const auto table = parse_toml(*text, complaints)) {
    TomlReader top(*table, "", complaints);
    for (TomlReader& reader : top.tables(key)) {
      if (auto entry = read(reader)) entries.push_back(std::move(*entry));
      reader.done();
    }
    top.done();
  }
  if (entries.size() > max) complaints.push_back({0, "too many entries"});
  if (!complaints.empty()) return fail(ErrorCode::kBadConfig, to_text(complaints, file.string()));
  return entries;
}

std::optional<TokenEntry> read_token(TomlReader& reader) {
  const auto hash = reader.required_text("sha256");
  const auto name = reader.required_text("export");
  const auto access = read_access(reader);
  const auto expires = reader.integer("expires", 0, INT64_MAX);
  if (!hash || !name || !access) return std::nullopt;
  const auto bytes = crypto::base64url_decode(*hash);
  if (!bytes || bytes->size() != crypto::kSha256Bytes) {
    reader.complain("sha256", "'sha256' must be 43 characters of base64url");
    return std::nullopt;
  }
  TokenEntry entry{.export_name = *name, .access = *access, .expires_unix_s = expires};
  std::ranges::copy(*bytes, entry.sha256.begin());
  return entry;
}

std::optional<AllowedClient> read_client(TomlReader& reader) {
  const auto key = reader.required_text("key");
  const auto name = reader.required_text("export");
  const auto access = read_access(reader);
  if (!key || !name || !access) return std::nullopt;
  const auto fingerprint = crypto::Fingerprint::parse(*key);
  if (!fingerprint) {
    reader.complain("key", "'key' must be a client's fingerprint, 43 characters");
    return std::nullopt;
  }
  return AllowedClient{.key = *fingerprint, .export_name = *name, .access = *access};
}

std::string to_toml(const std::vector<TokenEntry>& tokens) {
  std::ostringstream out;
  out << "# The right to enter, by SHA-256 of the token. Written by tuskd; delete an entry to take the right "
         "away.\n";
  for (const TokenEntry& token : tokens) {
    out << "\n[[token]]\nsha256 = " << quote(crypto::base64url_encode(token.sha256))
        << "\nexport = " << quote(token.export_name) << "\naccess = \"" << access_name(token.access)
        << "\"\n";
    if (token.expires_unix_s) out << "expires = " << *token.expires_unix_s << "\n";
  }
  return out.str();
}

std::string to_toml(const std::vector<AllowedClient>& clients) {
  std::ostringstream out;
  out << "# Client keys that may enter without a token. Written by tuskd; delete an entry to take the right "
         "away.\n";
  for (const AllowedClient& client : clients)
    out << "\n[[client]]\nkey = " << quote(client.key.to_text()) << "\nexport = " << quote(client.export_name)
        << "\naccess = \"" << access_name(client.access) << "\"\n";
  return out.str();
}

// The plain token of a share, which has to print it again: "shares/NAME.toml", 0600.
struct Share {
  std::string path;
  std::vector<std::byte> token;
};

// A file's name has 255 bytes; of these ".rw.toml" and what a state file is called while it is written take 25.
constexpr std::size_t kShareNameMax = 230;

std::filesystem::path share_file(const std::filesystem::path& state_dir, const std::string& export_name,
                                 Access access) {
  std::string name = crypto::base64url_encode(as_byte_span(export_name));
  // base64url has no dot: it is no other export's name.
  if (name.size() > kShareNameMax)
    name = "long." + crypto::base64url_encode(crypto::sha256(as_byte_span(export_name)));
  return state_dir / "shares" / (name + (access == Access::kReadWrite ? ".rw.toml" : ".toml"));
}

Result<std::optional<Share>> read_share(const std::filesystem::path& file) {
  TUSK_ASSIGN(const auto text, read_state_file(file));
  if (!text) return std::nullopt;
  Complaints complaints;
  std::optional<Share> share;
  if (const auto table = parse_toml(*text, complaints)) {
    TomlReader reader(*table, "", complaints);
    const auto path = reader.required_text("path");
    const auto token = reader.required_text("token");
    const auto bytes = crypto::base64url_decode(token.value_or(""));
    if (path && bytes && bytes->size() == rpc::kTokenBytes)
      share = Share{*path, *bytes};
    else
      complaints.push_back({0, "damaged; remove it for a new token"});
  }
  if (!complaints.empty()) return fail(ErrorCode::kBadConfig, to_text(complaints, file.string()));
  return share;
}

std::vector<std::byte> random_token() {
  std::vector<std::byte> token(rpc::kTokenBytes);
  crypto::random_bytes(token);
  return token;
}

}  // namespace

Result<std::shared_ptr<AccessStore>> AccessStore::open(std::filesystem::path state_dir) {
  TUSK_TRY(crypto::prepare_private_directory(state_dir));
  return look(std::move(state_dir));
}

Result<std::shared_ptr<AccessStore>> AccessStore::look(std::filesystem::path state_dir) {
  std::shared_ptr<AccessStore> store(new AccessStore(std::move(state_dir)));
  const std::lock_guard lock(store->mutex_);
  TUSK_TRY(store->refresh());
  return store;
}

Result<void> AccessStore::refresh() {
  if (tokens_file_.changed()) {
    auto tokens = read_entries<TokenEntry>(tokens_file_.path(), "token", kTokensMax, read_token);
    if (!tokens) return std::unexpected(std::move(tokens).error());
    tokens_ = std::move(*tokens);
    ++generation_;
  }
  if (clients_file_.changed()) {
    auto clients =
        read_entries<AllowedClient>(clients_file_.path(), "client", kAllowedClientsMax, read_client);
    if (!clients) return std::unexpected(std::move(clients).error());
    clients_ = std::move(*clients);
    ++generation_;
  }
  return {};
}

void AccessStore::refresh_or_keep() {
  if (auto fresh = refresh(); !fresh)
    spdlog::error("{}; the rights read before it stay as they were", fresh.error().context);
}

std::uint64_t AccessStore::generation(std::int64_t now_unix_s) {
  const std::lock_guard lock(mutex_);
  refresh_or_keep();
  const auto expired = std::ranges::count_if(tokens_, [&](const TokenEntry& entry) {
    return entry.expires_unix_s.value_or(INT64_MAX) <= now_unix_s;
  });
  if (std::exchange(expired_, expired) != expired) ++generation_;
  return generation_;
}

std::optional<Access> AccessStore::right_of(std::string_view export_name, const crypto::Fingerprint& key,
                                            std::span<const std::byte> token, std::int64_t now_unix_s) {
  const std::lock_guard lock(mutex_);
  refresh_or_keep();
  std::optional<Access> right;
  for (const AllowedClient& client : clients_)
    if (client.key == key && client.export_name == export_name)
      right = std::max(right, std::optional(client.access));
  if (token.size() != rpc::kTokenBytes) return right;
  const crypto::Sha256Digest hash = crypto::sha256(token);
  for (const TokenEntry& entry : tokens_) {
    const bool valid =
        entry.export_name == export_name && entry.expires_unix_s.value_or(INT64_MAX) > now_unix_s;
    if (valid && crypto::constant_time_equal(entry.sha256, hash))
      right = std::max(right, std::optional(entry.access));
  }
  return right;
}

bool AccessStore::lists(std::string_view export_name, const crypto::Fingerprint& key) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(clients_, [&](const AllowedClient& client) {
    return client.key == key && client.export_name == export_name;
  });
}

Result<void> AccessStore::put_token(TokenEntry entry, std::int64_t now_unix_s,
                                    std::span<const crypto::Sha256Digest> replaces) {
  tokens_file_.distrust();
  TUSK_TRY(refresh());
  std::erase_if(tokens_, [&](const TokenEntry& old) {
    return old.sha256 == entry.sha256 || std::ranges::find(replaces, old.sha256) != replaces.end() ||
           old.expires_unix_s.value_or(INT64_MAX) <= now_unix_s;
  });
  if (tokens_.size() >= kTokensMax) return fail(ErrorCode::kLimitExceeded, "too many tokens");
  tokens_.push_back(std::move(entry));
  return write_state_file(tokens_file_.path(), to_toml(tokens_));
}

Result<std::vector<std::byte>> AccessStore::new_token(const std::string& export_name, Access access,
                                                      std::optional<std::int64_t> expires_unix_s,
                                                      std::int64_t now_unix_s) {
  const std::lock_guard lock(mutex_);
  TUSK_ASSIGN(const Fd others_wait, lock_state_dir(state_dir_));
  std::vector<std::byte> token = random_token();
  TUSK_TRY(put_token({crypto::sha256(token), export_name, access, expires_unix_s}, now_unix_s, {}));
  return token;
}

Result<std::vector<std::byte>> AccessStore::share_token(const std::string& export_name,
                                                        const std::filesystem::path& directory, Access access,
                                                        std::int64_t now_unix_s) {
  const std::lock_guard lock(mutex_);
  TUSK_ASSIGN(const Fd others_wait, lock_state_dir(state_dir_));
  const std::filesystem::path file = share_file(state_dir_, export_name, access);
  TUSK_TRY(crypto::prepare_private_directory(file.parent_path()));
  // The same name for another directory: who had the old URLs was not invited to this one.
  std::vector<crypto::Sha256Digest> replaced;
  std::optional<std::filesystem::path> stale;
  std::optional<std::vector<std::byte>> token;
  for (const Access each : {Access::kReadOnly, Access::kReadWrite}) {
    const std::filesystem::path its_file = share_file(state_dir_, export_name, each);
    TUSK_ASSIGN(const auto before, read_share(its_file));
    if (!before) continue;
    if (before->path == directory.string()) {
      if (each == access) token = before->token;
    } else {
      replaced.push_back(crypto::sha256(before->token));
      if (each != access) stale = its_file;
    }
  }
  const bool known = token.has_value();
  if (!known) token = random_token();
  // The tokens first: as long as the others are in their files, the next try finds and revokes them.
  TUSK_TRY(put_token({crypto::sha256(*token), export_name, access, std::nullopt}, now_unix_s, replaced));
  if (!known)
    TUSK_TRY(write_state_file(file, "path = " + quote(directory.string()) +
                                        "\ntoken = " + quote(crypto::base64url_encode(*token)) + "\n"));
  std::error_code kept;  // its token opens nothing any more
  if (stale) std::filesystem::remove(*stale, kept);
  return *token;
}

Result<void> AccessStore::allow(const AllowedClient& client) {
  const std::lock_guard lock(mutex_);
  TUSK_ASSIGN(const Fd others_wait, lock_state_dir(state_dir_));
  clients_file_.distrust();
  TUSK_TRY(refresh());
  std::erase_if(clients_, [&](const AllowedClient& old) {
    return old.key == client.key && old.export_name == client.export_name;
  });
  if (clients_.size() >= kAllowedClientsMax)
    return fail(ErrorCode::kLimitExceeded, "too many allowed clients");
  clients_.push_back(client);
  return write_state_file(clients_file_.path(), to_toml(clients_));
}

std::vector<AllowedClient> AccessStore::allowed() {
  const std::lock_guard lock(mutex_);
  if (auto fresh = refresh(); !fresh) spdlog::error("{}", fresh.error().context);
  return clients_;
}

}  // namespace tusk::server
