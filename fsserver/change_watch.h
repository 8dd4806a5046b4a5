// Notices what programs on the server change in an export, beside tuskd.
//
// Three ways, by what the kernel permits: fanotify on the whole file system (root; everything is seen),
// inotify on the directories that clients have leases on (anyone; bounded), or none. What cannot be watched
// gets no leases. Neither sees writes through a mapping before the file is closed.
//
// All methods are thread-safe. Events come on a thread of the watch's own.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "fsserver/attributes.h"
#include "fsserver/export.h"
#include "fsserver/lease_table.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

enum class WatchWish : std::uint8_t { kAuto, kFanotify, kInotify, kNone };

class ChangeWatch {
 public:
  struct Events {
    std::function<void(const std::vector<NodeChange>&)> changed;
    std::function<void()> missed;  // some: anything may have changed
  };

  virtual ~ChangeWatch() = default;  // no event comes any more

  [[nodiscard]] virtual schema::ChangeWatching kind() const = 0;
  // From now on changes of the node will be noticed, under whatever name. False: they may not be.
  [[nodiscard]] virtual bool watch_node(std::string_view handle, const Status& status) = 0;
  // The same of the names in a directory.
  [[nodiscard]] virtual bool watch_names(std::string_view handle, const Fd& directory) = 0;
  // tuskd is about to make these changes, and has made them. Where events do not tell who made a change,
  // this does.
  virtual void begin_own(const std::vector<NodeChange>&) {}
  virtual void end_own(const std::vector<NodeChange>&) {}
};

// The best there is within the wish; nullptr: none. `exported` must outlive it.
[[nodiscard]] std::unique_ptr<ChangeWatch> start_watching(Export& exported, WatchWish wish,
                                                          ChangeWatch::Events events);
// Each alone, with the reason why it cannot be.
[[nodiscard]] Result<std::unique_ptr<ChangeWatch>> start_fanotify(Export& exported,
                                                                  ChangeWatch::Events events);
[[nodiscard]] Result<std::unique_ptr<ChangeWatch>> start_inotify(Export& exported,
                                                                 ChangeWatch::Events events);

}  // namespace tusk::server
