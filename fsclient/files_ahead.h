// Fetches whole files ahead of a program that opens one after the other (cp -r, tar, grep -r, who trains on
// photographs), so that it opens, reads and closes them without a round trip.
//
// Once a second file of a directory is opened shortly after the first, or a first one by a program that walks
// through a tree, the files next to it and those in the directories it will come to are asked for, as much as
// AheadWindow allows: small ones many in a call (READ_FILES), larger ones by READs of their own, if
// such are being read to their ends (WholeReads). What it does not do: answer opens (Filesystem::open_here
// does, from what was left here), or decide how long that is allowed (foresight.h).
//
// Thread-safe. No lock may be held by who calls it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsclient/ahead_window.h"
#include "fsclient/core.h"
#include "fsclient/deferred.h"
#include "fsclient/directory_cache.h"
#include "fsclient/facts.h"
#include "fsclient/kept_blocks.h"
#include "fsclient/reader.h"
#include "fsclient/tree_stream.h"
#include "fsclient/whole_reads.h"

namespace tusk::client {

class FilesAhead {
 public:
  // Larger ones are not fetched together with others.
  static constexpr ByteCount kSmallMax = 64 * 1024;
  // Larger ones are not fetched: reading ahead in them soon fills the line.
  static constexpr ByteCount kWholeMax = 16 * 1024 * 1024;
  static constexpr ByteCount kWindowFirst = 256 * 1024;
  // As long as the path is not known, and at least if it is fast; else four times what it holds:
  // asking for more takes a round trip, and a quarter of the window is asked for at a time.
  static constexpr ByteCount kWindowMax = 16 * 1024 * 1024;
  static constexpr ByteCount kPathProducts = 4;
  // Of the cache: what waits should not push out what is in use.
  static constexpr ByteCount kCacheShare = 4;
  // Who opens a file that is on its way waits for all of it: no longer than so beyond what an open and a
  // first read of it would take, if it has the line for itself.
  static constexpr Duration kWaitMax = std::chrono::milliseconds(500);
  static constexpr Duration kWindowWait = std::chrono::seconds(1);
  static constexpr ByteCount kRequestMax = 1024 * 1024;
  static constexpr std::size_t kFilesMax = 1024;  // of one request
  static constexpr std::size_t kNameBytesMax = 128 * 1024;
  static constexpr std::uint32_t kRequestsMax = 8;
  // What a file costs at least: its facts are sent, too.
  static constexpr ByteCount kCostMin = 512;
  // Opens further apart are not one program going through a directory.
  static constexpr Duration kPauseMax = std::chrono::seconds(1);
  static constexpr std::size_t kDirectoriesAhead = 64;
  static constexpr Duration kWatched = std::chrono::seconds(1);

  FilesAhead(Core& core, Facts& facts, DirectoryCache& names, TreeStream& tree, KeptBlocks& kept,
             Reader& reader)
      : core_(core), facts_(facts), names_(names), tree_(tree), kept_(kept), reader_(reader) {}

  // A program opens the file to read it.
  void note_open(const std::shared_ptr<Inode>& file);
  // A program closes it.
  void note_close(const OpenFile& file);
  // Somebody else has changed the file: if a program has opened it within the last kWatched, it will want to
  // see. Its attributes and, unless it is large, its bytes come in one round trip.
  void fetch_again(const std::shared_ptr<Inode>& file);
  // The file's bytes are on their way: `then` runs when they are there, or will not come. False: they are
  // not, and `then` is not taken.
  [[nodiscard]] bool wait_for(Inode& file, std::move_only_function<void()>& then);

 private:
  struct Folder {
    std::shared_ptr<Inode> directory;
    std::vector<std::string> names;
    std::vector<std::shared_ptr<Inode>> files;
    std::vector<std::uint64_t> known_changes;
    std::size_t first = 0;  // which of the request's files is the first of these
  };
  struct Request {
    std::vector<Folder> folders;
    std::size_t files = 0;
    std::size_t name_bytes = 0;
    ByteCount bytes = 0;  // expected
    ByteCount cost = 0;
    AheadWindow::Ticket ticket{};
    TimePoint started{};
    MutableSharedBytes body;
    std::set<const Inode*> later;  // who waits for them has to wait longer than for the answer
  };

