// Who has been told what, and must be told before it changes (docs/PROTOCOL.md, "Leases").
//
// A session that was told of a node's attributes, or of a directory's names, under a lease is entered here
// as interested before they are read. A change begins by taking that interest back: the table says what to
// push to whom, and when all have answered. An interest ends with its push: a writer beside an idle reader
// pays one round trip once, not one per WRITE. Of a directory's names the first push takes back one name;
// the next, if the session has not asked again meanwhile, takes back all.
//
// Interests are kept in two generations, so that memory is bounded: when the younger one is full, the older
// one is taken back as a whole, by the number of the lease ("floor") under which its facts were told.
//
// Exclusiveness (exclusive_table.h) is taken back in the same way, as a whole, before anybody else looks at
// one of its directories; those who look wait like those who change.
//
// Pure state: no lock, no clock, no calls. LeaseKeeper drives it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fsserver/exclusive_table.h"
#include "proto/base/time.h"

namespace tusk::server {

class Export;  // here only told apart from others

// One node that changes. Its attributes always do.
struct NodeChange {
  std::string handle;     // genuine: whoever named it was shown it by this server
  bool data = false;      // the bytes
  bool entries = false;   // any of the names
  std::string name = {};  // one name of this directory

  bool operator==(const NodeChange&) const = default;
};

struct LeaseLimits {
  Duration lease = std::chrono::seconds(10);
  // Clocks run differently, and the client reckons from its own.
  Duration slack = std::chrono::milliseconds(500);
  // How long a client that is there may take to answer a push before its connection is cut.
  Duration patience = std::chrono::seconds(4);
  // The same for exclusiveness, whose holder answers when its log is out: without a LOG, and in all. That it
  // is there it must have shown within `patience` all the same.
  Duration log_patience = std::chrono::seconds(10);
  Duration recall_patience = std::chrono::seconds(60);
  // How long nobody gets exclusively what somebody has had and others have asked for.
  Duration contested_for = std::chrono::seconds(10);
  // A client uses exclusiveness only so long after the newest packet that it knows to have arrived.
  Duration exclusive = std::chrono::seconds(2);
  Duration exclusive_slack = std::chrono::milliseconds(250);
  // After that time without a packet from a client that is asked for exclusiveness its connection is cut.
  Duration silence = std::chrono::seconds(2);
  // A right whose client let a push time out gets no leases for so long; the second time within the longer
  // time it gets none for that time.
  Duration barred_first = std::chrono::minutes(1);
  Duration barred_again = std::chrono::minutes(10);
  // A client that falls silent may have crashed or sleep: only more of them within the longer time count.
  unsigned silences_max = 4;
  std::size_t interests_per_session = 1'000'000;  // about 50 bytes each
  std::size_t interests_total = 8'000'000;
  std::size_t pushes_per_session = 1024;  // unanswered; beyond, all is taken back at once
  // Free on the file system for each that has exclusiveness: what a client may have answered and not yet sent
  // is half of the one and a quarter of the other.
  std::uint64_t room_bytes = 128ull << 20;
  std::uint64_t room_files = 65'536;
};

class LeaseTable {
 public:
  enum class ChangeId : std::uint64_t {};

  struct Push {
    SessionNumber session = 0;
    std::uint64_t number = 0;  // unique in the table
    std::vector<NodeChange> items;
    std::uint64_t floor = 0;           // not 0: everything told under leases below it
    bool changed = false;              // what the items name is new already
    std::uint64_t exclusive_over = 0;  // not 0: all exclusiveness up to this number
  };

  // Numbers of leases and of exclusiveness rise from `first` on: also above those of the server process
  // before, which clients know.
  LeaseTable(LeaseLimits limits, std::uint64_t first)
      : limits_(limits), last_lease_(first), exclusive_(limits.contested_for, first) {}

  // ---- sessions

