// WALK and READ_FILES: whole subtrees and many small files in one answer, within their limits whatever is
// asked for.
#include <map>
#include <set>

#include "fsserver/listing_digest.h"
#include "mount.h"
#include "mounts_with_leases.h"
#include "proto/rpc/compression.h"

namespace tusk::server {
namespace {

using schema::Request;

struct Walked {
  schema::WalkListings listings;

  // Paths of the entries, each below the start's own name in the request ("": a start by its handle).
  [[nodiscard]] std::set<std::string> paths(const Request& request) const {
    std::vector<std::string> of;
    std::set<std::string> all;
    for (const schema::WalkListing& listing : listings.listings()) {
      std::string path;
      if (listing.parent() != 0)
        path = of.at(listing.parent() - 1) +
               listings.listings(static_cast<int>(listing.parent()) - 1)
                   .entries(static_cast<int>(listing.entry()))
                   .name() +
               "/";
      else if (listing.name() != 0)
        path = request.walk()
                   .starts(static_cast<int>(listing.start()))
                   .names(static_cast<int>(listing.name()) - 1) +
               "/";
      of.push_back(path);
      for (const schema::DirEntry& entry : listing.entries()) all.insert(path + entry.name());
    }
    return all;
  }
};

class Walking : public testing::Test {
 protected:
  Request from(const std::string& handle, std::vector<std::string> names, bool deep = true,
               std::uint32_t limit = 1 << 20) {
    Request request;
    request.mutable_walk()->set_deep(deep);
    request.mutable_walk()->set_limit_bytes(limit);
    auto& start = *request.mutable_walk()->add_starts();
    start.set_handle(handle);
    for (std::string& name : names) start.add_names(std::move(name));
    return request;
  }
  Walked walk(const Request& request) { return unpack(EXPECT_OK(mount.call(request, {}, 1 << 20))); }
  static Walked unpack(const Answer& answer) {
    SharedBytes plain = answer.body;
    const schema::WalkReply& reply = answer.reply.walk();
    if (reply.compressed()) plain = *rpc::decompress(plain.bytes, reply.length());
    Walked walked;
    EXPECT_TRUE(walked.listings.ParseFromArray(plain.bytes.data(), static_cast<int>(plain.size())));
    EXPECT_EQ(plain.size(), reply.length());
    return walked;
  }
  void make(std::string_view path) { std::filesystem::create_directories(dir / path); }

