// Names: which are known, and whole directories for readdir.
//
// A directory is listed with the attributes of all its entries (one request instead of one per file),
// page after page as long as anybody reads it. Every page is usable at once; the next one is asked for
// before the last one is taken in. After a whole listing, names that are not in it are known not to
// exist. Changes this mount makes are applied to what is known; the listing of a changed directory is
// not given to the next opendir.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fsclient/core.h"
#include "fsclient/deferred.h"
#include "fsclient/facts.h"

namespace tusk::client {

// What is known of a name without asking.
struct NameAnswer {
  enum class Kind { kUnknown, kExists, kAbsent } kind = Kind::kUnknown;
  std::shared_ptr<Inode> inode;  // kExists
  Duration remaining{};          // how long the kernel may use it
  bool streamed = false;  // the directory was listed ahead, and this is the first that somebody wants of it
};

// One listing being loaded; shared by its requests.
struct ListingLoad {
  Asker asker;
  std::shared_ptr<Inode> directory;  // null while it awaits a WALK
  std::shared_ptr<Listing> listing;
  std::uint64_t id = 0;
  std::uint64_t next_page = 0;                           // to be taken in
  std::map<std::uint64_t, Result<schema::Reply>> pages;  // arrived, not taken in; under the mutex
  bool taking_in = false;
  std::uint64_t lease = 0;  // of all pages taken in; under the mutex
  bool under_lease = true;  // all of them
};

class DirectoryCache {
 public:
  static constexpr std::uint32_t kFirstPageBytes = 64 * 1024;  // the reader sees names soon
  static constexpr std::uint32_t kPageBytes = 1024 * 1024;
  static constexpr std::uint32_t kMissesToList = 2;
  static constexpr std::size_t kRefreshedMax = 20'000;  // larger ones are not listed on suspicion
  // A broken server must not keep us busy for ever.
  static constexpr std::uint64_t kPagesMax = 1'000'000;
  // Names of one directory that are known not to exist because its whole listing does not tell them.
  static constexpr std::size_t kAbsentMax = 4096;
  // Names kept beyond their lifetime, over all directories; above it the oldest directories are dropped.
  static constexpr std::size_t kNamesMax = 400'000;

  // Some 70 entries: what is sent twice where packets get lost (proactive_copies.h), and soon taken in.
  static constexpr std::uint32_t kBesideNameBytes = 8 * 1024;
  static constexpr int kBesideNameMax = 512;  // entries, whatever a server says

  // Names that this mount has made in one directory count from here on.
  static constexpr std::size_t kOwnNames = 256;

  DirectoryCache(Core& core, Facts& facts) : core_(core), facts_(facts) {}
  DirectoryCache(const DirectoryCache&) = delete;
  DirectoryCache& operator=(const DirectoryCache&) = delete;
  ~DirectoryCache();

  [[nodiscard]] NameAnswer lookup(Inode& directory, std::string_view name);
  // A lookup had to ask the server. Who examines several files of a directory is likely to go on
  // (ls -l, git status, make): after kMissesToList of them the whole directory is listed; true then.
  bool note_miss(const Asker& asker, const std::shared_ptr<Inode>& directory);
  // The inode of a name if it was ever known, however long ago: for bookkeeping, not for answers.
  [[nodiscard]] std::shared_ptr<Inode> last_known(Inode& directory, std::string_view name);

  // The server said so. Returns for how long it may be used: not at all if the answer may be older than a
  // change.
  Learnt learn(Inode& directory, std::string_view name, std::shared_ptr<Inode> inode, const Told& told);
  Learnt learn_absent(Inode& directory, std::string_view name, const Told& told);
  // This mount did it, `told` is the answer. `inode` null: the name is gone.
  struct OwnName {
    std::string_view name;
    std::shared_ptr<Inode> inode;
  };
  // Returns for how long it may be used.
  Learnt changed(Inode& directory, std::vector<OwnName> names, const Told& told);
  Learnt changed(Inode& directory, std::string_view name, std::shared_ptr<Inode> inode, const Told& told) {
    return changed(directory, {{name, std::move(inode)}}, told);
  }
  // This mount did something to the name, and what it is now is not known.
  void changed_somehow(Inode& directory, std::string_view name);
  // Somebody else does.
  void taken_back(Inode& directory, std::string_view name);