  struct Terms {
    std::uint64_t floor = 0;
    std::uint64_t exclusive_over = 0;  // not 0: what of its exclusiveness ended while it was away
  };
  struct Client {
    const Export* exported = nullptr;
    std::string right = {};        // what let it in; empty: one of its own
    bool knows_exclusive = false;  // that exclusiveness ends sooner than leases (LeaseLimits::exclusive)
  };
  // The session has (again) a connection. Returns what to tell; pushes that were not answered are to be sent
  // again (unanswered()), and there is patience for their answers once more.
  Terms attach(SessionNumber session, TimePoint now, const Client& client);
  Terms attach(SessionNumber session, TimePoint now, const Export* exported = nullptr) {
    return attach(session, now, Client{.exported = exported});
  }
  [[nodiscard]] std::vector<Push> unanswered(SessionNumber session) const;
  // Its connection is gone, over which it was `last_heard`: it trusts what it has until its lease is over.
  void disconnect(SessionNumber session, TimePoint last_heard);
  // Sessions that have a connection and owe answers; of these note_heard() tells when they were last heard.
  // (A session of which it never does is never silent.)
  [[nodiscard]] std::vector<SessionNumber> asked() const;
  void note_heard(SessionNumber session, TimePoint at);
  // A session of the server process before, of which nobody knows what it trusts: all changes on its export
  // (nullptr: on any) wait until end(), or until its lease is over.
  void await(SessionNumber session, TimePoint now, const Export* exported);
  [[nodiscard]] bool awaits(const Export* exported) const;
  // `before` is not served any more, and its files are those of `after` (nullptr: of any export). All changes
  // on `after` wait for each session of `before`, until end() or until its lease is over.
  void replace(const Export* before, const Export* after, TimePoint now);
  // The server ends: from here on nobody is granted anything.
  void grant_nothing() { granting_ = false; }
  // Sessions that owe answers and whose leases are not over.
  [[nodiscard]] std::vector<SessionNumber> trusting(TimePoint now) const;
  // Whoever had it says that nobody trusts anything of it any more. What it has sent is done first, as far as
  // it comes without a pause. Returns the changes that may go on.
  [[nodiscard]] std::vector<ChangeId> presume_dead(SessionNumber session, TimePoint now);
  // It trusts nothing any more. Returns the changes that may go on.
  [[nodiscard]] std::vector<ChangeId> end(SessionNumber session);

  // ---- what sessions are told

  enum class Of : std::uint8_t { kNode, kNames };
  enum class Grant : std::uint8_t { kNone, kLease, kBeingChanged };  // also what is another's exclusively
  // Before the facts are read. kLease: under lease_of(session), and the session will hear of changes.
  [[nodiscard]] Grant grant(SessionNumber session, std::string_view handle, Of of);
  // The number to tell with it; 0: the session has no leases.
  [[nodiscard]] std::uint64_t lease_of(SessionNumber session) const;

  // ---- exclusiveness

  // Of the names in all of these directories or none, for a session that has interests in them: as far as
  // nobody else has any. The number to tell; 0: no.
  [[nodiscard]] std::uint64_t grant_exclusive(SessionNumber session,
                                              std::span<const std::string_view> directories, TimePoint now);
  // The same number, if it has them already.
  [[nodiscard]] std::uint64_t exclusive_number(SessionNumber session,
                                               std::span<const std::string_view> directories) const;
  [[nodiscard]] bool exclusive_of_another(SessionNumber session, std::string_view directory) const;
  [[nodiscard]] bool has_exclusive(SessionNumber session) const { return exclusive_.holds(session); }
  // Sessions other than this one that have any on the export.
  [[nodiscard]] std::size_t exclusive_others(SessionNumber session, const Export* exported) const;
  // Ended by the server itself. Nobody waits.
  [[nodiscard]] std::vector<Push> end_exclusive(SessionNumber session, TimePoint now);
  // Of the session's LOGs, in which it is at work on its answer: one has come, or the next one's turn has;
  // one has its turn, or waits for a worker; none has any more.
  enum class Log : std::uint8_t { kCame, kBegun, kDone };
  void note_log(SessionNumber session, Log what, TimePoint now);
  // It has got this push, and will answer it when it can.
  void note_there(SessionNumber session, std::uint64_t push);

  // ---- what changes

