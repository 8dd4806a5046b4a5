#include "fsserver/change_watch.h"

#include <spdlog/spdlog.h>
#include <sys/vfs.h>

#include <algorithm>

namespace tusk::server {
namespace {

// File systems whose every change passes through this kernel, by statfs(2)'s f_type. Of others (NFS, CIFS,
// FUSE, clusters, /proc) it hears only what is done on this machine, or nothing.
constexpr long kLocalFileSystems[] = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683E,  // btrfs
    0x01021994,  // tmpfs
    0x858458F6,  // ramfs
    0xF2F52010,  // F2FS
    0x2FC12FC1,  // ZFS
    0xCA451A4E,  // bcachefs
    0x3153464A,  // JFS
    0x3434,      // NILFS2
    0x4D44,      // vfat
    0x2011BAB0,  // exFAT
    0x7366746E,  // ntfs3
    0x73717368,  // squashfs
    0xE0F5E1E2,  // EROFS
    0x9660,      // ISO 9660
};

bool changes_pass_through_this_kernel(const Fd& root) {
  struct statfs facts {};
  if (::fstatfs(root.number(), &facts) != 0) return false;
  return std::ranges::find(kLocalFileSystems, static_cast<long>(facts.f_type)) != std::end(kLocalFileSystems);
}

}  // namespace

std::unique_ptr<ChangeWatch> start_watching(Export& exported, WatchWish wish, ChangeWatch::Events events) {
  if (wish == WatchWish::kNone) return nullptr;
  if (!changes_pass_through_this_kernel(*exported.nodes().root())) {
    spdlog::info("export '{}': its file system may change behind this machine's back, so no leases",
                 exported.name());
    return nullptr;
  }
  if (wish != WatchWish::kInotify) {
    auto watch = start_fanotify(exported, events);
    if (watch) return std::move(*watch);
    spdlog::log(wish == WatchWish::kFanotify ? spdlog::level::warn : spdlog::level::info,
                "export '{}': not watched by fanotify: {}", exported.name(), watch.error().message());
    if (wish == WatchWish::kFanotify) return nullptr;
  }
  auto watch = start_inotify(exported, std::move(events));
  if (watch) return std::move(*watch);
  spdlog::warn("export '{}': changes are not watched, so no leases: {}", exported.name(),
               watch.error().message());
  return nullptr;
}

}  // namespace tusk::server
