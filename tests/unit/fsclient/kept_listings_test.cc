// Listings on the disk: what is found of them again, and when the walks that they are for may use them.
#include "fsclient/kept_listings.h"

#include "client.h"
#include "fsclient/disk_cache.h"
#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

using schema::Request;
using schema::WalkListing;
using schema::WalkListings;

class KeptListingsTest : public testing::Test {
 protected:
  KeptListingsTest() {
    while (scheduler.run()) {
    }
  }
  std::shared_ptr<Inode> directory(const std::string& handle) { return inodes.intern(handle); }
  static void add(WalkListing& listing, const std::string& name, std::uint32_t mode) {
    schema::DirEntry& entry = *listing.add_entries();
    entry.set_name(name);
    entry.mutable_node()->set_handle("handle of " + name);
    entry.mutable_node()->mutable_attr()->set_mode(mode);
    entry.mutable_node()->mutable_attr()->set_cover(schema::COVER_LEASE);
  }
  // With directories of these names in it, and `files` files.
  static WalkListing listing_of(const std::vector<std::string>& below, int files = 1) {
    WalkListing listing;
    for (const std::string& name : below) add(listing, name, S_IFDIR | 0755);
    for (int i = 0; i < files; ++i) add(listing, "file " + std::to_string(i), S_IFREG | 0644);
    return listing;
  }
  void keep(const std::string& name, WalkListing listing, std::uint64_t digest) {
    listing.set_digest(digest);
    kept.keep(*directory("handle of " + name), listing);
    scheduler.run();
  }
  // By the names of the directories: their digests.
  std::map<std::string, std::uint64_t> gather(const std::vector<std::string>& names) {
    std::vector<std::string> handles;
    for (const std::string& name : names) handles.push_back("handle of " + name);
    std::optional<KeptListings::Gathered> gathered;
    kept.gather(std::move(handles), KeptListings::kGatheredBytesMax, [&](KeptListings::Gathered found) {
      EXPECT_FALSE(gathered);
      gathered = std::move(found);
    });
    scheduler.run();
    scheduler.advance(KeptListings::kGatherTimeMax);
    if (!gathered) return {{"no answer", 0}};
    last = std::move(*gathered);
    std::map<std::string, std::uint64_t> digests;
    for (const auto& [handle, listing] : last.listings)
      digests[handle.substr(std::string_view("handle of ").size())] = listing.digest;
    return digests;
  }
  // As a disk cache of another version, or a disk that lies, could have it.
  void store(const std::string& name, std::uint64_t digest, std::string_view bytes) {
    disk.store(
        {"handle of " + name, digest, KeptListings::kBlock}, [&] { return copy_bytes(as_byte_span(bytes)); },
        nullptr);
    scheduler.run();
  }
  using Digests = std::map<std::string, std::uint64_t>;

  ManualScheduler scheduler;
  support::TempDir folder;
  DiskCache disk{{.folder = folder.path(), .bytes_max = 64 * kMiB}, scheduler};
  InodeTable inodes{"root"};
  KeptListings kept{scheduler, &disk};
  KeptListings::Gathered last;
};

TEST_F(KeptListingsTest, AreFoundWithAllThatIsBelow) {
  keep("top", listing_of({"a", "b"}), 1);
  keep("a", listing_of({"deep"}), 2);
  keep("deep", listing_of({}), 3);
  keep("beside", listing_of({}), 4);
  EXPECT_EQ(gather({"top"}), (Digests{{"top", 1}, {"a", 2}, {"deep", 3}}));
  EXPECT_EQ(gather({"b", "beside", "a"}), (Digests{{"a", 2}, {"deep", 3}, {"beside", 4}}));
  EXPECT_EQ(gather({"b"}), Digests{});
  EXPECT_EQ(gather({}), Digests{});
  EXPECT_TRUE(kept.has(*directory("handle of a")));
  EXPECT_FALSE(kept.has(*directory("handle of b")));
}

