#include "fsclient/cli.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "fsclient/known_servers.h"
#include "fsclient/mount_command.h"
#include "fsclient/mount_settings.h"
#include "fsclient/mount_table.h"
#include "fsclient/status.h"
#include "fsclient/umount_command.h"
#include "fsclient/url_file.h"
#include "fsclient/warm_command.h"
#include "proto/base/suggestion.h"
#include "proto/base/text.h"

namespace tusk::client {

int complain(int code, const std::string& text) {
  fmt::print(stderr, "tusk: {}\n", printable(text, text.size()));
  return code;
}

namespace {

// ---------------------------------------------------------------- mount

// The secret in the URL is nothing for other users' process lists.
void hide_secrets(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "tusk://", 7) == 0)
      if (char* secret = std::strchr(argv[i], '#')) std::memset(secret + 1, '*', std::strlen(secret + 1));
}

struct MountArguments {
  std::optional<std::string> first, second;  // URL and MOUNTPOINT, or MOUNTPOINT alone
  std::string url_file;
  std::string state_directory = default_state_directory().string();
  std::vector<std::string> options;
  bool foreground = false;
};

int mount_as_asked(const MountArguments& arguments) {
  MountSettings settings;
  settings.foreground = arguments.foreground;
  for (const std::string& list : arguments.options)
    if (const Result<void> applied = apply_options(list, settings); !applied)
      return complain(kUsage, applied.error().context);
  if (!arguments.url_file.empty()) settings.url_file = arguments.url_file;
  const Result<MountWords> said = mount_words(arguments.first, arguments.second, !settings.url_file.empty());
  if (!said) return complain(kUsage, said.error().context);
  Result<rpc::MountUrl> parsed = mount_url(said->url, settings.url_file);
  if (!parsed) return complain(kUsage, parsed.error().context);
  if (said->url.find('#') != std::string::npos && !parsed->token.empty())
    fmt::print(stderr,
               "tusk: warning: other users can see a token on a command line while it starts: tusk mount - "
               "reads the URL from standard input, --url-file from a file\n");
  settings.url = std::move(*parsed);
  settings.mountpoint = said->mountpoint;
  settings.state_directory = std::filesystem::absolute(arguments.state_directory);
  if (const Result<void> checked = check_options(settings); !checked)
    return complain(kUsage, checked.error().context);
  return mount_at(std::move(settings));
}

// ---------------------------------------------------------------- status

Result<std::string> status_of(const std::filesystem::path& socket) {
  std::string json;
  TUSK_TRY(control(socket, "status", [&json](std::string_view line) { json += line; }));
  return json;
}

int print_status(const std::string& json, bool as_json) {
  const Result<std::string> text = as_json ? Result<std::string>(json + "\n") : status_text(json);
  if (!text) return complain(kNoStatus, text.error().message());
  fmt::print("{}", *text);
  return 0;
}

int status(const std::string& mountpoint, bool as_json) {
  if (const Result<void> ours = check_control_directory(); !ours)
    return complain(kNoStatus, ours.error().context);
  if (!mountpoint.empty()) {
    const std::filesystem::path place = resolve_mountpoint(mountpoint);
    const auto socket = control_socket(place);
    const Result<std::string> json = socket ? status_of(*socket) : fail(ErrorCode::kUnreachable);
    if (json) return print_status(*json, as_json);
    return complain(kNoStatus, json.error().code == ErrorCode::kUnreachable
                                   ? place.string() + " is not mounted by Tusk (or by another user)"
                                   : json.error().message());
  }
  std::vector<std::string> all;
  for (const auto& socket : control_sockets())
    if (auto json = status_of(socket)) all.push_back(std::move(*json));
  if (as_json) {
    fmt::print("[{}]\n", fmt::join(all, ",\n "));
    return 0;
  }
  if (all.empty()) fmt::print("nothing is mounted\n");
  for (const std::string& json : all)
    if (const int code = print_status(json, false); code != 0) return code;
  return 0;
}

// ---------------------------------------------------------------- command lines that make no sense

constexpr std::string_view kUrlStart = "tusk://";

// What CLI11 says of a command that there is not would be that one is missing. Nothing if that is not it.
// Never says what was written where a URL could stand: that may hold a secret.
std::optional<std::string> unknown_command(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  if (!app.get_subcommands().empty() || left.empty() || left.front().starts_with('-')) return std::nullopt;
  if (left.front().starts_with(kUrlStart))
    return "what is to be done with the URL? tusk mount URL MOUNTPOINT";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return no_such_command(left.front(), names) + " (tusk --help)";
}

