#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "fsserver/cli.h"
#include "fsserver/config.h"
#include "fsserver/daemon.h"
#include "fsserver/located.h"
#include "fsserver/state_file.h"
#include "proto/base/text.h"
#include "proto/io/clock.h"
#include "proto/rpc/mount_url.h"

namespace tusk::server {
namespace {

std::unexpected<Error> bad(std::string what) { return fail(ErrorCode::kBadConfig, std::move(what)); }

// For people who will paste it.
Result<void> print_line(const std::string& text) {
  if (std::printf("%s\n", text.c_str()) < 0 || std::fflush(stdout) != 0) return fail_errno("stdout");
  return {};
}

// The token is on no command line there, which other users and the log of sudo could see: echo is the shell's
// own.
std::string mount_line(const rpc::MountUrl& url) {
  return "echo '" + url.to_text() + "' | tusk mount - " + shell_word("/mnt/" + url.export_name);
}

Result<ExportSettings> shared_export(const ShareArguments& arguments) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(arguments.directory, error);
  if (error) return bad(arguments.directory + ": " + error.message());
  ExportSettings settings;
  settings.path = directory;
  const std::string own_name = directory.filename().string();
  settings.name = arguments.name.value_or(own_name.empty() ? "root" : own_name);
  settings.access = arguments.read_write ? Access::kReadWrite : Access::kReadOnly;
  settings.act_as = arguments.act_as;
  settings.setuid = arguments.setuid;
  if (const Result<void> good = rpc::check_export_name(settings.name); !good)
    return bad("'" + printable(settings.name) + "': " + good.error().context + " (--name gives it another)");
  return settings;
}

// Before there is a server whose URL nobody learns.
Result<void> check_url_file(const std::filesystem::path& file) {
  if (file.empty()) return {};
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad("--url-file: nothing can be written in " + folder.string() + ": " + std::strerror(errno));
  return {};
}

// `host`: HOST[:PORT], or empty for what the server says.
Result<rpc::MountUrl> url_of(const std::string& export_name, const Reachable& reachable,
                             const std::string& host) {
  rpc::MountUrl url;
  url.export_name = export_name;
  url.host = public_host(reachable.listen);
  url.port = reachable.listen.empty() ? rpc::kDefaultPort : reachable.listen.front().port();
  if (host.empty()) return url;
  auto parsed = rpc::MountUrl::parse("tusk://" + host + "/x");
  if (!parsed) return bad("--host: " + parsed.error().context);
  url.host = parsed->host;
  if (host.ends_with(":" + std::to_string(parsed->port))) url.port = parsed->port;
  return url;
}

void print_warning(const std::string& warning) {
  if (!warning.empty())
    std::fprintf(stderr, "tuskd: warning: %s\n", printable(warning, warning.size()).c_str());
}

// Of what was granted, and will not do all that it says.
void warn_of(const Reachable& reachable, const std::string& export_name, Access granted) {
  print_warning(reachable.warning);
  if (granted > reachable.access)
    print_warning("export '" + export_name +
                  "' is read-only: nobody can write there until it is exported "
                  "read-write (access = \"rw\", or tuskd share --rw)");
}

std::string moment(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm broken_down{};
  char text[32] = {};
  ::localtime_r(&time, &broken_down);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &broken_down);
  return text;
}

void print_server(const ServerStatus& server) {
  std::string listen;
  for (const std::string& address : server.listen) listen += " " + address;
  std::printf("tuskd (pid %d) on%s: %zu connected\n", server.pid, listen.c_str(), server.clients.size());
  if (!server.sandbox.empty()) std::printf("  sandbox: %s\n", printable(server.sandbox).c_str());
  if (server.grace_until_unix_s != 0)
    std::printf("  after a crash changes wait until %s at most for mounts that were there before\n",
                moment(server.grace_until_unix_s).c_str());
  for (const ConnectedClient& client : server.clients)
    std::printf("  %s %s '%s' at %s, since %s, %zu files open, key %s\n", client.export_name.c_str(),
                std::string(access_name(client.access)).c_str(), printable(client.client_name).c_str(),
                client.peer.address.c_str(), moment(client.since_unix_s).c_str(), client.open_files,
                client.peer.key.to_text().c_str());
}

void check_on_this_machine(const ExportSettings& settings, TomlReader& reader) {
  if (settings.path.is_absolute())
    if (const auto opened = open_exported_directory(settings.path); !opened)
      reader.complain("path", opened.error().context);
  if (const auto user = acting_user(settings.act_as); !user) reader.complain("as", user.error().context);
}

// Files opened by handle, as root opens them, may have no path that Landlock could follow: root has the
// unit's limits instead (docs/decisions/0022-sandbox.md).
SandboxWish sandbox_of(const ShareArguments& arguments, const ExportSettings& exported) {
  SandboxWish wish{.system_calls = arguments.sandbox, .files = arguments.sandbox && ::geteuid() != 0};
  (exported.access == Access::kReadWrite ? wish.read_write : wish.read_only).push_back(exported.path);
  const std::filesystem::path url_file = arguments.url_file;
  if (!url_file.empty()) wish.new_files.push_back(url_file.has_parent_path() ? url_file.parent_path() : ".");
  if (const char* const traces = std::getenv("QLOGDIR"); traces != nullptr && *traces != '\0')
    wish.new_files.emplace_back(traces);
  return wish;
}

