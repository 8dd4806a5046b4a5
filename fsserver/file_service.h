// The file server as the network sees it: who may enter, which operation runs, on which thread, once.
//
// Everything that holds for all operations is here and nowhere else: calls before an attach are refused,
// mutations of read-only exports are refused, repeats are answered from memory, cancelled calls are not
// begun (and let go at once), disk work is not done on the network's thread. The operations are in
// operations.h.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fsserver/access_store.h"
#include "fsserver/call.h"
#include "fsserver/change_gate.h"
#include "fsserver/change_watch.h"
#include "fsserver/commits.h"
#include "fsserver/export.h"
#include "fsserver/lease_grace.h"
#include "fsserver/lease_keeper.h"
#include "fsserver/lock_table.h"
#include "fsserver/locking_sessions.h"
#include "fsserver/log_limit.h"
#include "fsserver/operations.h"
#include "fsserver/session.h"
#include "fsserver/waiting_call.h"
#include "fsserver/worker_pool.h"
#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/io/clock.h"
#include "proto/rpc/service.h"

namespace tusk::server {

constexpr std::uint32_t kSchemaVersion = 1;
constexpr std::size_t kClientNameBytesMax = 255;
constexpr std::size_t kHeldBackMax = 65'536;  // calls that come while the server shuts down

// How long a mount may be away and find its open files, locks and remembered replies again.
constexpr Duration kSessionKeepDefault = 10min;
// The same when it has none of these.
constexpr Duration kEmptySessionKeep = 5s;

// How long after a restart those who had locks have time to come back, while nobody else gets any. A client
// that has nothing to ask notices a crash by its keep-alives that nobody answers, some 20 s later.
constexpr Duration kLockGraceDefault = 45s;
constexpr int kLocksReclaimedMax = 1'024;  // of one mount; an ATTACH has no room for more

constexpr Duration kLockKeepDefault = 30s;

struct FileServiceOptions {
  std::vector<std::shared_ptr<Export>> exports;
  // Tokens and keys allowed beside those in the exports' settings. nullptr: only those.
  std::shared_ptr<AccessStore> access;
  std::string server_name;
  unsigned workers = kWorkersDefault;
  // Of all rights together; of each what right_share() says.
  std::size_t sessions_max = 4096;
  std::size_t connections_max = 4096;
  std::size_t descriptors_max = 262'144;         // open files, locked files, directories between two pages
  ByteCount early_log_bytes_max = 512ull << 20;  // of LOGs that have come before their turn
  ByteCount reply_memory_max = 1ull << 30;       // bulk replies waiting for all clients
  std::uint32_t attr_lifetime_ms = 1000;
  Duration session_keep = kSessionKeepDefault;
  // After that time a mount that is away keeps locks only as long as nobody else wants them.
  Duration lock_keep = kLockKeepDefault;
  // Where it is kept who has locks. Empty: locks do not survive a restart.
  std::filesystem::path lockers_dir;
  Duration lock_grace = kLockGraceDefault;
  // Where it is kept who has leases. Empty: after a crash nobody is waited for.
  std::filesystem::path leasers_dir;
  // Where it is kept under which verifiers changes were answered. Empty: each process has its own.
  std::filesystem::path commits_dir;
  DiskSync disk;
  // Looks after idle things once a second, while there are any. Off: the owner calls housekeep().
  bool own_housekeeping = true;
  // After each mount that has come, on a worker thread; not for its further connections. May be empty.
  std::function<void()> attached;
  // Makes what notices changes by programs on the server; nullptr, or an answer of nullptr: clients get no
  // leases.
  std::function<std::unique_ptr<ChangeWatch>(Export&, ChangeWatch::Events)> watch;
  LeaseLimits leases;
  // After each mutation, on its worker thread, before the reply: the export and the handles of the nodes
  // that changed. Also after a change of a file that failed, which may have been made in part.
  std::function<void(Export&, const std::vector<std::string>& handles)> mutated;
};

// One line of `tuskd clients`.
struct ConnectedClient {
  rpc::Peer peer;
  std::string client_name;
  std::string export_name;
  Access access = Access::kReadOnly;
  std::int64_t since_unix_s = 0;
  std::size_t open_files = 0;
  std::size_t leases = 0;  // nodes and directories whose facts it may use without asking
};

// All methods are thread-safe.
class FileService : public rpc::Service {
 public:
  explicit FileService(FileServiceOptions options);
  // No call may come any more; running ones are finished.
  ~FileService() override;

  void handle_call(std::unique_ptr<rpc::IncomingCall> incoming) override;
  void handle_disconnect(const rpc::Peer& peer, bool for_good) override;