constexpr const char* kExamples = R"(Examples:
  echo 'tusk://files.example.org/data#TOKEN' | tusk mount - /mnt/data    what `tuskd share` printed
  tusk mount --url-file ~/.config/tusk/data.url /mnt/data         a URL that a file of mode 0600 keeps
  tusk mount -o ro,cache_mem=1G tusk://[2001:db8::7]:8875/data /mnt/data
  tusk mount -o cache=$HOME/.cache/tusk,cache_size=50G URL /mnt/data   what was read is read from here tomorrow
  tusk pin /mnt/data/films/today                                  brings it here, and keeps it
  tusk status /mnt/data
  tusk umount /mnt/data                                           waits until all is on the server)";

}  // namespace

int run_command_line(int argc, char** argv, std::string_view built_from) {
  CLI::App app("Mounts directories of a far tuskd as if they were near.", "tusk");
  app.set_version_flag("--version", fmt::format("tusk {} ({})", TUSK_VERSION, built_from));
  app.require_subcommand(1);
  app.footer(kExamples);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("tusk: {} (tusk --help, tusk mount --help)\n", error.what());
  });
  std::string log_level = "warning";
  app.add_option("--log-level", log_level,
                 "trace, debug, info, warning, error (to stderr; syslog in the background)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}));

  MountArguments arguments;
  std::string mountpoint;
  CLI::App* mount_command = app.add_subcommand("mount", "Mount an export; returns when it can be used");
  mount_command->add_option("URL", arguments.first,
                            "tusk://HOST[:PORT]/EXPORT[#TOKEN], or - for a line of standard input");
  mount_command->add_option("MOUNTPOINT", arguments.second, "an existing directory");
  mount_command
      ->add_option("--url-file", arguments.url_file,
                   "read the URL from FILE, of mode 0600, or from standard input (-): a token on a command "
                   "line is seen by other users")
      ->type_name("FILE");
  mount_command->add_option("-o", arguments.options, "options, comma-separated (below)")
      ->allow_extra_args(false);
  mount_command->add_flag("-f,--foreground", arguments.foreground, "serve in the foreground, log to stderr");
  mount_command->add_option("--state-dir", arguments.state_directory, "our key and the keys of known servers")
      ->capture_default_str();
  mount_command->footer(options_help());

  UmountWay way = UmountWay::kPlain;
  bool as_json = false;
  CLI::App* umount_command = app.add_subcommand("umount", "Bring everything to the server, then unmount");
  umount_command->add_option("MOUNTPOINT", mountpoint)->required();
  umount_command->add_flag_callback(
      "-l,--lazy", [&way] { way = std::max(way, UmountWay::kLazy); },
      "at once, also while it is in use: its daemon sends the rest in the background");
  umount_command->add_flag_callback(
      "-f,--force", [&way] { way = UmountWay::kForce; },
      "at once, and ends its daemon: what is not on the server is lost");

  CLI::App* status_command = app.add_subcommand("status", "How a mount is doing");
  status_command->add_option("MOUNTPOINT", mountpoint, "default: all of this user's mounts");
  status_command->add_flag("--json", as_json, "for programs: one object, or a list without MOUNTPOINT");

  std::vector<std::string> paths;
  const auto add_paths_command = [&](const std::string& name, const std::string& what) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("PATH", paths, "files or folders on a mount with -o cache=DIR")->required();
    return command;
  };
  CLI::App* warm_command = add_paths_command("warm", "Bring what is below PATH to the disk cache");
  CLI::App* pin_command =
      add_paths_command("pin", "Bring it there and keep it there, with what is added to it");
  CLI::App* unpin_command = add_paths_command("unpin", "It may go again when there is no room");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const auto unknown = unknown_command(app); unknown && error.get_exit_code() != 0)
      return complain(kUsage, *unknown);
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  hide_secrets(argc, argv);
  spdlog::set_level(spdlog::level::from_str(log_level));
  if (umount_command->parsed()) return umount_at(resolve_mountpoint(mountpoint), way);
  if (status_command->parsed()) return status(mountpoint, as_json);
  if (warm_command->parsed()) return warm_paths(paths);
  if (pin_command->parsed()) return pin_paths(paths);
  if (unpin_command->parsed()) return unpin_paths(paths);

  return mount_as_asked(arguments);
}

}  // namespace tusk::client
