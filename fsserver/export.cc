#include "fsserver/export.h"

#include <spdlog/spdlog.h>

#include "proto/rpc/mount_url.h"

namespace tusk::server {
namespace {

Result<std::optional<Credentials>> credentials_for(const ExportSettings& settings) {
  if (!settings.act_as) return std::nullopt;
  TUSK_ASSIGN(Credentials credentials, Credentials::of_user(*settings.act_as));
  if (credentials.uid == Credentials::own().uid) return std::nullopt;
  if (!can_act_as_others())
    return fail(ErrorCode::kBadConfig, "export '" + settings.name + "': only root can act as '" +
                                           *settings.act_as + "'; run tuskd as that user, or as root");
  return credentials;
}

}  // namespace

Result<void> check_export_name(std::string_view name) {
  if (name.empty()) return fail(ErrorCode::kBadConfig, "an export needs a name");
  if (name.size() > rpc::kExportNameBytesMax)
    return fail(ErrorCode::kBadConfig, "an export's name has at most 255 bytes");
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos)
    return fail(ErrorCode::kBadConfig, "an export's name has no '/' and no NUL");
  return {};
}

Result<std::shared_ptr<Export>> Export::open(ExportSettings settings, const crypto::Secret& handle_secret,
                                             NodeTableSettings table) {
  TUSK_TRY(check_export_name(settings.name));
  const std::string where = "export '" + settings.name + "': " + settings.path.string();
  // The one time a path with symlinks is followed: the operator's own.
  Fd directory(::open(settings.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid())
    return fail(ErrorCode::kBadConfig, where + ": " + std::string(error_name(from_errno(errno))));

  std::shared_ptr<Export> opened(new Export);
  TUSK_ASSIGN(opened->act_as_, credentials_for(settings));
  opened->owner_ = opened->act_as_ ? *opened->act_as_ : Credentials::own();
  auto nodes = NodeTable::open(std::move(directory), settings.name, handle_secret, std::move(table));
  if (!nodes) return fail(ErrorCode::kBadConfig, where + ": " + nodes.error().message());
  opened->nodes_ = std::move(*nodes);
  opened->settings_ = std::move(settings);
  return opened;
}

bool Export::root_exists() {
  const bool exists = nodes_->root_exists();
  const bool logged = removal_logged_.exchange(!exists);
  if (!exists && !logged)
    spdlog::error("export '{}': {} has been removed; clients get errors until it is back and tuskd reloads",
                  settings_.name, settings_.path.string());
  return exists;
}

}  // namespace tusk::server