  // A larger file on its way.
  struct Whole {
    std::shared_ptr<Inode> file;
    ByteCount size = 0;
    std::uint64_t change = 0;
    AheadWindow::Ticket ticket{};
    TimePoint started{};
  };
  // What is to be asked for.
  struct Plan {
    ByteCount room = 0;      // that is left
    ByteCount size_max = 0;  // of a file
    // Nothing of what a program has open, or has opened since; not said: of all.
    std::optional<TimePoint> unopened_since;
    std::vector<std::shared_ptr<Request>> requests;
    std::vector<std::shared_ptr<Whole>> wholes;
  };

  // What is known of an open at its beginning.
  struct Opening {
    const Inode* parent;
    bool expected;           // its bytes are here or on their way
    bool too_large;          // to be fetched
    bool repeated;           // after others it is opened again
    std::uint64_t streamed;  // its number in the window
  };
  [[nodiscard]] ByteCount size_max() const;
  [[nodiscard]] ByteCount window_max() const;
  [[nodiscard]] bool goes_on(const Opening& open, TimePoint now);
  [[nodiscard]] bool pause_since(TimePoint then, TimePoint now) const;
  // With mutex_ held: what has been opened so far may be wanted again.
  void begin_run(TimePoint now);
  void fetch_more();
  void fetch_next(const std::shared_ptr<Inode>& parent, std::vector<Sibling> files, const Inode* opened);
  void note_step(const std::shared_ptr<Inode>& from, const std::shared_ptr<Inode>& to);
  // False: there is room for no more.
  bool add(const std::shared_ptr<Inode>& directory, std::vector<Sibling> files, Plan& plan);
  static void add_small(const std::shared_ptr<Inode>& directory, Sibling file, ByteCount size,
                        std::uint64_t known_change, Plan& plan);
  [[nodiscard]] bool claim(Inode& file, const Plan& plan, ByteCount& size, std::uint64_t& change);
  [[nodiscard]] bool begin_version_locked(Inode& inode);
  void carry_out(const Plan& plan, rpc::Priority priority);
  void fetch(const std::shared_ptr<Whole>& whole);
  void finish(const Whole& whole);
  void note_arrival(FileState& file, const Told& answer, std::uint64_t number, Deferred& after);
  void send(const std::shared_ptr<Request>& request, rpc::Priority priority);
  void finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply);
  Result<void> take_in(const std::shared_ptr<Request>& request, rpc::CallReply& reply);
  void take_in(const std::shared_ptr<Request>& request, const Folder& folder, std::size_t index,
               const schema::FileBytes& told, const SharedBytes& bytes, const Told& answer);
  [[nodiscard]] bool take_in_bytes(const std::shared_ptr<Inode>& pointer, const schema::FileBytes& told,
                                   const SharedBytes& bytes, const Told& answer, std::uint64_t number);
  void bring(const std::shared_ptr<Inode>& file, std::uint64_t change, ByteCount size, const Told& answer,
             std::uint64_t number);
  void take_in_kept(Inode& file, const SharedBytes& bytes, std::uint64_t change, const Told& answer,
                    std::uint64_t number);
  // How the file is waited for from now on; who has waited until now goes on.
  static void release(Inode& file, AskedAhead next);

  Core& core_;
  Facts& facts_;
  DirectoryCache& names_;
  TreeStream& tree_;
  KeptBlocks& kept_;
  Reader& reader_;
  WholeReads whole_reads_{kSmallMax};

  std::mutex mutex_;  // an inode's may be held; before the path estimate's
  AheadWindow window_{kWindowFirst, kWindowMax};
  bool planning_ = false;  // somebody is about to ask for all there is room for
  std::uint32_t requests_ = 0;
  TimePoint last_open_ = TimePoint::min();
  TimePoint run_started_ = TimePoint::min();
  std::weak_ptr<Inode> last_file_;
  VisitOrder file_order_ = VisitOrder::kListing;  // in which it goes through a directory
  std::optional<VisitOrder> directory_order_;     // and from one to the next; not known: in the same
  bool listed_ahead_first_ = false;    // it comes to directories in the order in which they were listed ahead
  const void* last_parent_ = nullptr;  // to compare with only
  std::uint32_t run_ = 0;              // opens one after the other in one directory
  std::atomic<bool> unknown_{false};   // the server is older than READ_FILES
};

}  // namespace tusk::client
