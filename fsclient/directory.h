// What this mount knows of one directory: names, and whole listings for readdir.
//
// State only; the rules are in directory_cache.h. Protected by the directory's Inode::mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fsclient/foresight.h"
#include "fsclient/kernel_listing.h"
#include "fsclient/trust.h"
#include "fsclient/untold_failures.h"
#include "proto/base/result.h"

namespace tusk::client {

class Inode;
struct ListingLoad;

struct ListedEntry {
  std::string name;
  std::uint32_t type = 0;  // DT_*
  std::uint64_t ino = 0;
  std::shared_ptr<Inode> inode;  // null: the server could not examine it
  Learnt learnt;
};

// The names of a directory in the order readdir tells them. It only grows, so an index into it is a
// stable offset for every open directory that reads from it.
struct Listing {
  std::vector<ListedEntry> entries;
  bool complete = false;
  std::optional<Error> error;  // loading ended before the end
  Learnt learnt;               // when loading began
  Ahead ahead;
  bool outdated = false;                                 // the directory has changed since
  bool taken_back = false;                               // by somebody else: nothing in it is to be trusted
  std::vector<std::move_only_function<void()>> waiters;  // run when it grew, ended or failed

  [[nodiscard]] bool loading() const { return !complete && !error; }
};

struct KnownName {
  std::shared_ptr<Inode> inode;  // null: known not to exist
  Learnt learnt;
  Ahead ahead;
  std::uint64_t load = 0;  // the listing that told it last
};

struct Directory {
  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, KnownName, StringHash, std::equal_to<>> names;
  Learnt names_complete;  // `names` held every name then
  // The number of the exclusiveness that this mount has of the names, and the lease it was told under; 0:
  // none.
  std::uint64_t exclusive = 0;
  std::uint64_t exclusive_lease = 0;
  // When this mount set a default ACL: an exclusiveness that was asked for before does not count. What is
  // made then gets its mode and ACL from the server.
  TimePoint default_acl_set_at = TimePoint::min();
  Ahead names_complete_ahead;
  std::shared_ptr<Listing> listing;  // the newest; may still be loading
  KernelListing in_kernel;
  std::uint64_t load = 0;    // counts listings
  std::size_t counted = 0;   // of `names`, as DirectoryCache's bound counts them
  std::uint32_t misses = 0;  // lookups that had to ask since the last listing
  // Names this mount changed while `listing` was loading: what it says of them may be older.
  std::unordered_set<std::string> changed_while_loading;
  // What tree_stream.h knows of it.
  TimePoint visited_at = TimePoint::min();  // a program came to list or examine what is in it
  TimePoint spread_at = TimePoint::min();   // its subdirectories were put in line to be listed ahead
  TimePoint told_at = TimePoint::min();     // its listing was last told ahead
  std::weak_ptr<Inode> last_child;          // of them, the one that was visited last
  std::uint32_t walks = 0;                  // WALKs on their way that will tell its listing
  std::shared_ptr<ListingLoad> awaiting;    // a listing that begins with what they tell
  std::uint64_t streamed = 0;               // its place among the listings nobody has come to yet; 0: none
  bool listed_beside_name = false;          // when it was looked up, and nobody has come to it since

  // Changes of names here that were answered before and could not be done. An fsync of the directory is told
  // once for each who has it open; who opens it later, too, as long as nobody has been told.
  std::uint64_t errors = 0;
  Error last_error;
  UntoldOfDirectory failures;  // since the last such fsync
  void note_failure(const Error& error, UntoldFailures::Id failure, const UntoldFailures& untold) {
    ++errors;
    last_error = error;
    failures.add(failure, untold);
  }

  // When names here were last changed by this mount or taken back: answers to questions asked before may
  // tell what was before.
  TimePoint names_changed_at = TimePoint::min();
  TimePoint names_taken_back_at = TimePoint::min();  // of these the last by somebody else
  // Somebody else changes names here: none is to be trusted that was asked for before.
  void names_taken_back(TimePoint now) {
    names_changed_at = names_taken_back_at = now;
    names_complete.forget();
    names_complete_ahead.forget();
    exclusive = 0;
    ++load;  // pages on their way tell names as they were
    if (!listing) return;
    listing->outdated = true;
    listing->taken_back = true;
    listing->ahead.forget();
  }
};

}  // namespace tusk::client
