// One call on its way through the server: who asks, what for, and the reply as it takes shape.
//
// Lives on one worker thread. Operations (operations.h) get nothing else to work with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsserver/acting.h"
#include "fsserver/attributes.h"
#include "fsserver/body_budget.h"
#include "fsserver/change_watch.h"
#include "fsserver/export.h"
#include "fsserver/lease_keeper.h"
#include "fsserver/lock_table.h"
#include "fsserver/session.h"
#include "proto/base/result.h"
#include "proto/base/time.h"
#include "proto/rpc/service.h"

namespace tusk::server {

constexpr std::uint32_t kReadBytesMax = 1 << 20;
constexpr std::uint32_t kWriteBytesMax = 1 << 20;
constexpr std::uint32_t kWalkBytesMax = 1 << 20;  // of listings before they are packed
constexpr std::size_t kWalkUnsentBytesMax =
    4 << 20;                                      // of those that are made and not sent: the client has them
constexpr std::size_t kWalkExaminedMax = 65'536;  // entries, by one WALK
constexpr int kListingsKnownMax = 4096;           // of one WALK
constexpr std::size_t kListingBesideNameMax = 64 * 1024;  // that LOOKUP tells
constexpr int kNamesAtOnceMax = 4096;  // of one WALK or READ_FILES, with the directories they are in
constexpr ByteCount kSessionBodyBytesMax = 256ull << 20;  // bulk replies waiting for one mount

constexpr std::uint32_t kSessionConnectionsMax = 8;  // with lanes

// A connection that has entered an export: with what right, as part of which session.
struct Attachment {
  rpc::Peer peer;
  std::string client_name;
  std::shared_ptr<Export> exported;
  std::shared_ptr<Session> session;
  bool read_only = true;
  bool identity_real = false;
  std::int64_t since_unix_s = 0;
  std::string token;
  std::atomic<std::uint64_t> rights_seen = 0;  // AccessStore::generation() when its right was last looked at
  std::shared_ptr<ChangeWatch> watch;          // nullptr: nobody has leases on this export
  bool leases = false;                         // this client has
  bool lane = false;                           // a further connection of a session that has its main one
  std::shared_ptr<const RightHoldings> right;
  Quota::Place place;  // among the connections
};

// What is particular to the entries of a LOG.
struct LogTerms {
  bool again = false;                         // AttachRequest.log_sent
  std::shared_ptr<LogStream> redo = nullptr;  // LogRequest.redo; null: it is none
  std::int64_t began_ns = 0;  // when this process began to serve, since 1970, by today's clock
};

// Most files have none, and ls, cp -a and rsync -X ask for them file by file unless told so.
[[nodiscard]] bool has_no_xattrs(const Fd& fd);

class Call {
 public:
  Call(std::shared_ptr<rpc::IncomingCall> incoming, std::shared_ptr<Attachment> attachment, LockTable& locks,
       LeaseKeeper& leases, std::string_view boot_id, std::optional<LogTerms> log = std::nullopt)
      : incoming_(std::move(incoming)),
        attachment_(std::move(attachment)),
        locks_(locks),
        leases_(leases),
        boot_id_(boot_id),
        log_(log),
        answered_under_(attachment_->session->answered_under()) {}

  [[nodiscard]] const schema::Request& request() const { return incoming_->message(); }
  [[nodiscard]] const std::shared_ptr<rpc::IncomingCall>& incoming() const { return incoming_; }
  [[nodiscard]] const Attachment& attachment() const { return *attachment_; }
  [[nodiscard]] Session& session() const { return *attachment_->session; }
  [[nodiscard]] Export& exported() const { return *attachment_->exported; }
  [[nodiscard]] NodeTable& nodes() const { return exported().nodes(); }
  [[nodiscard]] LockTable& locks() const { return locks_; }
  [[nodiscard]] LeaseKeeper& leases() const { return leases_; }
  // nullopt: it is no entry of a LOG.
  [[nodiscard]] const std::optional<LogTerms>& log() const { return log_; }
  // It may have been done before, in another server process.
  [[nodiscard]] bool again() const { return log_ && log_->again; }
  // It was answered before the server's machine restarted. nullptr: no such change.
  [[nodiscard]] LogStream* redo() const { return log_ ? log_->redo.get() : nullptr; }
  [[nodiscard]] std::string_view boot_id() const { return boot_id_; }
  // As it was before the call is carried out.
  [[nodiscard]] const Commits::Mark& answered_under() const { return answered_under_; }

