#include "fsserver/lease_keeper.h"

#include <spdlog/spdlog.h>

#include "proto/io/clock.h"

namespace tusk::server {
namespace {

// Above the numbers of every server process before this one: clients compare.
std::uint64_t first_lease() { return static_cast<std::uint64_t>(io::unix_seconds()) << 24; }

schema::Request to_request(const LeaseTable::Push& push) {
  schema::Request request;
  schema::InvalidateRequest& invalidate = *request.mutable_invalidate();
  invalidate.set_lease_floor(push.floor);
  invalidate.set_changed(push.changed);
  invalidate.set_exclusive_over(push.exclusive_over);
  for (const NodeChange& change : push.items) {
    auto& item = *invalidate.add_items();
    item.set_handle(change.handle);
    item.set_data(change.data);
    item.set_entries(change.entries);
    item.set_name(change.name);
  }
  return request;
}

}  // namespace

LeaseKeeper::LeaseKeeper(LeaseLimits limits) : limits_(limits), table_(limits, first_lease()) {}

void LeaseKeeper::reach_clients_by(rpc::Outbound* clients) {
  const std::lock_guard lock(clients_mutex_);
  clients_ = clients;
}

// ---------------------------------------------------------------- sessions

LeaseTable::Terms LeaseKeeper::attach(SessionNumber session, const rpc::Peer& peer,
                                      const LeaseTable::Client& client) {
  const std::lock_guard lock(mutex_);
  peers_[session] = peer;
  return table_.attach(session, io::now(), client);
}

void LeaseKeeper::send_again(SessionNumber session) {
  std::vector<LeaseTable::Push> pushes;
  {
    const std::lock_guard lock(mutex_);
    pushes = table_.unanswered(session);
  }
  send(pushes);
}

void LeaseKeeper::disconnect(SessionNumber session, const rpc::Peer& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(session);
  if (found == peers_.end() || found->second.connection != peer.connection) return;
  peers_.erase(found);
  table_.disconnect(session, peer.last_heard(io::now()));
}

void LeaseKeeper::await(SessionNumber session, const Export* exported) {
  const std::lock_guard lock(mutex_);
  table_.await(session, io::now(), exported);
}

void LeaseKeeper::replace(const Export& before, const Export* after) {
  const std::lock_guard lock(mutex_);
  table_.replace(&before, after, io::now());
}

bool LeaseKeeper::awaits(const Export& exported) const {
  const std::lock_guard lock(mutex_);
  return table_.awaits(&exported);
}

std::vector<SessionNumber> LeaseKeeper::take_everything_back(Duration at_most) {
  LeaseTable::Told told;
  {
    const std::lock_guard lock(mutex_);
    table_.grant_nothing();
    told = table_.anything_changed([](SessionNumber) { return true; }, io::now());
  }
  send(told.pushes);
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, at_most, [this] { return table_.asked().empty(); });
  return table_.trusting(io::now());
}

void LeaseKeeper::presume_dead(SessionNumber session) {
  Ready ready;
  {
    const std::lock_guard lock(mutex_);
    collect(table_.presume_dead(session, io::now()), ready);
  }
  run(ready);
}

void LeaseKeeper::end(SessionNumber session) {
  Ready ready;
  {
    const std::lock_guard lock(mutex_);
    peers_.erase(session);
    collect(table_.end(session), ready);
  }
  answered_.notify_all();
  run(ready);
}

void LeaseKeeper::cut(rpc::ConnectionId connection, std::string reason) {
  const std::lock_guard lock(clients_mutex_);
  if (clients_ != nullptr) clients_->disconnect(connection, std::move(reason));
}

std::uint64_t LeaseKeeper::refuse(SessionNumber session) {
  std::uint64_t newest = 0;
  {
    const std::lock_guard lock(mutex_);
    newest = table_.lease_of(session);
  }
  end(session);
  return newest == 0 ? 0 : newest + 1;
}

// ---------------------------------------------------------------- exclusiveness

