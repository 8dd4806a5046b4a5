// The lease table at work: many threads, the clock, pushes to clients and their answers, and changes that
// wait until they may be made.
//
// Thread-safe. Nothing here waits: a change that must wait is put aside and handed back when its time has
// come.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsserver/lease_table.h"
#include "proto/base/time.h"
#include "proto/rpc/service.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

class LeaseKeeper {
 public:
  using Change = LeaseTable::ChangeId;
  // Runs once the change may be made, on any thread; must not block.
  using GoOn = std::move_only_function<void(Change)>;

  explicit LeaseKeeper(LeaseLimits limits);

  [[nodiscard]] Duration lease() const { return limits_.lease; }
  [[nodiscard]] const LeaseLimits& limits() const { return limits_; }
  // The way to the clients; nullptr: there is none (any more). It must outlive its being set.
  void reach_clients_by(rpc::Outbound* clients);

  // ---- sessions
  // The floor to tell in the answer; then, once that is on its way, send_again().
  [[nodiscard]] LeaseTable::Terms attach(SessionNumber session, const rpc::Peer& peer,
                                         const LeaseTable::Client& client);
  void send_again(SessionNumber session);
  // Not if it has another connection by now.
  void disconnect(SessionNumber session, const rpc::Peer& peer);
  // A session of the server process before (LeaseTable says what it means).
  void await(SessionNumber session, const Export* exported);
  [[nodiscard]] bool awaits(const Export& exported) const;
  // (LeaseTable says what it means.) The caller ends the connections of their sessions.
  void replace(const Export& before, const Export* after);
  // Before the server ends: nobody is granted anything any more, and everything is taken back. Waits for the
  // answers, but not for longer. Returns the sessions that may trust something all the same.
  [[nodiscard]] std::vector<SessionNumber> take_everything_back(Duration at_most);
  void presume_dead(SessionNumber session);
  void end(SessionNumber session);
  // Ends a connection that nobody is at the other end of any more.
  void cut(rpc::ConnectionId connection, std::string reason);
  // It gets no leases any more. Returns the floor to tell; 0: it had none.
  [[nodiscard]] std::uint64_t refuse(SessionNumber session);

  // ---- facts
  struct Granted {
    schema::Cover cover = schema::COVER_LIFETIME;
    std::uint64_t lease = 0;
  };
  [[nodiscard]] Granted grant(SessionNumber session, std::string_view handle, LeaseTable::Of of);

  // ---- exclusiveness (LeaseTable says what each means)
  [[nodiscard]] std::uint64_t grant_exclusive(SessionNumber session,
                                              std::span<const std::string_view> directories);
  [[nodiscard]] std::uint64_t exclusive_number(SessionNumber session,
                                               std::span<const std::string_view> directories) const;
  [[nodiscard]] bool exclusive_of_another(SessionNumber session, std::string_view directory) const;
  [[nodiscard]] bool has_exclusive(SessionNumber session) const;
  [[nodiscard]] std::size_t exclusive_others(SessionNumber session, const Export& exported) const;
  void end_exclusive(SessionNumber session);
  void note_log(SessionNumber session, LeaseTable::Log what);

  // ---- changes
  // The change, if it may be made at once; `go_on` is dropped then. Else `go_on` gets it later. Either way
  // end_change() must follow.
  [[nodiscard]] std::optional<Change> begin_change(SessionNumber by, const Export& exported,
                                                   const std::vector<NodeChange>& changes,
                                                   LeaseTable::From from, GoOn go_on);
  // The same before these directories are looked at.
  [[nodiscard]] std::optional<Change> begin_look(SessionNumber by,
                                                 std::span<const std::string_view> directories, GoOn go_on);
  void end_change(Change id);
  // `but`: knows already.
  void changed(const std::vector<NodeChange>& changes, std::optional<SessionNumber> but = std::nullopt);
  void anything_changed(const std::function<bool(SessionNumber)>& concerned);
  // There is somebody but `session` whose leases could be in the way.
  [[nodiscard]] bool others_than(SessionNumber session) const;

  // True: changes wait, so it is to be called again soon.
  bool housekeep(TimePoint now);
  // They will not be made: the service ends.
  void drop_put_aside();
  [[nodiscard]] std::size_t interests(SessionNumber session) const;
  [[nodiscard]] bool holds_any(SessionNumber session) const;

 private:
  // What is to be done once mutex_ is let go.
  using Ready = std::vector<std::pair<Change, GoOn>>;
  // With mutex_ held.
  void collect(const std::vector<Change>& released, Ready& ready);
  static void run(Ready& ready) {
    for (auto& [change, go_on] : ready) go_on(change);
  }
  [[nodiscard]] std::optional<Change> put_aside_unless(const LeaseTable::Begun& begun, GoOn go_on,
                                                       Ready& ready);
  void send(const std::vector<LeaseTable::Push>& pushes);
  // With clients_mutex_ held.
  void ask_whether_there(rpc::ConnectionId connection, const LeaseTable::Push& push);
  void answered(SessionNumber session, std::uint64_t push);

  const LeaseLimits limits_;
  mutable std::mutex mutex_;
  LeaseTable table_;
  std::condition_variable answered_;
  std::unordered_map<SessionNumber, rpc::Peer> peers_;  // of those that have a connection
  std::unordered_map<std::uint64_t, GoOn> aside_;       // by Change

  std::mutex clients_mutex_;  // after mutex_
  rpc::Outbound* clients_ = nullptr;
};

}  // namespace tusk::server
