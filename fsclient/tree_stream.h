// Lists directories ahead of a program that goes through a tree, so that it finds each listing here: find,
// ls -R, du, cp -r, rsync by the directories they list; git status by the files it examines.
//
// A walk is recognised when a directory is listed soon after the one it is in. Then the server is asked for
// its siblings and all that is in them (WALK), as much as AheadWindow allows; what was told waits in the
// DirectoryCache. Of what lies on this machine's disk (kept_listings.h) the server only says whether it is
// still so. What it does not do: decide how long it may wait there (foresight.h).
//
// Thread-safe. No lock may be held by who calls it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fsclient/ahead_window.h"
#include "fsclient/core.h"
#include "fsclient/directory_cache.h"
#include "fsclient/facts.h"
#include "fsclient/kept_listings.h"
#include "fsclient/tree_walk.h"

namespace tusk::client {

class TreeStream {
 public:
  // Bytes of listings as the server counts them; packed they are a quarter on the wire.
  static constexpr ByteCount kWindowFirst = 256 * 1024;
  static constexpr ByteCount kWindowMax = 16 * 1024 * 1024;
  static constexpr ByteCount kRequestMax = 1024 * 1024;
  static constexpr ByteCount kRequestMin = 16 * 1024;
  static constexpr std::uint32_t kRequestsMax = 8;
  static constexpr std::size_t kNamesMax = 1024;  // of one request
  static constexpr std::size_t kNameBytesMax = 128 * 1024;
  // Directories in a row that were not listed ahead: it was done in a wrong order.
  static constexpr std::uint32_t kMissesMax = 2;

  TreeStream(Core& core, Facts& facts, DirectoryCache& names, KeptListings& kept)
      : core_(core), facts_(facts), names_(names), kept_(kept) {}

  // A program begins to list the directory, or to use what was listed ahead of it.
  void visit(const Asker& asker, const std::shared_ptr<Inode>& directory);
  // A program examines the directory's files one by one without having listed it.
  void examine(const Asker& asker, const std::shared_ptr<Inode>& directory);

  // Directories that were listed ahead and that nobody has come to yet, next first; at most `count`.
  [[nodiscard]] std::vector<std::shared_ptr<Inode>> upcoming(std::size_t count);

 private:
  struct Start {
    std::shared_ptr<Inode> parent;  // null: the one place is named by its handle
    std::vector<TreePlace> places;
  };
  struct Request {
    Asker asker;
    std::vector<Start> starts;                        // as in the message
    std::vector<std::shared_ptr<Inode>> directories;  // of all places
    ByteCount limit = 0;
    ByteCount reserved = 0;  // of the window
    AheadWindow::Ticket ticket{};
    KeptListings::Gathered kept;
    TimePoint started{};
    TimePoint queued = TimePoint::max();  // of the places, the one that waited longest
    std::uint64_t lease = 0;              // of the answer
    MutableSharedBytes body;
  };
  // One listing of an answer. `directory` null: not to be used. `listing`: in the answer, or kept.
  struct Told {
    std::shared_ptr<Inode> directory;
    const schema::WalkListing* listing;
    std::vector<std::shared_ptr<Inode>> entries{};
    std::vector<bool> listed{};  // which of them the answer lists too
  };

  [[nodiscard]] static bool went_on(Inode& parent, TimePoint now);
  void begin_if_new(TimePoint now);
  void use(std::uint64_t number);
  // The program has come to a directory that was not listed ahead.
  void miss(const std::shared_ptr<Inode>& parent, const std::shared_ptr<Inode>& directory, TimePoint now);
  [[nodiscard]] static std::vector<TreePlace> spread(const std::shared_ptr<Inode>& parent,
                                                     const std::shared_ptr<Inode>& first, TimePoint now);
  void put_in_front(std::vector<TreePlace> places);

  void ask_more(const Asker& asker);
  [[nodiscard]] std::shared_ptr<Request> next_request();
  [[nodiscard]] std::vector<TreePlace> take_places_locked(ByteCount limit,
                                                          std::vector<std::shared_ptr<Inode>>& looked_at);
  static void add(Request& request, TreePlace place);
  void give_back(Request& request, ByteCount bytes);
  void gather(const std::shared_ptr<Request>& request);
  void send(const std::shared_ptr<Request>& request);

  void finish(const std::shared_ptr<Request>& request, Result<rpc::CallReply> reply);
  [[nodiscard]] static Result<schema::WalkListings> unpack(const Request& request,
                                                           const rpc::CallReply& reply);
  // What facts of the request's answer rest on.
  [[nodiscard]] static client::Told answer_of(const Request& request, schema::Cover cover);
  Result<void> take_in(Request& request, const schema::WalkListings& listings, std::vector<Told>& told);
  [[nodiscard]] Result<std::shared_ptr<Inode>> directory_of(Request& request,
                                                            const schema::WalkListing& listing,
                                                            std::vector<Told>& told);
  // The answer's listing with its entries, wherever they come from.
  [[nodiscard]] static Result<const schema::WalkListing*> whole(Request& request,
                                                                const schema::WalkListing& listing,
                                                                const std::vector<Told>& told);
  void note_streamed(const std::shared_ptr<Inode>& directory, ByteCount cost, const Request& request);
  [[nodiscard]] static std::vector<TreePlace> not_reached(const Request& request,
                                                          const std::vector<Told>& told);

  Core& core_;
  Facts& facts_;
  DirectoryCache& names_;
  KeptListings& kept_;

  std::mutex mutex_;  // before the disk cache's; else a leaf
  AheadWindow window_{kWindowFirst, kWindowMax};
  TreeWalk walk_;
  std::uint32_t requests_ = 0;
  std::uint32_t misses_ = 0;
  // Something has come since the order was last chosen. As long as it is only on its way no miss tells of a
  // wrong order: threads that begin at several places at once (git status) all miss it.
  bool answered_ = false;
  std::atomic<bool> unknown_{false};                        // the server is older than WALK
  ByteCount listing_bytes_ = 4096;                          // of one directory, a moving mean
  std::map<std::uint64_t, std::weak_ptr<Inode>> streamed_;  // by the window's numbers
  std::weak_ptr<Inode> examined_;                           // the directory last examined ...
  TimePoint examined_at_ = TimePoint::min();                // ... and when
};

}  // namespace tusk::client