std::uint64_t LeaseKeeper::grant_exclusive(SessionNumber session,
                                           std::span<const std::string_view> directories) {
  const std::lock_guard lock(mutex_);
  return table_.grant_exclusive(session, directories, io::now());
}

std::uint64_t LeaseKeeper::exclusive_number(SessionNumber session,
                                            std::span<const std::string_view> directories) const {
  const std::lock_guard lock(mutex_);
  return table_.exclusive_number(session, directories);
}

bool LeaseKeeper::exclusive_of_another(SessionNumber session, std::string_view directory) const {
  const std::lock_guard lock(mutex_);
  return table_.exclusive_of_another(session, directory);
}

bool LeaseKeeper::has_exclusive(SessionNumber session) const {
  const std::lock_guard lock(mutex_);
  return table_.has_exclusive(session);
}

std::size_t LeaseKeeper::exclusive_others(SessionNumber session, const Export& exported) const {
  const std::lock_guard lock(mutex_);
  return table_.exclusive_others(session, &exported);
}

void LeaseKeeper::end_exclusive(SessionNumber session) {
  std::vector<LeaseTable::Push> pushes;
  {
    const std::lock_guard lock(mutex_);
    pushes = table_.end_exclusive(session, io::now());
  }
  send(pushes);
}

void LeaseKeeper::note_log(SessionNumber session, LeaseTable::Log what) {
  const std::lock_guard lock(mutex_);
  table_.note_log(session, what, io::now());
}

// ---------------------------------------------------------------- facts and changes

LeaseKeeper::Granted LeaseKeeper::grant(SessionNumber session, std::string_view handle, LeaseTable::Of of) {
  const std::lock_guard lock(mutex_);
  switch (table_.grant(session, handle, of)) {
    case LeaseTable::Grant::kNone:
      return {};
    case LeaseTable::Grant::kBeingChanged:
      return {.cover = schema::COVER_ONCE};
    case LeaseTable::Grant::kLease:
      return {.cover = schema::COVER_LEASE, .lease = table_.lease_of(session)};
  }
  __builtin_unreachable();
}

std::optional<LeaseKeeper::Change> LeaseKeeper::begin_change(SessionNumber by, const Export& exported,
                                                             const std::vector<NodeChange>& changes,
                                                             LeaseTable::From from, GoOn go_on) {
  Ready ready;
  LeaseTable::Begun begun;
  std::optional<Change> now;
  {
    const std::lock_guard lock(mutex_);
    begun = table_.begin_change(by, changes, io::now(), &exported, from);
    now = put_aside_unless(begun, std::move(go_on), ready);
  }
  send(begun.pushes);
  run(ready);
  return now;
}

std::optional<LeaseKeeper::Change> LeaseKeeper::begin_look(SessionNumber by,
                                                           std::span<const std::string_view> directories,
                                                           GoOn go_on) {
  Ready ready;
  LeaseTable::Begun begun;
  std::optional<Change> now;
  {
    const std::lock_guard lock(mutex_);
    begun = table_.begin_look(by, directories, io::now());
    now = put_aside_unless(begun, std::move(go_on), ready);
  }
  send(begun.pushes);
  run(ready);
  return now;
}

std::optional<LeaseKeeper::Change> LeaseKeeper::put_aside_unless(const LeaseTable::Begun& begun, GoOn go_on,
                                                                 Ready& ready) {
  if (!begun.may_go_on) aside_.emplace(static_cast<std::uint64_t>(begun.id), std::move(go_on));
  collect(begun.released, ready);
  return begun.may_go_on ? std::optional(begun.id) : std::nullopt;
}

void LeaseKeeper::end_change(Change id) {
  const std::lock_guard lock(mutex_);
  table_.end_change(id);
}

void LeaseKeeper::changed(const std::vector<NodeChange>& changes, std::optional<SessionNumber> but) {
  Ready ready;
  LeaseTable::Told told;
  {
    const std::lock_guard lock(mutex_);
    told = table_.changed(changes, io::now(), but);
    collect(told.released, ready);
  }
  send(told.pushes);
  run(ready);
}