  TempDir dir;
  Server server{dir.path()};
  Mount mount{server};
};

TEST_F(Walking, OneDirectoryComesWithItsNameIfItIsSmall) {
  make("a/b");
  write_file(dir / "a/file", "12345");
  write_file(dir / "other", "");
  const auto names_told = [&](std::string_view name, std::uint32_t limit) {
    Request request;
    request.mutable_lookup()->set_parent(mount.root());
    request.mutable_lookup()->set_name(std::string(name));
    request.mutable_lookup()->set_listing_bytes(limit);
    const Answer answer = EXPECT_OK(mount.call(request));
    const schema::NodeReply& reply = answer.reply.node();
    EXPECT_TRUE(reply.has_node());
    std::set<std::string> names;
    for (const schema::DirEntry& entry : reply.listing().entries()) {
      EXPECT_TRUE(entry.has_node());
      names.insert(entry.name());
    }
    EXPECT_EQ(reply.has_listing(), !names.empty());
    return names;
  };
  EXPECT_EQ(names_told("a", 4096), (std::set<std::string>{"b", "file"}));
  EXPECT_THAT(names_told("a", 100), testing::IsEmpty()) << "not in part";
  EXPECT_THAT(names_told("a", 0), testing::IsEmpty());
  EXPECT_THAT(names_told("other", 4096), testing::IsEmpty()) << "no directory";
}

TEST_F(Walking, GoesThroughAllThatIsBelow) {
  make("a/b/c");
  make("d");
  write_file(dir / "a/b/file", "12345");
  write_file(dir / "d/other", "");
  const Request request = from(mount.root(), {});
  const Walked walked = walk(request);
  EXPECT_EQ(walked.paths(request), (std::set<std::string>{"a", "d", "a/b", "a/b/c", "a/b/file", "d/other"}));
  EXPECT_EQ(walked.listings.listings(0).directory().handle(), mount.root());
  // An entry says all that READDIR would.
  for (const auto& listing : walked.listings.listings())
    for (const auto& entry : listing.entries())
      if (entry.name() == "file") {
        EXPECT_EQ(entry.node().handle(), mount.handle("a/b/file"));
        EXPECT_EQ(entry.node().attr().size(), 5u);
        EXPECT_TRUE(entry.node().attr().no_xattrs());
      }
}

TEST_F(Walking, ListsWhatIsNamedAndStopsThereUnlessItIsToGoDeep) {
  make("a/b/c");
  make("x/y");
  const Request request = from(mount.root(), {"x", "a"}, false);
  EXPECT_EQ(walk(request).paths(request), (std::set<std::string>{"x/y", "a/b"}));
  EXPECT_EQ(walk(request).listings.listings(0).directory().handle(), mount.handle("x"));
}

TEST_F(Walking, TellsTargetsOfLinks) {
  std::filesystem::create_symlink("to/there", dir / "link");
  const auto listing = walk(from(mount.root(), {})).listings.listings(0);
  EXPECT_EQ(listing.entries(0).link_target(), "to/there");
}

TEST_F(Walking, SaysWhatCannotBeListed) {
  make("good");
  write_file(dir / "file", "");
  std::filesystem::create_symlink("good", dir / "link");
  const auto listings = walk(from(mount.root(), {"gone", "file", "link", "..", "a/b", "", "good"})).listings;
  ASSERT_EQ(listings.listings_size(), 7);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(listings.listings(i).unlisted(), i < 6) << i;
    EXPECT_TRUE(listings.listings(i).entries().empty());
  }
}

TEST_F(Walking, StopsAtItsLimitAndTheRestCanBeAskedFor) {
  for (int i = 0; i < 40; ++i) {
    make("d" + std::to_string(i));
    for (int j = 0; j < 5; ++j) write_file(dir / ("d" + std::to_string(i) + "/f" + std::to_string(j)), "");
  }
  std::vector<std::string> left;
  for (int i = 0; i < 40; ++i) left.push_back("d" + std::to_string(i));
  std::set<std::string> seen;
  int requests = 0;
  while (!left.empty() && requests < 100) {
    const Request request = from(mount.root(), left, true, 4096);
    const Walked walked = walk(request);
    EXPECT_LE(walked.listings.ByteSizeLong(), 4096u);
    ASSERT_GT(walked.listings.listings_size(), 0);
    for (const std::string& path : walked.paths(request)) seen.insert(path);
    left.erase(left.begin(), left.begin() + walked.listings.listings_size());
    ++requests;
  }
  EXPECT_EQ(seen.size(), 200u);
  EXPECT_GT(requests, 5);
}

TEST_F(Walking, LeavesDirectoriesThatFitInNoAnswerToReadDir) {
  make("large");
  make("small/inside");
  for (int i = 0; i < 200; ++i) write_file(dir / ("large/" + std::to_string(i)), "");
  const Request request = from(mount.root(), {"large", "small"}, true, 4096);
  const Walked walked = walk(request);
  ASSERT_EQ(walked.listings.listings_size(), 3);
  EXPECT_TRUE(walked.listings.listings(0).unlisted());
  EXPECT_EQ(walked.paths(request), (std::set<std::string>{"small/inside"}));
  // Behind something that did fit it is not begun with.
  EXPECT_EQ(walk(from(mount.root(), {"small", "large"}, true, 4096)).listings.listings_size(), 2);
}

TEST_F(Walking, IsBoundedWhateverIsAskedFor) {
  make("a");
  Request many;
  for (int i = 0; i < 5000; ++i) many.mutable_walk()->add_starts()->set_handle(mount.root());
  EXPECT_ERROR(mount.call(many, {}, 1 << 20), err(EINVAL));
  Request names = from(mount.root(), std::vector<std::string>(5000, "a"));
  EXPECT_ERROR(mount.call(names, {}, 1 << 20), err(EINVAL));
  // More than the limit of all, and more than there is room for.
  for (int i = 0; i < 300; ++i) write_file(dir / ("a/" + std::string(100, 'x') + std::to_string(i)), "");
  const Answer answer = EXPECT_OK(mount.call(from(mount.root(), {"a"}, true, ~0u), {}, 8192));
  EXPECT_LE(answer.body.size(), 8192u);
  EXPECT_TRUE(unpack(answer).listings.listings(0).unlisted());
  // No room at all is an error or nothing, never more than there is room for.
  EXPECT_LE(mount.call(from(mount.root(), {"a"}, true, 0), {}, 0).body.size(), 0u);
}

TEST_F(Walking, KnowsNoHandlesButItsOwn) {
  for (const std::string& handle : {std::string(), std::string(128, 'h'), std::string("short")}) {
    const auto listings = walk(from(handle, {"a"})).listings;
    ASSERT_EQ(listings.listings_size(), 1);
    EXPECT_TRUE(listings.listings(0).unlisted());
    EXPECT_FALSE(listings.listings(0).has_directory());
  }
}

// ---------------------------------------------------------------- listings that the client has kept

using schema::WalkListing;

class WalkingAgain : public Walking {
 protected:
  WalkingAgain() {
    make("a/b");
    make("c");
    write_file(dir / "a/file", "12345");
    write_file(dir / "a/b/other", "1");
    write_file(dir / "c/third", "");
  }
  Request tree() {
    Request request = from(mount.root(), {});
    request.mutable_walk()->set_digests(true);
    return request;
  }
  // All listings of the tree are known.
  Request again() {
    Request request = tree();
    const Walked walked = walk(request);
    for (const WalkListing& listing : walked.listings.listings())
      request.mutable_walk()->add_known(listing.digest());
    return request;
  }
  // By the names of the directories ("": the root) which of them are told to be unchanged.
  std::map<std::string, bool> unchanged(const Request& request) {
    const Walked plain = walk(tree());
    const Walked walked = walk(request);
    std::map<std::string, bool> all;
    EXPECT_EQ(walked.listings.listings_size(), plain.listings.listings_size());
    for (int i = 0; i < walked.listings.listings_size(); ++i) {
      const WalkListing& listing = walked.listings.listings(i);
      EXPECT_EQ(listing.parent(), plain.listings.listings(i).parent());
      EXPECT_EQ(listing.entry(), plain.listings.listings(i).entry());
      EXPECT_NE(listing.unchanged(), listing.digest() != 0);
      EXPECT_EQ(listing.entries_size(), listing.unchanged() ? 0 : plain.listings.listings(i).entries_size());
      std::string name;
      if (listing.parent() != 0)
        name = plain.listings.listings(static_cast<int>(listing.parent()) - 1)
                   .entries(static_cast<int>(listing.entry()))
                   .name();
      all[name] = listing.unchanged();
    }
    return all;
  }
  using Listings = std::map<std::string, bool>;
};

TEST_F(WalkingAgain, IsToldOnlyWhatHasChanged) {
  const Request request = again();
  EXPECT_EQ(request.walk().known_size(), 4);
  EXPECT_EQ(unchanged(request), (Listings{{"", true}, {"a", true}, {"b", true}, {"c", true}}));
  write_file(dir / "c/new", "");
  EXPECT_EQ(unchanged(request), (Listings{{"", false}, {"a", true}, {"b", true}, {"c", false}}))
      << "the directory that has it, and the one that tells of that";
}

TEST_F(WalkingAgain, SeesEveryChangeOfAFile) {
  const auto seen = [&](const char* what, const std::function<void()>& change) {
    const Request request = again();
    ASSERT_TRUE(unchanged(request).at("b")) << what;
    change();
    EXPECT_FALSE(unchanged(request).at("b")) << what;
    EXPECT_TRUE(unchanged(request).at("c")) << what;
  };
  const std::string other = dir / "a/b/other";
  seen("size", [&] { write_file(other, "longer"); });
  seen("content", [&] { write_file(other, "LONGER"); });
  seen("mode", [&] { ::chmod(other.c_str(), 0600); });
  seen("times", [&] {
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    ::utimensat(AT_FDCWD, other.c_str(), times, 0);
  });
  seen("access time", [&] {
    const timespec times[2] = {{2000, 0}, {0, UTIME_OMIT}};
    ::utimensat(AT_FDCWD, other.c_str(), times, 0);
  });
  seen("link", [&] { std::filesystem::create_hard_link(other, dir / "link"); });
  seen("name", [&] { std::filesystem::rename(other, dir / "a/b/renamed"); });
  seen("another file", [&] {
    write_file(dir / "a/b/twin", "LONGER");
    std::filesystem::rename(dir / "a/b/twin", dir / "a/b/renamed");
  });
  std::filesystem::create_symlink("to/here", dir / "a/b/symlink");
  seen("target", [&] {
    std::filesystem::remove(dir / "a/b/symlink");
    std::filesystem::create_symlink("to/her", dir / "a/b/symlink");
  });
}

// To list directories and to read links moves it: a tree would differ by having been looked at.
TEST_F(WalkingAgain, DoesNotMindThatDirectoriesAndLinksWereRead) {
  google::protobuf::RepeatedPtrField<schema::DirEntry> before;
  *before.Add() = walk(tree()).listings.listings(0).entries(0);
  auto after = before;
  ASSERT_TRUE(S_ISDIR(after[0].node().attr().mode()));
  after[0].mutable_node()->mutable_attr()->set_atime_s(7);
  after[0].mutable_node()->mutable_attr()->set_cover(schema::COVER_LEASE);
  EXPECT_EQ(listing_digest("handle", before), listing_digest("handle", after));
  EXPECT_NE(listing_digest("handle", before), listing_digest("other handle", before));
  after[0].mutable_node()->mutable_attr()->set_mode(S_IFREG | 0644);
  before[0].mutable_node()->mutable_attr()->set_mode(S_IFREG | 0644);
  EXPECT_NE(listing_digest("handle", before), listing_digest("handle", after)) << "of a file it counts";
}

TEST_F(WalkingAgain, IsToldNoDigestsUnlessItAsks) {
  Request request = tree();
  request.mutable_walk()->clear_digests();
  const Walked walked = walk(request);
  for (const WalkListing& listing : walked.listings.listings()) EXPECT_EQ(listing.digest(), 0u);
}

TEST_F(WalkingAgain, UnchangedListingsTakeNextToNoRoom) {
  for (int i = 0; i < 30; ++i)
    for (int j = 0; j < 20; ++j) {
      make("many/" + std::to_string(i));
      write_file(dir / ("many/" + std::to_string(i) + "/a file " + std::to_string(j)), "");
    }
  Request request = again();
  ASSERT_GT(walk(tree()).listings.ByteSizeLong(), 70'000u);
  request.mutable_walk()->set_limit_bytes(4096);
  const Walked walked = walk(request);
  EXPECT_EQ(walked.listings.listings_size(), 35) << "each is larger than that, and all are told";
  EXPECT_LE(walked.listings.ByteSizeLong(), 35 * 20u);
  // One that must be told in full and does not fit ends the answer, as ever.
  write_file(dir / "many/7/new", "");
  const Walked next = walk(request);
  EXPECT_LT(next.listings.listings_size(), 35);
  EXPECT_LE(next.listings.ByteSizeLong(), 4096u);
}

TEST_F(WalkingAgain, WhatIsMadeAndNotSentIsBounded) {
  for (int i = 0; i < 400; ++i) write_file(dir / ("c/" + std::string(200, 'x') + std::to_string(i)), "");
  Request request = from(mount.root(), std::vector<std::string>(100, "c"));
  request.mutable_walk()->set_digests(true);
  const auto first = walk(request).listings.listings(0);
  request.mutable_walk()->add_known(first.digest());
  const auto told = static_cast<std::size_t>(walk(request).listings.listings_size());
  EXPECT_GT(told, kWalkUnsentBytesMax / first.ByteSizeLong() - 2);
  // The last passes the bound; sizes differ by a digest.
  EXPECT_LE(told, kWalkUnsentBytesMax / first.ByteSizeLong() + 2);
}

TEST_F(WalkingAgain, KnownListingsAreBounded) {
  Request request = tree();
  for (int i = 0; i < kListingsKnownMax; ++i)
    request.mutable_walk()->add_known(static_cast<std::uint64_t>(i));
  EXPECT_FALSE(unchanged(request).at("a"));
  request.mutable_walk()->add_known(1);
  EXPECT_ERROR(mount.call(request, {}, 1 << 20), err(EINVAL));
}

// Files with several names are not watched here.
class WatchOfSingleFiles final : public ChangeWatch {
 public:
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_INOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const Status& status) override {
    return S_ISDIR(status.stx_mode) || status.stx_nlink == 1;
  }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }
};