// As nohup(1) leaves it. Blocked signals come to us whether they are ignored or not.
bool ignores_hangup() {
  struct sigaction action {};
  return ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<void> share(const ShareArguments& arguments) {
  TUSK_ASSIGN(const ExportSettings exported, shared_export(arguments));
  TUSK_TRY(check_url_file(arguments.url_file));
  if (::geteuid() == 0 && arguments.read_write && !arguments.act_as)
    print_warning(
        "whoever has the URL writes as root here: `--as USER` gives clients the rights of a user" +
        std::string(arguments.setuid ? ", and --setuid lets them make programs that run as root" : ""));
  Daemon::block_signals();
  raise_descriptor_limit();
  ServerConfig config;
  config.exports = {exported};
  config.state_dir = arguments.state_dir;
  config.watch = arguments.watch;
  if (!arguments.listen.empty()) {
    TUSK_ASSIGN(const io::Address listen, parse_listen(arguments.listen));
    config.listen = {listen};
  }
  TUSK_ASSIGN(const std::unique_ptr<Daemon> daemon, Daemon::start(config, sandbox_of(arguments, exported)));

  rpc::MountUrl url;
  const std::vector<io::Address> live = daemon->local_addresses();
  url.host = public_host(live);
  url.port = live.front().port();
  url.export_name = exported.name;
  url.fingerprint = daemon->identity().fingerprint();
  TUSK_ASSIGN(url.token, daemon->access().share_token(exported.name, exported.path, exported.access,
                                                      io::unix_seconds()));
  if (!arguments.url_file.empty()) TUSK_TRY(write_state_file(arguments.url_file, url.to_text() + "\n"));
  spdlog::info("sharing {} {} as '{}'; Ctrl-C ends it. On the other machine:", exported.path.string(),
               arguments.read_write ? "read-write" : "read-only", exported.name);
  TUSK_TRY(print_line(mount_line(url)));
  if (ignores_hangup())
    daemon->run([&]() -> Result<ServerConfig> { return config; });
  else
    daemon->run({});
  return {};
}

Result<void> serve(const std::string& config_file) {
  Daemon::block_signals();
  raise_descriptor_limit();
  TUSK_ASSIGN(ServerConfig config, load_config(config_file, check_on_this_machine));
  const SandboxWish sandbox{.system_calls =
                                config.sandbox};  // a reload may add exports: no files are out of reach
  TUSK_ASSIGN(const std::unique_ptr<Daemon> daemon, Daemon::start(std::move(config), sandbox));
  for (const io::Address& address : daemon->local_addresses())
    spdlog::info("listening on {}", address.to_string());
  spdlog::info("this server's key is {}", daemon->identity().fingerprint().to_text());
  daemon->run([&] { return load_config(config_file); });
  return {};
}

Result<void> check_config(const std::string& config_file) {
  TUSK_ASSIGN(const ServerConfig config, load_config(config_file, check_on_this_machine));
  return print_line(config_file + ": good, " + std::to_string(config.exports.size()) +
                    (config.exports.size() == 1 ? " export" : " exports"));
}

Result<void> print_token(const TokenArguments& arguments) {
  TUSK_ASSIGN(const Located located, locate(arguments.state));
  TUSK_ASSIGN(const Reachable reachable, find_export(located, arguments.export_name));
  std::optional<std::int64_t> expires;
  const std::int64_t now = io::unix_seconds();
  if (!arguments.expires.empty()) {
    TUSK_ASSIGN(const std::int64_t lifetime, parse_lifetime(arguments.expires));
    expires = now + lifetime;
  }
  TUSK_ASSIGN(rpc::MountUrl url, url_of(arguments.export_name, reachable, arguments.host));
  TUSK_ASSIGN(const auto store, AccessStore::open(located.state_dir));
  TUSK_ASSIGN(const crypto::Identity identity, crypto::Identity::load_or_create(located.state_dir));
  url.fingerprint = identity.fingerprint();
  const Access access = arguments.read_write ? Access::kReadWrite : Access::kReadOnly;
  TUSK_ASSIGN(url.token, store->new_token(arguments.export_name, access, expires, now));
  warn_of(reachable, arguments.export_name, access);
  return print_line(url.to_text());
}

Result<void> allow(const AllowArguments& arguments) {
  TUSK_ASSIGN(const Located located, locate(arguments.state));
  TUSK_ASSIGN(const Reachable reachable, find_export(located, arguments.export_name));
  const auto key = crypto::Fingerprint::parse(arguments.fingerprint);
  if (!key)
    return bad("'" + arguments.fingerprint +
               "' is not a client's fingerprint, 43 characters: the client's `tusk status --json` has it as "
               "\"client_key\", and so has the message when its mount is refused");
  TUSK_ASSIGN(const auto store, AccessStore::open(located.state_dir));
  const Access access = arguments.read_write ? Access::kReadWrite : Access::kReadOnly;
  TUSK_TRY(store->allow({*key, arguments.export_name, access}));
  TUSK_ASSIGN(const crypto::Identity identity, crypto::Identity::load_or_create(located.state_dir));
  TUSK_ASSIGN(rpc::MountUrl url, url_of(arguments.export_name, reachable, ""));
  url.fingerprint = identity.fingerprint();
  warn_of(reachable, arguments.export_name, access);
  std::fprintf(
      stderr,
      "The client with that key may now mount this. It is no secret: what follows the # is the key of this "
      "server,\nby which the client knows it.\n");
  return print_line(url.to_text());
}

Result<void> print_clients(const StateArguments& arguments) {
  TUSK_ASSIGN(const Located located, locate(arguments));
  if (located.running.empty()) std::printf("No server is running with %s.\n", located.state_dir.c_str());
  for (const ServerStatus& server : located.running) print_server(server);
  TUSK_ASSIGN(const auto store, AccessStore::look(located.state_dir));
  const auto allowed = store->allowed();
  std::printf("%zu allowed by key\n", allowed.size());
  for (const AllowedClient& client : allowed)
    std::printf("  %s %s %s\n", client.export_name.c_str(), std::string(access_name(client.access)).c_str(),
                client.key.to_text().c_str());
  return {};
}

}  // namespace tusk::server
