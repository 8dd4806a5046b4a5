#include "fsserver/cli.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>

#include "fsserver/config.h"
#include "proto/base/suggestion.h"
#include "proto/base/text.h"
#include "proto/rpc/printable_log.h"

namespace tusk::server {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kAbout =
    "tuskd - lets other machines mount directories of this one, at the speed of the line.\n"
    "\n"
    "  tuskd share ~/films                        read-only, prints what to type on the other machine\n"
    "  tuskd share ~/work --rw --listen :9000     read-write, on another port\n"
    "  tuskd --config /etc/tusk/tuskd.toml        many exports; SIGHUP reads them again\n"
    "  tuskd token --export films --expires 7d    another URL for one of them\n"
    "\n"
    "One UDP port (8875 by default) has to be reachable from the other machine.";

void add_state_options(CLI::App& command, StateArguments& state) {
  auto* config = command.add_option("--config", state.config_file, "The server's configuration file");
  command.add_option("--state-dir", state.state_dir, "The server's state directory")->excludes(config);
}

void start_logging(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("tuskd");
  logger->set_formatter(std::make_unique<rpc::PrintableFormatter>("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v"));
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

// The commands and what they were asked for; `run` is the one that was chosen.
struct CommandLine {
  CLI::App app{kAbout, "tuskd"};
  std::string config_file;
  std::string log_level = "info";
  ShareArguments share;
  std::string file_to_check;
  TokenArguments token;
  AllowArguments allow;
  StateArguments clients;
  std::function<Result<void>()> run;

  explicit CommandLine(std::string_view built_from) {
    app.set_version_flag("--version", fmt::format("tuskd {} ({})", TUSK_VERSION, built_from));
    app.add_option("--config", config_file, "Serve the exports of this TOML file");
    app.add_option("--log-level", log_level, "How much to say on stderr")
        ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
        ->capture_default_str();
    app.require_subcommand(0, 1);
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
      return std::string("tuskd: ") + error.what() + "\nRun with --help for more information.\n";
    });
    add_share();
    add_check_config();
    add_token();
    add_allow();
    add_clients();
  }

  void add_share() {
    CLI::App* command = app.add_subcommand("share", "Export one directory, in the foreground, until Ctrl-C");
    command->add_option("DIR", share.directory, "The directory")->required();
    command->add_option("--name", share.name, "Its name in the URL (default: the directory's own)");
    command->add_flag("--rw", share.read_write, "Let the other machine write, too");
    command
        ->add_option("--as", share.act_as,
                     "The user whose rights clients have (only as root; default: root itself)")
        ->type_name("USER");
    command->add_flag("--setuid", share.setuid,
                      "Let clients make set-user-ID programs, file capabilities and device nodes");
    command->add_option("--listen", share.listen,
                        "ADDR:PORT to listen on (default: every address, port 8875)");
    command->add_option("--state-dir", share.state_dir, "Where keys and tokens are kept");
    command
        ->add_option("--watch", share.watch,
                     "How changes by local programs are noticed: auto (default), fanotify, inotify or none")
        ->transform([](const std::string& text) {
          const auto wish = watch_wish(text);
          if (!wish) throw CLI::ValidationError(text + " is none of auto, fanotify, inotify and none");
          return std::to_string(static_cast<int>(*wish));
        })
        ->type_name("WAY");
    command->add_flag("!--no-sandbox", share.sandbox,
                      "Forbid nothing to tuskd itself (for core dumps and debuggers)");
    command->add_option("--url-file", share.url_file, "Write the URL into this file once it can be mounted");
    command->callback([this] { run = [this] { return server::share(share); }; });
  }
  void add_check_config() {
    CLI::App* command = app.add_subcommand("check-config", "Say what is wrong with a configuration file");
    command->add_option("FILE", file_to_check, "The file")->required();
    command->callback([this] { run = [this] { return check_config(file_to_check); }; });
  }
  void add_token() {
    CLI::App* command = app.add_subcommand("token", "Make a new token and print the URL that carries it");
    command->add_option("--export", token.export_name, "The export it opens")->required();
    command->add_flag("--rw", token.read_write, "With the right to write, if the export allows it");
    command->add_option("--expires", token.expires, "After 90s, 30m, 12h, 7d ... (default: never)");
    command->add_option("--host", token.host, "HOST or HOST:PORT for the URL");
    add_state_options(*command, token.state);
    command->callback([this] { run = [this] { return print_token(token); }; });
  }
  void add_allow() {
    CLI::App* command = app.add_subcommand("allow", "Let a client's key in without a token");
    command->add_option("FINGERPRINT", allow.fingerprint, "Of the client's key")->required();
    command->add_option("--export", allow.export_name, "The export")->required();
    command->add_flag("--rw", allow.read_write, "With the right to write, if the export allows it");
    add_state_options(*command, allow.state);
    command->callback([this] { run = [this] { return server::allow(allow); }; });
  }
  void add_clients() {
    CLI::App* command = app.add_subcommand("clients", "List connected clients and allowed keys");
    add_state_options(*command, clients);
    command->callback([this] { run = [this] { return print_clients(clients); }; });
  }
};

// What CLI11 says of a command that there is not would be that an argument was not expected. Nothing if that
// is not it.
std::optional<std::string> unknown_command(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  if (!app.get_subcommands().empty() || left.empty() || left.front().starts_with('-')) return std::nullopt;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return no_such_command(left.front(), names);
}

}  // namespace

int run_tuskd(int argc, char** argv, std::string_view built_from) {
  CommandLine line(built_from);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const auto unknown = unknown_command(line.app); unknown && error.get_exit_code() != 0) {
      std::fprintf(stderr, "tuskd: %s\nRun with --help for more information.\n", unknown->c_str());
      return kUsage;
    }
    const int code = line.app.exit(error);  // prints help, version or what is wrong
    return code == 0 ? 0 : kUsage;
  }
  if (line.run && !line.config_file.empty()) {
    std::fprintf(stderr,
                 "tuskd: --config in front of a command is for none of them: without a command it serves, "
                 "and those that read it take it behind their name\n");
    return kUsage;
  }
  start_logging(line.log_level);
  if (!line.run && !line.config_file.empty()) line.run = [&] { return serve(line.config_file); };
  if (!line.run) {
    std::fprintf(stderr, "%s\n", line.app.help().c_str());
    return kUsage;
  }
  if (const auto done = line.run(); !done) {
    const Error& error = done.error();
    // What is wrong with a configuration says itself which file and line.
    const std::string text = error.code == ErrorCode::kBadConfig ? error.context : error.message();
    std::istringstream lines(text);
    std::string said;
    for (std::string one; std::getline(lines, one);)
      said += (said.empty() ? "tuskd: " : "\n") + printable(one, one.size());
    std::fprintf(stderr, "%s\n", said.c_str());
    return kFailed;
  }
  return 0;
}

}  // namespace tusk::server
