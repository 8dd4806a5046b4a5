// Fetches whole small files ahead of a program that opens one after the other (cp -r, tar, grep -r), so that
// it opens, reads and closes them without a round trip.
//
// Once a second file of a directory is opened shortly after the first, or a first one by a program that walks
// through a tree, the files next to it and those in the directories it will come to are asked for together
// (READ_FILES), as much as AheadWindow allows. What it does not do: answer opens (Filesystem::open_here does,
// from what take_in() left), or decide how long that is allowed (foresight.h).
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
#include "fsclient/directory_cache.h"
#include "fsclient/facts.h"
#include "fsclient/kept_blocks.h"
#include "fsclient/tree_stream.h"

namespace tusk::client {

class SmallFiles {
 public:
  static constexpr ByteCount kFileMax = 64 * 1024;
  static constexpr ByteCount kWindowFirst = 256 * 1024;
  static constexpr ByteCount kWindowMax = 16 * 1024 * 1024;
  static constexpr ByteCount kRequestMax = 1024 * 1024;
  static constexpr std::size_t kFilesMax = 1024;  // of one request
  static constexpr std::size_t kNameBytesMax = 128 * 1024;
  static constexpr std::uint32_t kRequestsMax = 8;
  // What a file costs at least: its facts are sent, too.
  static constexpr ByteCount kCostMin = 512;
  // Opens further apart are not one program going through a directory.
  static constexpr Duration kPauseMax = std::chrono::seconds(1);
  // Opens in a row of files that were not fetched: the program has turned elsewhere.
  static constexpr std::uint32_t kMissesMax = 8;
  static constexpr std::size_t kDirectoriesAhead = 64;
  static constexpr Duration kWatched = std::chrono::seconds(1);

  SmallFiles(Core& core, Facts& facts, DirectoryCache& names, TreeStream& tree, KeptBlocks& kept)
      : core_(core), facts_(facts), names_(names), tree_(tree), kept_(kept) {}

  // A program opens the file to read it.
  void note_open(const std::shared_ptr<Inode>& file);
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
  };
  struct Request {
    std::vector<Folder> folders;
    std::size_t files = 0;
    std::size_t name_bytes = 0;
    ByteCount bytes = 0;  // expected
    ByteCount cost = 0;
    TimePoint started{};
    MutableSharedBytes body;
    std::set<const Inode*> later;  // who waits for them has to wait longer than for the answer
  };

  // What is known of an open at its beginning.
  struct Opening {
    const Inode* parent;
    bool expected;           // its bytes are here or on their way
    bool repeated;           // after others it is opened again
    std::uint64_t streamed;  // its number in the window
  };
  [[nodiscard]] bool goes_on(const Opening& open, TimePoint now);
  // With mutex_ held: what has been opened so far may be wanted again.
  void begin_run(TimePoint now);
  void fetch_next(const std::shared_ptr<Inode>& parent, const Inode* previous, const Inode* opened);
  void note_step(const std::shared_ptr<Inode>& from, const std::shared_ptr<Inode>& to);
  // Of what no program has open or has opened since `unopened_since`; of all, if nothing is said. False:
  // there is room for no more.
  bool add(const std::shared_ptr<Inode>& directory, std::vector<Sibling> files,
           std::optional<TimePoint> unopened_since, ByteCount& room,
           std::vector<std::shared_ptr<Request>>& requests);
  [[nodiscard]] bool claim(Inode& file, std::optional<TimePoint> unopened_since, ByteCount& size,
                           std::uint64_t& known_change);
  void send(const std::shared_ptr<Request>& request, rpc::Priority priority);
  void finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply);
  Result<void> take_in(const std::shared_ptr<Request>& request, rpc::CallReply& reply);
  void take_in(const std::shared_ptr<Request>& request, const Folder& folder, std::size_t index,
               const schema::FileBytes& told, const SharedBytes& bytes, const Told& answer);
  [[nodiscard]] bool take_in_bytes(const std::shared_ptr<Inode>& pointer, const schema::FileBytes& told,
                                   const SharedBytes& bytes, const Told& answer);
  void bring(const std::shared_ptr<Inode>& file, std::uint64_t change, ByteCount size, Ahead ahead,
             std::uint64_t number);
  void take_in_kept(Inode& file, const SharedBytes& bytes, std::uint64_t change, Ahead ahead,
                    std::uint64_t number);
  // How the file is waited for from now on; who has waited until now goes on.
  static void release(Inode& file, AskedAhead next);

  Core& core_;
  Facts& facts_;
  DirectoryCache& names_;
  TreeStream& tree_;
  KeptBlocks& kept_;

  std::mutex mutex_;  // leaf
  AheadWindow window_{kWindowFirst, kWindowMax};
  std::uint32_t requests_ = 0;
  TimePoint last_open_ = TimePoint::min();
  TimePoint run_started_ = TimePoint::min();
  std::weak_ptr<Inode> last_file_;
  VisitOrder directory_order_ = VisitOrder::kListing;  // in which it goes from directory to directory
  const void* last_parent_ = nullptr;                  // to compare with only
  std::uint32_t run_ = 0;                              // opens one after the other in one directory
  std::uint32_t misses_ = 0;
  std::atomic<bool> unknown_{false};  // the server is older than READ_FILES
};

}  // namespace tusk::client