TEST_F(WalkingAgain, TellsCoversAnew) {
  Server leasing(dir.path(),
                 {.watch = [](Export&, const ChangeWatch::Events&) -> std::unique_ptr<ChangeWatch> {
                   return std::make_unique<WatchOfSingleFiles>();
                 }});
  Pushes pushes;
  leasing.service().reach_clients_by(&pushes);
  std::filesystem::create_hard_link(dir / "c/third", dir / "c/second name");
  const Request request = again();
  Mount leased(leasing, {.leases = true});
  const Answer answer = EXPECT_OK(leased.call(request, {}, 1 << 20));
  EXPECT_NE(answer.reply.lease(), 0u);
  const auto listings = unpack(answer).listings;
  ASSERT_EQ(listings.listings_size(), 4);
  for (const WalkListing& listing : listings.listings()) {
    EXPECT_TRUE(listing.unchanged());
    EXPECT_EQ(listing.names(), schema::COVER_LEASE);
    ASSERT_GE(listing.entry_covers_size(), 1);
  }
  write_file(dir / "c/with one name", "");
  const auto mixed = unpack(EXPECT_OK(leased.call(again(), {}, 1 << 20))).listings;
  int several = 0;
  for (const WalkListing& listing : mixed.listings()) {
    EXPECT_TRUE(listing.unchanged());
    if (listing.entry_covers_size() == 1) continue;
    ++several;
    EXPECT_THAT(
        listing.entry_covers(),
        testing::UnorderedElementsAre(schema::COVER_LEASE, schema::COVER_LIFETIME, schema::COVER_LIFETIME));
  }
  EXPECT_EQ(several, 1);
}