  // A whole listing that was asked for at `started`, before any program did. Returns the inode of each entry;
  // null: the server could not examine it.
  std::vector<std::shared_ptr<Inode>> learn_ahead(const std::shared_ptr<Inode>& directory,
                                                  const schema::WalkListing& listing, const Told& told);
  // How much the answer to who looks `name` up may tell of what is in it: nothing if that is known.
  [[nodiscard]] std::uint32_t listing_wanted_beside(Inode& directory, std::string_view name);
  // As learn_ahead(), of a listing that came in that way.
  void learn_beside_name(const std::shared_ptr<Inode>& directory, const schema::WalkListing& listing,
                         const Told& told);
  // One entry of a directory that was asked for in the same way.
  void learn_name_ahead(Inode& directory, std::string_view name, const std::shared_ptr<Inode>& inode,
                        const Told& told);
  // The WALK that was to bring the directory's listing (Directory::walks) has ended.
  void handle_walk_end(const std::shared_ptr<Inode>& directory);

  // The listing a reader that starts now should read: a trusted one, or a new one being loaded.
  [[nodiscard]] std::shared_ptr<Listing> begin(const Asker& asker, const std::shared_ptr<Inode>& directory);
  // With the directory's mutex held: what a reader would be given now, if it is whole and may be lent to the
  // kernel; else null.
  [[nodiscard]] std::shared_ptr<Listing> leased(const Inode& directory) const;
  // Copies up to `count` entries from `index` on. Returns false if there are none yet: then `wake` runs
  // when it is worth asking again. An error of loading comes once all entries before it were read.
  [[nodiscard]] Result<bool> read(Inode& directory, Listing& listing, std::size_t index, std::size_t count,
                                  std::vector<ListedEntry>& entries, std::move_only_function<void()>& wake);

 private:
  using Load = ListingLoad;

  struct Use {
    const Inode* directory;
    std::weak_ptr<Inode> inode;  // keeps the address from being used by another
    std::size_t names;
  };

  [[nodiscard]] std::shared_ptr<Inode> learn_entry(const std::shared_ptr<Inode>& directory,
                                                   const schema::DirEntry& entry, const Told& told,
                                                   bool ahead);
  // With the directory's mutex held.
  [[nodiscard]] bool outdated(const Inode& directory, const Told& told) const;
  [[nodiscard]] std::shared_ptr<Listing> listing_of_own(Inode& directory);
  [[nodiscard]] Duration usable_for(Fact fact, Learnt& learnt, Ahead& ahead);
  // For the kernel, of what may be used for `remaining`.
  [[nodiscard]] Duration lifetime_of(const Inode& directory, Fact fact, Learnt learnt, Duration remaining);
  [[nodiscard]] bool may_list(Listing& listing);
  [[nodiscard]] static std::vector<std::string> forget_unlisted(Directory& known, std::uint64_t load);
  [[nodiscard]] static bool changed_since(const ListingLoad& load, const std::string& name);
  void ask(const std::shared_ptr<Load>& load, std::uint64_t page, std::uint64_t cookie);
  void arrived(const std::shared_ptr<Load>& load, std::uint64_t page, TimePoint started,
               Result<rpc::CallReply> reply);
  void take_in(const std::shared_ptr<Load>& load, TimePoint started);
  void add_page(const std::shared_ptr<Load>& load, const schema::Reply& reply, TimePoint started);
  void finish(const std::shared_ptr<Load>& load, std::optional<Error> error, Deferred& after);
  void note_changed_locked(Inode& directory, std::string_view name);
  std::vector<std::string> drop_names(Inode& directory);
  // So many names are known of it now.
  void note_used(const std::shared_ptr<Inode>& directory, std::size_t names);
  void forget_use(std::list<Use>::iterator use);
  static void note_place(Inode& inode, Inode& directory, std::string_view name, std::string_view link_target);
  static void wake(Listing& listing, Deferred& after);

  Core& core_;
  Facts& facts_;
  std::mutex mutex_;       // leaf
  std::list<Use> recent_;  // newest first, each directory once
  std::unordered_map<const Inode*, std::list<Use>::iterator> places_;
  std::size_t names_ = 0;  // of all of them
};

}  // namespace tusk::client
