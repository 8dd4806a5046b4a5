#include "fsserver/status_file.h"

#include <signal.h>

#include <sstream>

#include "fsserver/state_file.h"
#include "fsserver/toml_reader.h"

namespace tusk::server {
namespace {

void add(std::ostream& out, std::string_view key, std::string_view value) {
  out << key << " = " << toml::value<std::string>(value) << '\n';
}

std::optional<ConnectedClient> read_client(TomlReader& reader) {
  ConnectedClient client;
  const auto key = crypto::Fingerprint::parse(reader.text("key").value_or(""));
  if (!key) return std::nullopt;
  client.peer.key = *key;
  client.peer.address = reader.text("address").value_or("");
  client.client_name = reader.text("name").value_or("");
  client.export_name = reader.text("export").value_or("");
  client.access = reader.text("access") == "rw" ? Access::kReadWrite : Access::kReadOnly;
  client.since_unix_s = reader.integer("since", 0, INT64_MAX).value_or(0);
  client.open_files = static_cast<std::size_t>(reader.integer("open_files", 0, INT64_MAX).value_or(0));
  return client;
}

}  // namespace

std::filesystem::path status_file(const std::filesystem::path& state_dir) {
  return state_dir / "connected.toml";
}

std::string to_toml(const ServerStatus& status) {
  std::ostringstream out;
  out << "pid = " << status.pid << "\nlisten = [";
  for (const std::string& address : status.listen) out << toml::value<std::string>(address) << ", ";
  out << "]\n";
  for (const ConnectedClient& client : status.clients) {
    out << "\n[[client]]\n";
    add(out, "name", client.client_name);
    add(out, "address", client.peer.address);
    add(out, "key", client.peer.key.to_text());
    add(out, "export", client.export_name);
    add(out, "access", access_name(client.access));
    out << "since = " << client.since_unix_s << "\nopen_files = " << client.open_files << '\n';
  }
  return out.str();
}

Result<std::optional<ServerStatus>> read_status(const std::filesystem::path& state_dir) {
  TUSK_ASSIGN(const auto text, read_state_file(status_file(state_dir)));
  if (!text) return std::nullopt;
  Complaints complaints;
  const auto table = parse_toml(*text, complaints);
  if (!table) return fail(ErrorCode::kBadConfig, to_text(complaints, status_file(state_dir).string()));
  TomlReader reader(*table, "", complaints);
  ServerStatus status;
  status.pid = static_cast<pid_t>(reader.integer("pid", 1, INT32_MAX).value_or(0));
  // EPERM: it runs, as another user.
  if (status.pid == 0 || (::kill(status.pid, 0) != 0 && errno != EPERM)) return std::nullopt;
  for (const auto& item : reader.texts("listen")) status.listen.push_back(item.text);
  for (TomlReader& entry : reader.tables("client"))
    if (auto client = read_client(entry)) status.clients.push_back(std::move(*client));
  return status;
}

}  // namespace tusk::server
