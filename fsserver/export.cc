#include "fsserver/export.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>

#include "fsserver/confined.h"
#include "proto/rpc/mount_url.h"

namespace tusk::server {
// The one time a path with symlinks is followed: the operator's own.
Result<Fd> open_exported_directory(const std::filesystem::path& path) {
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid())
    return fail(ErrorCode::kBadConfig, path.string() + ": " + std::string(error_name(from_errno(errno))));
  return directory;
}

Result<std::optional<Credentials>> acting_user(const std::optional<std::string>& user) {
  if (!user) return std::nullopt;
  TUSK_ASSIGN(Credentials credentials, Credentials::of_user(*user));
  if (credentials.uid == Credentials::own().uid) return std::nullopt;
  if (!can_act_as_others())
    return fail(ErrorCode::kBadConfig,
                "only root can act as '" + *user + "'; run tuskd as that user, or as root");
  return credentials;
}

namespace {

std::unexpected<Error> unusable(const ExportSettings& settings, const std::string& why) {
  return fail(ErrorCode::kBadConfig, "export '" + settings.name + "': " + why);
}

struct Wanted {
  Fd directory;
  std::optional<Credentials> act_as;
};

Result<Wanted> wanted_of_this_machine(const ExportSettings& settings) {
  TUSK_TRY(rpc::check_export_name(settings.name));
  auto directory = open_exported_directory(settings.path);
  if (!directory) return unusable(settings, directory.error().context);
  auto act_as = acting_user(settings.act_as);
  if (!act_as) return unusable(settings, act_as.error().context);
  return Wanted{std::move(*directory), std::move(*act_as)};
}

}  // namespace

Result<void> check_export(const ExportSettings& settings) {
  TUSK_TRY(wanted_of_this_machine(settings));
  return {};
}

Result<std::shared_ptr<Export>> Export::open(ExportSettings settings, const crypto::Secret& handle_secret,
                                             NodeTableSettings table,
                                             std::shared_ptr<OwnerRights> owner_rights) {
  TUSK_ASSIGN(Wanted wanted, wanted_of_this_machine(settings));
  auto nodes = NodeTable::open(std::move(wanted.directory), settings.name, handle_secret, std::move(table));
  if (!nodes) return unusable(settings, settings.path.string() + ": " + nodes.error().message());

  std::shared_ptr<Export> opened(new Export);
  opened->act_as_ = std::move(wanted.act_as);
  opened->owner_ = opened->act_as_ ? *opened->act_as_ : Credentials::own();
  opened->nodes_ = std::move(*nodes);
  opened->owner_rights_ = std::move(owner_rights);
  opened->settings_ = std::move(settings);
  return opened;
}

Result<Fd> Export::reopen_as_owner(const Fd& node, const Status& status, int access) const {
  if (status.stx_uid != owner_uid()) return fail(from_errno(EACCES), "another user's file");
  if (act_as_) {
    const ActingAsServer privileged;
    return reopen(node, access);
  }
  if (!owner_rights_) return fail(from_errno(EACCES), "open");
  return owner_rights_->reopen(node, access);
}

bool overlap(Export& one, Export& other) {
  struct stat first {};
  struct stat second {};
  const bool known = ::fstat(one.nodes().root()->number(), &first) == 0 &&
                     ::fstat(other.nodes().root()->number(), &second) == 0;
  if (known && first.st_dev == second.st_dev && first.st_ino == second.st_ino) return true;
  const auto place_of = [](const Export& exported) {
    std::error_code error;  // a directory that is gone: by its name
    auto place = std::filesystem::canonical(exported.settings().path, error);
    return error ? exported.settings().path.lexically_normal() : place;
  };
  const std::filesystem::path here = place_of(one);
  const std::filesystem::path there = place_of(other);
  const auto [rest_here, rest_there] = std::ranges::mismatch(here, there);
  return rest_here == here.end() || rest_there == there.end();
}

bool Export::root_exists() {
  const bool exists = nodes_->root_exists();
  const bool logged = removal_logged_.exchange(!exists);
  if (!exists && !logged)
    spdlog::error(
        "export '{}': {} has been removed; clients get errors. When it is back, start tuskd again (one that "
        "has a configuration file: or send it SIGHUP), and mount again",
        settings_.name, settings_.path.string());
  return exists;
}

}  // namespace tusk::server
