#include "fsserver/status_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "fsserver/state_file.h"
#include "fsserver/toml_reader.h"
#include "proto/crypto/key_file.h"

namespace tusk::server {
namespace {

void add(std::ostream& out, std::string_view key, std::string_view value) {
  out << key << " = " << toml::value<std::string>(value) << '\n';
}

Access shown_access(TomlReader& reader) {
  return reader.text("access") == "ro" ? Access::kReadOnly
                                       : Access::kReadWrite;  // an older server does not say
}

std::optional<ConnectedClient> read_client(TomlReader& reader) {
  ConnectedClient client;
  const auto key = crypto::Fingerprint::parse(reader.text("key").value_or(""));
  if (!key) return std::nullopt;
  client.peer.key = *key;
  client.peer.address = reader.text("address").value_or("");
  client.client_name = reader.text("name").value_or("");
  client.export_name = reader.text("export").value_or("");
  client.access = shown_access(reader);
  client.since_unix_s = reader.integer("since", 0, INT64_MAX).value_or(0);
  client.open_files = static_cast<std::size_t>(reader.integer("open_files", 0, INT64_MAX).value_or(0));
  return client;
}

std::string to_toml(const ServerStatus& status) {
  std::ostringstream out;
  out << "pid = " << status.pid << "\nlisten = [";
  for (const std::string& address : status.listen) out << toml::value<std::string>(address) << ", ";
  out << "]\n";
  add(out, "sandbox", status.sandbox);
  if (status.grace_until_unix_s != 0) out << "grace_until = " << status.grace_until_unix_s << '\n';
  for (const ServerStatus::Exported& exported : status.exports) {
    out << "\n[[export]]\n";
    add(out, "name", exported.name);
    add(out, "path", exported.path.string());
    add(out, "access", access_name(exported.access));
  }
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

ServerStatus read_server(TomlReader& reader) {
  ServerStatus status;
  status.pid = static_cast<pid_t>(reader.integer("pid", 1, INT32_MAX).value_or(0));
  status.sandbox = reader.text("sandbox").value_or("");
  status.grace_until_unix_s = reader.integer("grace_until", 0, INT64_MAX).value_or(0);
  for (const auto& item : reader.texts("listen")) status.listen.push_back(item.text);
  for (TomlReader& entry : reader.tables("export"))
    status.exports.push_back(
        {entry.text("name").value_or(""), entry.text("path").value_or(""), shown_access(entry)});
  for (TomlReader& entry : reader.tables("client"))
    if (auto client = read_client(entry)) status.clients.push_back(std::move(*client));
  return status;
}

// Nothing when the server has ended just now.
Result<std::optional<ServerStatus>> read_status(const std::filesystem::path& file) {
  TUSK_ASSIGN(const auto text, read_state_file(file));
  if (!text) return std::nullopt;
  Complaints complaints;
  const auto table = parse_toml(*text, complaints);
  if (!table) return fail(ErrorCode::kBadConfig, to_text(complaints, file.string()));
  TomlReader reader(*table, "", complaints);
  return read_server(reader);
}

// A server lets go of a file after it has put the next one in its place: one that can be locked and still has
// its name is nobody's, and nobody will use that name again.
bool left_behind(const std::filesystem::path& file) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && ::flock(fd.number(), LOCK_SH | LOCK_NB) == 0 && is_at(fd, file);
}

std::filesystem::path directory_of_running(const std::filesystem::path& state_dir) {
  return state_dir / "running";
}

Result<std::vector<std::filesystem::path>> status_files(const std::filesystem::path& state_dir) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  const std::filesystem::path directory = directory_of_running(state_dir);
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (at->path().extension() == ".toml") files.push_back(at->path());
  if (error && error != std::errc::no_such_file_or_directory)
    return fail(from_errno(error.value()), directory.string());
  return files;
}

}  // namespace

StatusFile::StatusFile(const std::filesystem::path& state_dir)
    : file_(directory_of_running(state_dir) /
            (std::to_string(::getpid()) + "-" + unique_suffix() + ".toml")) {}

Result<void> StatusFile::update(const ServerStatus& status) {
  std::string text = to_toml(status);
  if (text == text_) return {};
  text_ = std::move(text);
  TUSK_TRY(crypto::prepare_private_directory(file_.parent_path()));
  TUSK_ASSIGN(held_, write_locked_state_file(file_, text_));
  return {};
}

void StatusFile::remove() {
  if (held_.valid()) ::unlink(file_.c_str());
  held_ = {};
}

Result<std::vector<ServerStatus>> running_servers(const std::filesystem::path& state_dir) {
  TUSK_ASSIGN(const auto files, status_files(state_dir));
  std::vector<ServerStatus> servers;
  for (const std::filesystem::path& file : files) {
    if (left_behind(file)) {
      ::unlink(file.c_str());
      continue;
    }
    TUSK_ASSIGN(auto status, read_status(file));
    if (status) servers.push_back(std::move(*status));
  }
  std::ranges::sort(servers, {}, &ServerStatus::pid);
  return servers;
}

}  // namespace tusk::server