// ---------------------------------------------------------------- READ_FILES

class ReadingFiles : public Walking {
 protected:
  Request files(const std::string& folder, std::vector<std::string> names, std::uint32_t limit = 1 << 20) {
    Request request;
    auto& message = *request.mutable_read_files();
    message.set_limit_bytes(limit);
    message.set_file_bytes_max(65536);
    auto& from = *message.add_folders();
    from.set_handle(folder);
    for (std::string& name : names) from.add_names(std::move(name));
    return request;
  }
  std::map<std::string, std::string> read(const Request& request) {
    const Answer answer = EXPECT_OK(mount.call(request, {}, 1 << 20));
    std::map<std::string, std::string> content;
    std::size_t at = 0;
    for (const schema::FileBytes& file : answer.reply.read_files().files()) {
      const auto& folder = request.read_files().folders(static_cast<int>(file.folder()));
      const std::string& name = folder.names(static_cast<int>(file.name()));
      content[name] = file.unchanged() ? "unchanged" : answer.text().substr(at, file.length());
      EXPECT_EQ(file.node().attr().size(), file.unchanged() ? file.node().attr().size() : file.length());
      at += file.length();
    }
    EXPECT_EQ(at, answer.body.size());
    return content;
  }
};

TEST_F(ReadingFiles, BringsTheirBytesAndLeavesOutWhatIsNone) {
  make("folder");
  write_file(dir / "a", "one");
  write_file(dir / "b", "");
  write_file(dir / "c", "three");
  write_file(dir / "large", std::string(70'000, 'l'));
  std::filesystem::create_symlink("a", dir / "link");
  EXPECT_EQ(read(files(mount.root(), {"a", "gone", "b", "folder", "link", "..", "large", "c"})),
            (std::map<std::string, std::string>{{"a", "one"}, {"b", ""}, {"c", "three"}}));
}

TEST_F(ReadingFiles, StaysWithinItsLimit) {
  for (const char* name : {"a", "b", "c"}) write_file(dir / name, std::string(4000, *name));
  EXPECT_EQ(read(files(mount.root(), {"a", "b", "c"}, 9000)).size(), 2u);
  EXPECT_EQ(EXPECT_OK(mount.call(files(mount.root(), {"a", "b", "c"}), {}, 5000)).body.size(), 4000u);
  EXPECT_ERROR(mount.call(files(mount.root(), std::vector<std::string>(5000, "a")), {}, 1 << 20),
               err(EINVAL));
}

TEST_F(ReadingFiles, SendsNoBytesThatTheClientHas) {
  write_file(dir / "a", "one");
  write_file(dir / "b", "two");
  Request request = files(mount.root(), {"a", "b"});
  auto& folder = *request.mutable_read_files()->mutable_folders(0);
  const std::uint64_t change = EXPECT_OK(mount.lookup(mount.root(), "a")).reply.node().node().attr().change();
  folder.add_known_changes(change);
  // 0: a kernel that stamps coarsely does not vouch for so new a file.
  EXPECT_EQ(read(request),
            (std::map<std::string, std::string>{{"a", change != 0 ? "unchanged" : "one"}, {"b", "two"}}));
}

}  // namespace
}  // namespace tusk::server