  // The inode of a handle. ESTALE.
  [[nodiscard]] Result<SharedFd> node(std::string_view handle) const { return nodes().resolve(handle); }

  // Something to read from or write to: the open file, or, when there is no such open file (0, or it was
  // opened before a restart), the handle's file opened with the kernel's permission check. An `open_id` of
  // before a restart opens a file of whom the server acts as whatever its mode says. Regular files only:
  // EISDIR, ENXIO.
  struct File {
    SharedFd fd;
    std::shared_ptr<OpenFile> open;  // nullptr: opened for this call
  };
  [[nodiscard]] Result<File> file(std::string_view handle, std::uint64_t open_id, int access) const;

  // What an attribute operation works on: the open file if there is one, else the handle's inode.
  [[nodiscard]] Result<SharedFd> node_or_open_file(std::string_view handle, std::uint64_t open_id) const;

  [[nodiscard]] schema::Attr attr(const Status& status) const {
    return to_attr(status, nodes().root_device());
  }
  [[nodiscard]] Result<schema::Attr> attr(const Fd& fd) const;

  // Asks for a lease on a node's attributes and bytes, which must be read after it (again, if they have
  // been). What it comes to is for the reply to say: Attr.cover.
  [[nodiscard]] schema::Cover lease_node(std::string_view handle, const Status& status);
  // The same for the names in a directory.
  [[nodiscard]] schema::Cover cover_names(std::string_view handle, const Fd& directory);
  // And the reply says it.
  void lease_names(std::string_view handle, const Fd& directory);
  // The names in it are another session's exclusively, so its attributes may not be what they are here.
  [[nodiscard]] bool exclusive_of_another(std::string_view handle) const {
    return attachment_->watch != nullptr && leases_.exclusive_of_another(session().number(), handle);
  }
  // Attributes under a lease, if it can be had.
  [[nodiscard]] Result<schema::Attr> leased_attr(std::string_view handle, const Fd& fd);
  [[nodiscard]] schema::Node node_of(const NodeTable::Found& found);

  // True when root's privileges let this thread do what the asking user may not: then the operation has
  // to keep the rules that the kernel keeps for others (set-user-ID bits, owners).
  [[nodiscard]] bool privileged() const;
  // To whom new files go (CreatingFor); nullopt: to whom the thread acts as.
  [[nodiscard]] std::optional<CreatingFor::Owner> creator() const;

  // A mutation of this node succeeded.
  void mutated(std::string_view handle) { mutated_.emplace_back(handle); }
  [[nodiscard]] const std::vector<std::string>& mutated_nodes() const { return mutated_; }

  schema::Reply reply;
  SharedBytes body;
  // The operation answers by itself, later.
  bool answers_later = false;
  // What is left to do when a turn is over, in a later one. Only of operations that change nothing.
  std::move_only_function<Result<void>()> rest;
  // A lock that somebody else holds; 0: none.
  LockWaitId waits_for{0};

 private:
  std::shared_ptr<rpc::IncomingCall> incoming_;
  [[nodiscard]] schema::Cover lease(std::string_view handle, LeaseTable::Of of);

  std::shared_ptr<Attachment> attachment_;
  LockTable& locks_;
  LeaseKeeper& leases_;
  std::string_view boot_id_;
  std::optional<LogTerms> log_;
  Commits::Mark answered_under_;
  std::vector<std::string> mutated_;
};

// EISDIR for directories, ENXIO for whatever is no regular file.
[[nodiscard]] Result<void> check_regular(const Status& status);

}  // namespace tusk::server