  // The way to take leases back. Without it there are none. nullptr: the way is about to end.
  void reach_clients_by(rpc::Outbound* clients);

  // Exports as they are from now on. Connections to exports that are gone, changed (another object) or
  // watched in another way are returned: they should be disconnected, so that they attach anew.
  [[nodiscard]] std::vector<rpc::ConnectionId> replace_exports(std::vector<std::shared_ptr<Export>> exports);

  // Connections whose right has been taken away, made weaker or has run out since they attached: they should
  // be disconnected. Cheap when no right has changed.
  [[nodiscard]] std::vector<rpc::ConnectionId> without_right(std::int64_t now_unix_s);

  // Ends leases that are over and sessions that were away too long, tries locks again, lets go idle
  // descriptors.
  void housekeep(TimePoint now);

  // The first step of a clean end: takes all leases back and waits for the answers, but not for longer. Those
  // who did not answer are waited for by the next server process.
  void end_leases(Duration at_most);
  // How long changes may still have to wait for mounts that were there before a crash; zero: they do not.
  [[nodiscard]] Duration grace_remaining(TimePoint now) const;

  // Waits for the running calls; false if they take longer than `at_most`. Calls that come from now on stay
  // without an answer: their clients ask the next server.
  bool drain(Duration at_most);

  // The last step of a clean end: nothing runs any more, and what was changed goes to the disk. False: that
  // takes longer than `at_most`, and a thread is still at it.
  [[nodiscard]] bool commit_everything(Duration at_most);

  [[nodiscard]] std::vector<ConnectedClient> clients() const;
  [[nodiscard]] std::size_t sessions() const;

 private:
  // All of housekeep() but the leases and the locks: it touches files.
  void keep_files(TimePoint now);
  // True: a program on the server is in the way of some.
  bool retry_locks();
  // Calls `pass` about once a second, or as soon as it says; not while there is nothing to keep.
  void keep_house(const std::stop_token& stop, const std::function<Duration()>& pass);
  [[nodiscard]] bool nothing_to_keep();
  void something_to_keep();
  using Incoming = std::shared_ptr<rpc::IncomingCall>;
  using Waiting = std::shared_ptr<WaitingCall>;
  using Work = std::move_only_function<void(const Incoming&)>;
  // Export, client key, the id that the mount chose: nobody can take over another client's session.
  using SessionKey = std::tuple<std::string, crypto::Fingerprint, std::string>;
  struct SessionEntry {
    std::shared_ptr<Session> session;
    std::size_t connections = 0;  // without lanes
    TimePoint idle_since{};       // while connections == 0
    std::size_t lanes = 0;
    std::weak_ptr<Attachment> main;  // the newest that is no lane
  };

  static void refuse(WaitingCall& waiting, ErrorCode code, std::string why);
  // It came over a lane of a session without a main connection, or over a main connection that another has
  // taken the place of: the client asks again over another, or has.
  [[nodiscard]] static bool is_astray(const Attachment& attachment);
  // With admission_ held.
  void hold_back(const Waiting& waiting);
  // `work` on a worker, unless the call is cancelled before its turn.
  void enqueue(const WorkerPool::Flow& flow, Lane lane, const Waiting& waiting, Work work);
  [[nodiscard]] WorkerPool::Flow flow_of(const rpc::Peer& peer, const Attachment* attachment);
  void submit(const Operation& operation, ByteCount body_bytes, const Waiting& waiting,
              std::shared_ptr<Attachment> attachment);
  // A call that has been let in, on a worker.
  struct Admitted {
    const Operation* operation;
    Incoming incoming;
    std::shared_ptr<Attachment> attachment;
    BodyBudget::Reservation reservation;
    std::optional<LogTerms> log = std::nullopt;  // it is an entry of a LOG
    bool looked_twice = false;
    ChangeGate::Pass pass = {};  // of a change that is being carried out
  };
  using SharedAdmitted = std::shared_ptr<Admitted>;
  void run(Admitted call);
  // Takes back what others have exclusively of the directories; then, maybe later, goes on.
  void begin_look(Admitted call, std::span<const std::string_view> directories);
  // The LOOKUP of a directory that somebody else has exclusively: known only by its result.
  [[nodiscard]] static bool has_met_exclusive(const Call& call);
  // Somebody may trust what a change of this one makes wrong; also where nobody is told leases (any more).
  [[nodiscard]] bool must_ask(const Attachment& attachment) const;
  // Takes back what others hold of what the call is going to change; then, maybe later, it is carried out.
  void begin_change(Admitted call);
  struct Foreseen {
    std::vector<NodeChange> changes;
    bool victims = false;  // also the files whose names it takes away
    LeaseKeeper::Change change{};
  };
  using SharedForeseen = std::shared_ptr<Foreseen>;
  // Carries it out, if it is still wanted; later, if what came over an older connection is not done yet.
  // `foreseen`: null: nobody has leases.
  void finish_change(const SharedAdmitted& call, const SharedForeseen& foreseen);
  [[nodiscard]] ChangeGate::Verdict enter_gate(Admitted& call);
  // Its client has no use for what was opened for it.
  [[nodiscard]] bool nobody_waits_for(const Admitted& call) const;
  // Once it is done and before it is answered, with the handles of the nodes that it has changed.
  using Made = std::function<void(const std::vector<std::string>& changed)>;
  void carry_out(Admitted call, const Made& made);
  struct Started;
  using SharedStarted = std::shared_ptr<Started>;
  // Its operation has more to do than one turn is for.
  void go_on(const SharedStarted& started, const Made& made);
  void finish(Started& started, const Made& made);
  void cancel_wait(const WorkerPool::Flow& flow, LockWaitId wait);
  [[nodiscard]] static bool begin_once(const Admitted& call);
  // True: it is new, and to be carried out. Else it has been answered, or will be.
  [[nodiscard]] static bool begin_in(ReplyMemory& memory, std::uint64_t sequence, std::uint64_t done_below,
                                     const Incoming& incoming, ReplyMemory::Wanted wanted = nullptr);
  void execute(const Operation& operation, Call& call);