TEST_F(KeptListingsTest, AreAsTheyWereToldButForWhatTheAnswerSays) {
  WalkListing told = listing_of({"a"}, 50);
  told.mutable_entries(1)->set_link_target("target");
  told.set_names(schema::COVER_LEASE);
  told.set_parent(7);
  keep("top", told, 1);
  (void)gather({"top"});
  WalkListing expected;
  *expected.mutable_entries() = told.entries();
  for (auto& entry : *expected.mutable_entries()) entry.mutable_node()->mutable_attr()->clear_cover();
  EXPECT_EQ(last.listings.at("handle of top").listing.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(last.bytes, expected.ByteSizeLong());
  keep("empty", WalkListing(), 2);
  EXPECT_EQ(gather({"empty"}), (Digests{{"empty", 2}}));
}

TEST_F(KeptListingsTest, ANewerOneTakesTheOldOnesPlace) {
  keep("top", listing_of({"a"}), 1);
  keep("top", listing_of({"b"}), 2);
  keep("a", listing_of({}), 3);
  EXPECT_EQ(gather({"top"}), (Digests{{"top", 2}}));
  keep("b", listing_of({}), 0);  // told without a digest
  EXPECT_FALSE(kept.has(*directory("handle of b")));
}

TEST_F(KeptListingsTest, WhatCannotBeReadIsForgottenAndCanBeKeptAgain) {
  const std::string bad[] = {"x",
                             "abcd",                                          // a length of a gigabyte
                             std::string("\x05\0\0\0", 4) + "12345",          // no listing
                             std::string("\x05\0\0\0", 4) + "no zstd frame",  // nor a packed one
                             std::string("\xff\xff\x0f\0", 4) + "short"};
  std::uint64_t digest = 10;
  for (const std::string& bytes : bad) {
    store("top", ++digest, bytes);
    ASSERT_TRUE(kept.has(*directory("handle of top")));
    EXPECT_EQ(gather({"top"}), Digests{});
    EXPECT_FALSE(kept.has(*directory("handle of top")));
    keep("top", listing_of({}), digest);
    EXPECT_EQ(gather({"top"}), (Digests{{"top", digest}}));
  }
}

TEST_F(KeptListingsTest, DirectoriesThatLieInEachOtherEnd) {
  keep("a", listing_of({"b"}), 1);
  keep("b", listing_of({"a", "b"}), 2);
  EXPECT_EQ(gather({"a"}), (Digests{{"a", 1}, {"b", 2}}));
}

TEST_F(KeptListingsTest, AreBoundedByBytes) {
  const WalkListing large = listing_of({}, 5000);
  ASSERT_GT(large.ByteSizeLong(), 100'000u);
  std::vector<std::string> names;
  for (std::uint64_t i = 1; i <= 60; ++i) {
    names.push_back(std::to_string(i));
    keep(names.back(), large, i);
  }
  const std::size_t found = gather(names).size();
  EXPECT_EQ(found, KeptListings::kGatheredBytesMax / last.listings.begin()->second.listing.ByteSizeLong());
  EXPECT_TRUE(last.listings.contains("handle of 1")) << "the first ones";
  EXPECT_LE(last.bytes, KeptListings::kGatheredBytesMax);
}

TEST_F(KeptListingsTest, OneThatIsTooLargeIsNotKept) {
  WalkListing large;
  Random random(1);
  for (int i = 0; i < 4000; ++i) {
    std::string name(100, ' ');
    for (char& c : name) c = static_cast<char>(random.next());
    add(large, name, S_IFREG);
  }
  ASSERT_LE(large.ByteSizeLong(), KeptListings::kPlainMax);
  keep("top", large, 1);
  EXPECT_FALSE(kept.has(*directory("handle of top"))) << "packed it is more than a block";
  keep("top", listing_of({}, 40'000), 1);
  EXPECT_FALSE(kept.has(*directory("handle of top"))) << "plain it is more than an answer";
}

TEST_F(KeptListingsTest, NobodyWaitsForADiskThatIsSlow) {
  ManualScheduler clock;  // the disk's tasks are not run
  KeptListings patient{clock, &disk};
  keep("top", listing_of({"a"}), 1);
  keep("a", listing_of({}), 2);
  int answers = 0;
  std::size_t found = 0;
  patient.gather({"handle of top"}, KeptListings::kGatheredBytesMax,
                 [&](const KeptListings::Gathered& gathered) {
                   ++answers;
                   found = gathered.listings.size();
                 });
  EXPECT_EQ(answers, 0);
  clock.advance(KeptListings::kGatherTimeMax);
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(found, 0u);
  scheduler.run();  // it comes after all
  EXPECT_EQ(answers, 1);
}

TEST_F(KeptListingsTest, WithoutADiskCacheThereAreNone) {
  KeptListings none{scheduler, nullptr};
  EXPECT_FALSE(none.enabled());
  WalkListing told = listing_of({});
  told.set_digest(1);
  none.keep(*directory("handle of top"), told);
  EXPECT_FALSE(none.has(*directory("handle of top")));
  bool answered = false;
  none.gather({"handle of top"}, KeptListings::kGatheredBytesMax,
              [&](const KeptListings::Gathered& gathered) { answered = gathered.listings.empty(); });
  EXPECT_TRUE(answered);
}

// ---------------------------------------------------------------- a walk with them

// One that can be mounted again. All of its directories have one file in them, told with digests.
class KeptTree : public Client {
 protected:
  KeptTree() {
    for (const char* name : {"a", "b", "c", "d"}) server.put_directory(name);
    server.put("file", "content");
    answer_well();
    mount();
  }
  ~KeptTree() override {
    unmount();  // before its disk cache
  }
  void mount() {
    settle();
    unmount();
    cache = std::make_unique<DiskCache>(DiskCache::Options{.folder = folder.path(), .bytes_max = 64 * kMiB},
                                        scheduler);
    settle();
    Filesystem::Options options;
    options.disk = cache.get();
    options.confirmed = [this] { return scheduler.now(); };
    mount_with(std::move(options));
    requests.clear();
    nodes.clear();
  }
  [[nodiscard]] static std::uint64_t digest_of(const std::string& name) {
    return std::hash<std::string>()(name) | 1;
  }
  // `change`: what becomes of a good answer.
  void answer_well(std::function<void(WalkListings&)> change = {}) {
    server.walk = [this, change](const schema::WalkRequest& request, schema::WalkReply& reply,
                                 std::string& body) {
      requests.push_back(request);
      WalkListings listings;
      for (int i = 0; i < request.starts(0).names_size(); ++i) {
        const std::string& name = request.starts(0).names(i);
        WalkListing& listing = *listings.add_listings();
        listing.set_name(static_cast<std::uint32_t>(i) + 1);
        *listing.mutable_directory() = server.node_of(name);
        listing.set_names(names_cover);
        const std::uint64_t digest = digest_of(name + inside);
        if (std::ranges::find(request.known(), digest) != request.known().end()) {
          listing.set_unchanged(true);
          listing.add_entry_covers(schema::COVER_LIFETIME);
          continue;
        }
        if (request.digests()) listing.set_digest(digest);
        schema::DirEntry& entry = *listing.add_entries();
        entry.set_name(inside);
        *entry.mutable_node() = server.node_of("file");
      }
      if (change) change(listings);
      body = listings.SerializeAsString();
      reply.set_length(static_cast<std::uint32_t>(body.size()));
    };
  }
  // As far as into the first directory, which brings them all.
  std::vector<std::string> walk() {
    (void)list(kRootNode);
    const auto names = list(nodes.at("a"));
    settle();
    return names;
  }
  [[nodiscard]] std::vector<std::string> with(const std::string& name) const { return {".", "..", name}; }

  support::TempDir folder;
  std::unique_ptr<DiskCache> cache;
  std::vector<schema::WalkRequest> requests;
  std::string inside = "streamed";
  schema::Cover names_cover = schema::COVER_LIFETIME;
};

TEST_F(KeptTree, ComesFromTheDiskInTheNextMount) {
  EXPECT_EQ(walk(), with("streamed"));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_TRUE(requests[0].digests());
  EXPECT_EQ(requests[0].known_size(), 0);
  mount();
  EXPECT_EQ(walk(), with("streamed"));
  EXPECT_EQ(list(nodes.at("c")), with("streamed"));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].known_size(), 4);
  EXPECT_EQ(server.seen(Request::kReaddir), 2u) << "one of the root in each mount";
}

TEST_F(KeptTree, ThatHasChangedIsToldInFullAndKeptAnew) {
  (void)walk();
  inside = "changed";
  mount();
  EXPECT_EQ(walk(), with("changed"));
  EXPECT_EQ(list(nodes.at("b")), with("changed"));
  EXPECT_EQ(requests[0].known_size(), 4);
  mount();
  EXPECT_EQ(walk(), with("changed"));
  int unchanged = 0;
  answer_well([&](const WalkListings& listings) {
    for (const auto& listing : listings.listings()) unchanged += listing.unchanged();
  });
  mount();
  EXPECT_EQ(walk(), with("changed"));
  EXPECT_EQ(unchanged, 4);
}

// Trust comes from the answer: nothing lives longer for having been on the disk.
TEST_F(KeptTree, LivesAsLongAsTheAnswerSays) {
  (void)walk();
  mount();
  EXPECT_EQ(walk(), with("streamed"));
  inside = "changed";
  scheduler.advance(Foresight::kAgeMax + std::chrono::seconds(1));
  EXPECT_NE(list(nodes.at("b")), with("streamed"));

  server.lease = 1;
  names_cover = schema::COVER_LEASE;
  inside = "streamed";
  mount();
  EXPECT_EQ(walk(), with("streamed"));
  scheduler.advance(std::chrono::minutes(10));
  EXPECT_EQ(list(nodes.at("a")), with("streamed")) << "under a lease";
}

// A push that crosses the answer counts, as for what is told in full.
TEST_F(KeptTree, ThatIsTakenBackMeanwhileIsNotUsed) {
  (void)walk();
  mount();
  (void)list(kRootNode);
  const Handle open = filesystem->open_directory({}, nodes.at("a"))->handle;
  auto answer = new_answer<void>();
  filesystem->read_directory(
      {}, open, 0, true, [](const DirectoryEntryOut&) { return true; }, into(answer));
  scheduler.run();  // the disk
  ASSERT_EQ(server.waiting_kinds(), std::vector{Request::kWalk});
  server.execute(0);
  Request push;
  auto& item = *push.mutable_invalidate()->add_items();
  item.set_handle(server.node_of("b").handle());
  item.set_entries(true);
  filesystem->handle_pushed(push, [] {});
  server.deliver();
  settle();
  inside = "changed";
  server.walk = nullptr;
  EXPECT_NE(list(nodes.at("b")), with("streamed"));
  filesystem->close_directory(open);
}

TEST_F(KeptTree, OfAnOlderServerIsToldInFull) {
  (void)walk();
  answer_well([this](WalkListings& listings) {
    for (WalkListing& listing : *listings.mutable_listings()) {
      listing.clear_digest();
      listing.clear_unchanged();
      listing.clear_entry_covers();
      listing.clear_entries();
      schema::DirEntry& entry = *listing.add_entries();
      entry.set_name("in full");
      *entry.mutable_node() = server.node_of("file");
    }
  });
  mount();
  EXPECT_EQ(walk(), with("in full"));
}

TEST_F(KeptTree, IsNotWhatAServerThatLiesSaysOfIt) {
  const std::function<void(WalkListings&)> lies[] = {
      [](WalkListings& listings) {  // of what was not named
        listings.mutable_listings(0)->set_unchanged(true);
        listings.mutable_listings(0)->clear_entries();
      },
      [](WalkListings& listings) { listings.mutable_listings(0)->clear_entry_covers(); },
      [](WalkListings& listings) { listings.mutable_listings(0)->add_entry_covers(schema::COVER_LEASE); },
      [this](WalkListings& listings) {  // of another directory
        *listings.mutable_listings(0)->mutable_directory() = server.node_of("file");
      },
  };
  bool known = false;
  for (const auto& lie : lies) {
    answer_well(lie);
    mount();
    const auto errors = filesystem->last_error().value().second;
    EXPECT_THAT(walk(), testing::Not(testing::IsEmpty()));
    EXPECT_GT(filesystem->last_error().value().second, errors);
    if (!std::exchange(known, true)) {
      answer_well();
      mount();
      (void)walk();  // from here on they are on the disk
    }
  }
}

TEST_F(KeptTree, WithADamagedRecordIsToldInFull) {
  (void)walk();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".blocks") continue;
    const auto size = static_cast<off_t>(std::filesystem::file_size(entry.path()));
    const int fd = ::open(entry.path().c_str(), O_RDWR);
    ASSERT_EQ(::pwrite(fd, "wrong", 5, size - 6), 5) << "in the last listing's bytes";
    ::close(fd);
  }
  mount();
  EXPECT_EQ(walk(), with("streamed"));
  EXPECT_EQ(list(nodes.at("d")), with("streamed"));
  EXPECT_EQ(requests[0].known_size(), 3);
  EXPECT_EQ(cache->stats().damaged, 1u);
  mount();
  EXPECT_EQ(walk(), with("streamed"));
  EXPECT_EQ(requests[0].known_size(), 4) << "it is kept again";
}

}  // namespace
}  // namespace tusk::client