  struct Begun {
    ChangeId id{};
    std::vector<Push> pushes;
    bool may_go_on = true;           // nobody has to answer
    std::vector<ChangeId> released;  // others that may go on now
  };
  // An entry of a LOG, which others wait for when its session's exclusiveness is being taken back, waits for
  // nobody else's exclusiveness then: two could wait for each other.
  enum class From : std::uint8_t { kRequest, kLog };
  // Until end_change() nobody but `by` is granted a lease on these nodes. `by` keeps its interests: the
  // answer tells it what it needs to know.
  [[nodiscard]] Begun begin_change(SessionNumber by, const std::vector<NodeChange>& changes, TimePoint now,
                                   const Export* exported = nullptr, From from = From::kRequest);
  // Somebody is about to look at these directories: what others have of them exclusively is taken back.
  // end_change() must follow.
  [[nodiscard]] Begun begin_look(SessionNumber by, std::span<const std::string_view> directories,
                                 TimePoint now);
  void end_change(ChangeId id);
  // Somebody else has changed them already, of which `but` knows.
  struct Told {
    std::vector<Push> pushes;
    std::vector<ChangeId> released;
  };
  [[nodiscard]] Told changed(const std::vector<NodeChange>& changes, TimePoint now,
                             std::optional<SessionNumber> but = std::nullopt);
  // Changes have been missed: anything may be different for these sessions.
  [[nodiscard]] Told anything_changed(const std::function<bool(SessionNumber)>& concerned, TimePoint now);

  // The client uses nothing of it any more. Returns the changes that may go on.
  [[nodiscard]] std::vector<ChangeId> answered(SessionNumber session, std::uint64_t push);

  struct Overdue {
    std::vector<SessionNumber> to_cut;  // connected, but do not answer: their connections must end
    std::vector<SessionNumber>
        silent;  // the same; they were not heard either, and nothing is held against them
    std::vector<SessionNumber> dead;  // presumed, and not waited for any longer: the same, should they live
    std::vector<Push> pushes;         // older generations taken back for want of room
    std::vector<ChangeId> released;
  };
  [[nodiscard]] Overdue expire(TimePoint now);

  [[nodiscard]] std::size_t sessions() const { return holders_.size(); }
  [[nodiscard]] std::size_t interests() const;
  [[nodiscard]] std::size_t interests(SessionNumber session) const;
  // It has interests or exclusiveness, or has not answered that it uses no more what it had.
  [[nodiscard]] bool holds_any(SessionNumber session) const;

 private:
  using Key = std::uint64_t;
  enum class Interest : std::uint8_t {
    kWhole,
    kDisturbed,  // names: one was taken back, and nothing has been asked since
  };
  using Interests = std::unordered_map<Key, Interest>;
  struct Sent {
    Push push;
    std::vector<Key> keys;
    TimePoint at{};
    bool sent_again = false;
    bool there = false;                // who got it has been heard since
    TimePoint trusted_until = kNever;  // not even a client that never answers uses it longer
  };
  // Of a right: what its clients have done. Shared by its sessions.
  struct Conduct {
    unsigned cuts = 0;
    unsigned silences = 0;
    TimePoint last{};
    TimePoint barred_until{};
    bool barred = false;  // as of the last look at the time
  };
  struct Holder {
    std::uint64_t lease = 0;  // of the younger generation
    std::uint64_t floor = 0;
    Interests young;
    Interests old;
    std::map<std::uint64_t, Sent> sent;         // pushes not answered, by number
    std::unordered_map<Key, std::uint64_t> of;  // the newest of them about a key
    std::uint64_t blanket = 0;                  // the newest of them that is about everything
    std::uint64_t retiring = 0;                 // the push that takes the old generation back
    std::uint64_t recall = 0;                   // the push that takes its exclusiveness back
    std::uint64_t exclusive_lost = 0;           // what ended while it was away: to be told
    unsigned logs_running = 0;
    TimePoint log_at{};                   // when something was last seen of its log
    std::optional<TimePoint> gone_since;  // when it was last heard
    TimePoint heard = kNever;             // while it has a connection; kNever: nobody measures it
    bool presumed_dead = false;           // until it comes back
    bool cut_as_dead = false;
    bool cut_as_silent = false;
    bool awaited = false;  // of the server process before
    bool knows_exclusive = false;
    const Export* exported = nullptr;  // nullptr: any
    std::shared_ptr<Conduct> conduct = std::make_shared<Conduct>();
    bool cut = false;   // did not answer: gets nothing back when it comes again
    bool full = false;  // wants its older generation taken back
  };
  struct Change {
    SessionNumber by = 0;
    std::vector<Key> keys;
    std::set<std::uint64_t> waits_for;  // pushes
  };