  // LOGs: file_service_log.cc.
  using SharedSession = std::shared_ptr<Session>;
  using SharedStream = std::shared_ptr<LogStream>;
  void take_in_log(const Incoming& incoming, const Waiting& waiting,
                   const std::shared_ptr<Attachment>& attachment);
  enum class LogTurn : std::uint8_t { kIts, kNot };
  static constexpr const char* kTooManyCalls = "too many calls at once";
  void submit_log(const SharedSession& session, LogTicket ticket, LogTurn turn);
  void pass_log_turn(const SharedSession& session, LogStream& stream);
  void run_log(const SharedSession& session, const LogTicket& ticket, LogTurn turn);
  void refuse_early_log(WaitingCall& waiting, const Attachment& attachment);
  [[nodiscard]] static bool begin_log_once(const Incoming& incoming, LogStream& stream);
  void carry_out_log(const Incoming& incoming, const std::shared_ptr<Attachment>& attachment,
                     const SharedStream& stream);
  void finish_log(const Incoming& incoming, Attachment& attachment, LogStream& stream, std::uint64_t verifier,
                  schema::Reply reply);

  void answer_attach(const Incoming& incoming);
  void tell_root(const Incoming& incoming, const std::shared_ptr<Attachment>& attachment,
                 schema::AttachReply& attached);
  void answer_detach(const Incoming& incoming);
  [[nodiscard]] Result<schema::Reply> attach(const rpc::IncomingCall& incoming);
  // Who asks, for which export, with what right; of no session yet.
  [[nodiscard]] Result<std::shared_ptr<Attachment>> enter(const rpc::IncomingCall& incoming) const;
  [[nodiscard]] Result<schema::Reply> attach_lane(const std::shared_ptr<Attachment>& attachment,
                                                  const schema::AttachRequest& request);
  struct Right {
    std::shared_ptr<Export> exported;
    Access access;
    bool listed;  // the key is
  };
  [[nodiscard]] Result<Right> right_to_enter(const crypto::Fingerprint& key, const std::string& export_name,
                                             std::string_view token, std::int64_t now_unix_s) const;
  // True: it was there already.
  [[nodiscard]] Result<bool> join_session(Attachment& attachment, const schema::AttachRequest& request);
  void await_lockers();
  void await_leasers();
  // Which of the locks that the mount says to have it has, as indices into the request's.
  [[nodiscard]] std::vector<std::uint32_t> locks_kept(const Attachment& attachment,
                                                      const schema::AttachRequest& request);
  // It is not waited for any longer. With the last one everybody gets locks again.
  void stop_awaiting(const std::string& session);
  [[nodiscard]] schema::Reply welcome(const Attachment& attachment, schema::Node root, bool resumed) const;
  void detach(const rpc::Peer& peer);
  // What the request says of this client's other sessions.
  void presume_dead(const Attachment& attachment, const schema::AttachRequest& request);
  // False: it is none.
  [[nodiscard]] bool leave_lane(rpc::ConnectionId connection);
  // A session that is not found any more, and how often it had attached when it was taken out: what its name
  // stands for after that is its successor's.
  struct Ended {
    std::shared_ptr<Session> session;
    std::uint64_t attaches = 0;
  };
  // With mutex_ held.
  [[nodiscard]] Ended ended_now(std::shared_ptr<Session> session) const;
  void end(const Ended& ended);