void LeaseKeeper::anything_changed(const std::function<bool(SessionNumber)>& concerned) {
  LeaseTable::Told told;
  {
    const std::lock_guard lock(mutex_);
    told = table_.anything_changed(concerned, io::now());
  }
  send(told.pushes);
}

bool LeaseKeeper::others_than(SessionNumber session) const {
  const std::lock_guard lock(mutex_);
  return table_.sessions() > (table_.lease_of(session) != 0 ? 1u : 0u);
}

void LeaseKeeper::collect(const std::vector<Change>& released, Ready& ready) {
  for (const Change id : released)
    if (auto found = aside_.extract(static_cast<std::uint64_t>(id)))
      ready.emplace_back(id, std::move(found.mapped()));
}

// ---------------------------------------------------------------- pushes and answers

void LeaseKeeper::send(const std::vector<LeaseTable::Push>& pushes) {
  for (const LeaseTable::Push& push : pushes) {
    rpc::ConnectionId connection;
    {
      const std::lock_guard lock(mutex_);
      const auto found = peers_.find(push.session);
      if (found == peers_.end()) continue;  // send_again() when it comes back
      connection = found->second.connection;
    }
    const std::lock_guard lock(clients_mutex_);
    if (clients_ == nullptr) return;
    if (push.exclusive_over != 0) ask_whether_there(connection, push);
    clients_->call(connection, {.message = to_request(push), .body = {}, .reply_body = {}},
                   [this, session = push.session, number = push.number](const Result<rpc::CallReply>& reply) {
                     // Without an answer it is sent again, or its lease runs out.
                     if (reply) answered(session, number);
                   });
  }
}

// That a client is dead shows long before its log is due. Nothing is asked of it, so it answers at once.
void LeaseKeeper::ask_whether_there(rpc::ConnectionId connection, const LeaseTable::Push& push) {
  clients_->call(connection, {},
                 [this, session = push.session, number = push.number](const Result<rpc::CallReply>& reply) {
                   if (!reply) return;
                   const std::lock_guard lock(mutex_);
                   table_.note_there(session, number);
                 });
}

void LeaseKeeper::answered(SessionNumber session, std::uint64_t push) {
  Ready ready;
  {
    const std::lock_guard lock(mutex_);
    collect(table_.answered(session, push), ready);
  }
  answered_.notify_all();
  run(ready);
}

bool LeaseKeeper::housekeep(TimePoint now) {
  Ready ready;
  std::vector<std::pair<rpc::ConnectionId, const char*>> to_cut;
  LeaseTable::Overdue overdue;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    for (const SessionNumber session : table_.asked())
      if (const auto found = peers_.find(session); found != peers_.end())
        table_.note_heard(session, found->second.last_heard(kNever));
    overdue = table_.expire(now);
    collect(overdue.released, ready);
    const auto cut_all = [&](const std::vector<SessionNumber>& sessions, const char* why) {
      for (const SessionNumber session : sessions)
        if (const auto found = peers_.find(session); found != peers_.end())
          to_cut.emplace_back(found->second.connection, why);
    };
    cut_all(overdue.to_cut, "leases were not given back in time");
    cut_all(overdue.silent, "others want what it has, and it is silent");
    cut_all(overdue.dead, "its mount is said to be dead");
    waits = !aside_.empty();
  }
  send(overdue.pushes);
  for (const auto& [connection, why] : to_cut) {
    spdlog::warn("a client is disconnected: {}", why);
    cut(connection, why);
  }
  run(ready);
  return waits;
}

void LeaseKeeper::drop_put_aside() {
  std::unordered_map<std::uint64_t, GoOn> dropped;  // after the mutex
  const std::lock_guard lock(mutex_);
  dropped.swap(aside_);
}

bool LeaseKeeper::holds_any(SessionNumber session) const {
  const std::lock_guard lock(mutex_);
  return table_.holds_any(session);
}

std::size_t LeaseKeeper::interests(SessionNumber session) const {
  const std::lock_guard lock(mutex_);
  return table_.interests(session);
}

}  // namespace tusk::server