  [[nodiscard]] static std::vector<Key> keys_of(const NodeChange& change);
  [[nodiscard]] static Interest* find(Holder& holder, Key key);
  static void forget(Holder& holder, Key key);
  [[nodiscard]] bool being_changed_by_others(Key key, SessionNumber session) const;
  [[nodiscard]] bool make_room(Holder& holder);
  void lose(SessionNumber session, Holder& holder, TimePoint now);
  void cut(Holder& holder, TimePoint now) const;
  void note_silence(Holder& holder, TimePoint now) const;
  void bar(Conduct& conduct, TimePoint now) const;
  void expire(SessionNumber session, Holder& holder, TimePoint now, Overdue& overdue);
  void forgive(TimePoint now);
  [[nodiscard]] bool late(const Holder& holder, const Sent& sent, TimePoint now) const;
  [[nodiscard]] bool over(const Holder& holder, TimePoint now) const;
  [[nodiscard]] bool exclusive_over(const Holder& holder, TimePoint now) const;
  // Its exclusiveness is over while it is away; it is told when it comes back.
  void lose_exclusive(SessionNumber session, Holder& holder, std::vector<ChangeId>& released);
  [[nodiscard]] bool silent(const Holder& holder, TimePoint now) const;
  // All changes on the export wait for its newest blanket push.
  [[nodiscard]] static bool in_the_way(const Holder& holder, const Export* exported) {
    return holder.blanket != 0 && (holder.exported == nullptr || holder.exported == exported);
  }
  [[nodiscard]] bool concerned(SessionNumber session, const Holder& holder, const std::vector<Key>& keys,
                               const Export* exported) const;
  [[nodiscard]] std::shared_ptr<Conduct> conduct_of(const std::string& right);
  // What `holder` must be told; its interests end.
  [[nodiscard]] std::vector<NodeChange> take_back(Holder& holder, const std::vector<NodeChange>& changes,
                                                  std::vector<Key>& keys);
  Push& send(SessionNumber session, Holder& holder, Push push, std::vector<Key> keys, TimePoint now);
  void take_back_all(SessionNumber session, Holder& holder, TimePoint now, std::vector<Push>& pushes);
  // Nothing is held, nothing is waited for.
  void clear(SessionNumber session, Holder& holder, std::vector<ChangeId>& released);
  // The push that takes back the exclusiveness of `holder`, which has some.
  std::uint64_t recall(SessionNumber session, Holder& holder, TimePoint now, std::vector<Push>& pushes);
  // The push to wait for before these keys are looked at; 0: none.
  std::uint64_t recall_for(SessionNumber session, Holder& holder, const std::vector<Key>& keys, TimePoint now,
                           Begun& begun);
  // Nobody else knows or changes anything of it.
  [[nodiscard]] bool free_for(SessionNumber session, std::string_view directory, TimePoint now) const;
  void end_leases_of_absent(SessionNumber but, std::string_view directory, TimePoint now);
  void wait(Change change, Begun& begun);
  void release(std::uint64_t push, std::vector<ChangeId>& released);

  // Between two LOGs of one that is dead: what is still on its way on the server's side.
  static constexpr Duration kLogPauseMax = std::chrono::milliseconds(200);

  const LeaseLimits limits_;
  std::uint64_t last_lease_;
  std::uint64_t last_push_ = 0;
  std::uint64_t last_change_ = 0;
  bool granting_ = true;
  ExclusiveTable exclusive_;
  std::map<std::string, std::shared_ptr<Conduct>> conducts_;  // by right
  std::map<SessionNumber, Holder> holders_;
  std::unordered_map<std::uint64_t, Change> changes_;                      // by ChangeId
  std::unordered_multimap<Key, SessionNumber> changing_;                   // by whom
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> waiting_;  // push: changes
};

}  // namespace tusk::server