  // With mutex_ held.
  // `gate`: that of the session whose place it takes; null: of none.
  [[nodiscard]] Result<std::shared_ptr<Session>> new_session(const Attachment& attachment,
                                                             const std::string& name,
                                                             std::shared_ptr<ChangeGate> gate);
  // Before the export has a client.
  void begin_commits(Export& exported);
  [[nodiscard]] bool holds_nothing(const Session& session) const;
  [[nodiscard]] SessionEntry* entry_of(const Attachment& attachment);
  [[nodiscard]] std::optional<rpc::ConnectionId> note_main(const std::shared_ptr<Attachment>& attachment);
  void leave_session(const Attachment& attachment);
  [[nodiscard]] std::shared_ptr<Attachment> attachment_of(rpc::ConnectionId connection) const;
  [[nodiscard]] std::shared_ptr<Export> find_export(const std::string& name) const;
  // Makes watches of exports that have none and lets go those of exports that are gone.
  // Exports that a replacement ends and others have the files of: which one; nullptr: several.
  [[nodiscard]] std::vector<std::pair<std::shared_ptr<Export>, const Export*>> successors_in(
      const std::map<std::string, std::shared_ptr<Export>>& replacement) const;
  void update_watches();
  void end_retired_watches();
  void look_for_room();
  void end_exclusive_without_room(const Attachment& attachment);
  void handle_missed_changes(const Export& exported);
  [[nodiscard]] std::shared_ptr<ChangeWatch> watch_of(const Export& exported);

  // Constant after construction.
  FileServiceOptions options_;
  std::string boot_id_;
  const TimePoint serves_since_ = io::now();
  std::string instance_id_;
  std::shared_ptr<BodyBudget> bodies_;
  mutable RightsQuota rights_;                // thread-safe
  std::unique_ptr<LockingSessions> lockers_;  // may be null

  LockTable locks_;
  LeaseKeeper leases_;
  std::unique_ptr<LeaseGrace> grace_;  // may be null
  LogLimit refusals_logged_;
  LogLimit failures_logged_;

  // Held while a call is let in, so that drain() waits for all that were. Before mutex_.
  std::mutex admission_;
  bool draining_ = false;
  std::vector<Waiting> held_back_;  // calls that came while draining

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Export>> exports_;
  // That have asked to attach and are not gone; whether one was ever let in.
  std::unordered_map<rpc::ConnectionId, bool> connections_;
  std::unordered_map<rpc::ConnectionId, std::shared_ptr<Attachment>> attachments_;
  std::map<SessionKey, SessionEntry> sessions_;
  // By the root's handle: they outlive an export that is replaced by one with other settings.
  std::map<std::string, std::weak_ptr<Commits>> commits_;
  std::uint64_t last_session_ = 0;
  bool leases_possible_ = false;   // clients can be reached
  std::set<std::string> awaited_;  // had locks before the restart; while there are any, there is grace
  TimePoint grace_ends_{};

  std::mutex watches_mutex_;  // before housekeeping_mutex_; never held with any but that
  // In this order: a watch's thread uses the export.
  struct Watched {
    std::shared_ptr<Export> exported;
    std::shared_ptr<ChangeWatch> watch;  // nullptr: there is none
    bool overlaps = false;               // another export: what is changed there would not be noticed here
  };
  std::map<const Export*, Watched> watches_;
  // Of exports that are gone. Ended by housekeep() when no attachment has them any more: whoever ends a watch
  // waits for its thread, which may want mutex_.
  std::vector<Watched> retired_watches_;

  std::atomic<bool> looking_for_room_{false};
  std::mutex housekeeping_mutex_;  // the last
  std::condition_variable_any housekeeping_;
  std::atomic<std::uint64_t> began_{0};  // how often there was something to keep anew
  std::atomic<unsigned> resting_{0};     // housekeepers, until that changes
  WorkerPool workers_;                   // after all that its tasks use
  const WorkerPool::Flow own_work_;      // the server's
  // Leases end in time also while a file system does not answer who closes a file of it.
  std::jthread lease_housekeeper_;
  std::jthread file_housekeeper_;
};

}  // namespace tusk::server
