// Listings that come before anybody asks for them, from good servers and bad ones.
#include <dirent.h>

#include "client.h"

namespace tusk::client {
namespace {

using schema::Request;
using schema::WalkListing;
using schema::WalkListings;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Tree : public Client {
 protected:
  Tree() {
    for (const char* name : {"a", "b", "c", "d"}) server.put_directory(name);
    server.put("file", "content");
  }

  // As far as into the first directory.
  void begin_walk() {
    (void)list(kRootNode);
    EXPECT_EQ(list(nodes.at("a")), everything);
  }
  void answer_with(const WalkListings& listings) {
    server.walk = [listings](const schema::WalkRequest&, schema::WalkReply& reply, std::string& body) {
      body = listings.SerializeAsString();
      reply.set_length(static_cast<std::uint32_t>(body.size()));
    };
  }
  // What a good server says of the directories that were asked for: one file in each.
  void answer_well() {
    server.walk = [this](const schema::WalkRequest& request, schema::WalkReply& reply, std::string& body) {
      WalkListings listings;
      for (int i = 0; i < request.starts(0).names_size(); ++i) {
        WalkListing& listing = *listings.add_listings();
        listing.set_name(static_cast<std::uint32_t>(i) + 1);
        *listing.mutable_directory() = server.node_of(request.starts(0).names(i));
        schema::DirEntry& entry = *listing.add_entries();
        entry.set_name("streamed");
        *entry.mutable_node() = server.node_of("file");
      }
      body = listings.SerializeAsString();
      reply.set_length(static_cast<std::uint32_t>(body.size()));
    };
  }

  const std::vector<std::string> everything{".", "..", "a", "b", "c", "d", "file"};
  const std::vector<std::string> streamed{".", "..", "streamed"};
};

TEST_F(Tree, IsAskedForOnceAProgramGoesIntoIt) {
  answer_well();
  (void)list(kRootNode);
  EXPECT_EQ(server.seen(Request::kWalk), 0u);
  EXPECT_EQ(list(nodes.at("a")), streamed);
  EXPECT_EQ(list(nodes.at("b")), streamed);
  EXPECT_EQ(list(nodes.at("d")), streamed);
  EXPECT_EQ(server.seen(Request::kWalk), 1u);
  EXPECT_EQ(server.seen(Request::kReaddir), 1u);
}

TEST_F(Tree, ServesEachDirectoryOnceBeyondItsLifetime) {
  answer_well();
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  scheduler.advance(milliseconds(1500));
  EXPECT_EQ(list(nodes.at("b")), streamed);
  EXPECT_EQ(list(nodes.at("b")), streamed);  // within its lifetime from then
  scheduler.advance(milliseconds(1500));
  server.walk = nullptr;
  EXPECT_EQ(list(nodes.at("b")), everything);
}

TEST_F(Tree, IsAskedForAgainAfterAPause) {
  answer_well();
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  scheduler.advance(Foresight::kPauseMax + milliseconds(1));
  EXPECT_EQ(list(nodes.at("b")), everything);
}

TEST_F(Tree, ThatThisMountChangedIsNotAsItWasTold) {
  answer_well();
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  auto made = new_answer<CreateReply>();
  filesystem->create({}, nodes.at("b"), "new", 0644, O_RDWR, into(made));
  EXPECT_TRUE(finished(made));
  server.walk = nullptr;
  EXPECT_THAT(list(nodes.at("b")), testing::Contains("new"));
}

// Beside its name comes what is in a directory.
class LookedUp : public Tree {
 protected:
  LookedUp() {
    schema::DirEntry& entry = *server.listing_beside_name.emplace().add_entries();
    entry.set_name("streamed");
    *entry.mutable_node() = server.node_of("file");
  }
};

TEST_F(LookedUp, ADirectoryNeedNotBeListedAnyMore) {
  const NodeId a = lookup("a").node;
  EXPECT_EQ(list(a), streamed);
  auto inside = new_answer<EntryReply>();
  filesystem->lookup({}, a, "absent", into(inside));
  EXPECT_EQ(finished(inside)->node, NodeId(0));
  EXPECT_EQ(server.seen(Request::kReaddir), 0u);
  EXPECT_EQ(server.seen(Request::kLookup), 1u);
}

TEST_F(LookedUp, OneAfterTheOtherIsAWalkAllTheSame) {
  answer_well();
  (void)list(lookup("a").node);
  EXPECT_EQ(server.seen(Request::kWalk), 0u);
  (void)list(lookup("b").node);
  EXPECT_EQ(server.seen(Request::kWalk), 1u);
}

TEST_F(LookedUp, AFileHasNothingInItWhateverAServerSays) {
  const NodeId file = lookup("file").node;
  EXPECT_FALSE(filesystem->open_directory({}, file));
  EXPECT_EQ(text_of(finished(begin_read(open("file", O_RDONLY), 0, 100))), "content");
}

TEST_F(LookedUp, WhatWasListedSinceIsNotReplaced) {
  const NodeId a = lookup("a").node;
  scheduler.advance(seconds(3));
  auto again = new_answer<EntryReply>();
  filesystem->lookup({}, kRootNode, "a", into(again));
  ASSERT_EQ(server.waiting().back().request.message.operation_case(), Request::kLookup);
  server.execute(server.waiting().size() - 1);
  scheduler.advance(milliseconds(1));
  EXPECT_EQ(list(a), everything);
  server.deliver();
  EXPECT_TRUE(finished(again));
  EXPECT_EQ(list(a), everything);
}

TEST_F(LookedUp, ADirectoryThatWasForgottenForRoomIsNotEmpty) {
  constexpr std::size_t kNames = 2000;
  for (std::size_t i = 0; i < kNames; ++i) server.put_directory("d" + std::to_string(i));
  for (const char* name : {"b", "c"}) (void)list(lookup(name).node);  // the walk begins
  scheduler.advance(milliseconds(1500));
  const NodeId a = lookup("a").node;
  server.listing_beside_name.reset();
  (void)list(kRootNode);
  for (std::size_t i = 0; i <= DirectoryCache::kNamesMax / kNames; ++i)
    (void)list(nodes.at("d" + std::to_string(i)));
  EXPECT_GE(std::ranges::count(kernel.entries, "streamed"), 2);
  auto inside = new_answer<EntryReply>();
  filesystem->lookup({}, a, "file", into(inside));
  EXPECT_NE(finished(inside)->node, NodeId(0));
}

TEST_F(Tree, ThatIsListedOverAndOverTakesTheRoomOfOne) {
  constexpr std::size_t kNames = 2000;
  for (std::size_t i = 0; i < kNames; ++i) server.put("f" + std::to_string(i), "");
  (void)list(kRootNode);
  for (std::size_t i = 0; i <= DirectoryCache::kNamesMax / kNames; ++i) {
    (void)list(nodes.at("a"));
    scheduler.advance(seconds(3));
  }
  EXPECT_THAT(kernel.entries, testing::IsEmpty());
}

TEST_F(Tree, OfAnOlderServerIsListedAsEver) {
  begin_walk();
  EXPECT_EQ(list(nodes.at("b")), everything);
  EXPECT_EQ(list(nodes.at("c")), everything);
  EXPECT_EQ(server.seen(Request::kWalk), 1u);
  EXPECT_EQ(server.seen(Request::kReaddir), 4u);
}

// A server that lies is not believed, and the program is not hurt.
TEST_F(Tree, OfIndexesThatLeadNowhereIsNotBelieved) {
  for (int kind = 0; kind < 5; ++kind) {
    WalkListings listings;
    WalkListing& listing = *listings.add_listings();
    *listing.mutable_directory() = server.node_of("a");
    switch (kind) {
      case 0:
        listing.set_parent(1);  // itself
        break;
      case 1:
        listing.set_start(7);
        break;
      case 2:
        listing.set_name(77);
        break;
      case 3:
        listing.set_name(0);  // asked for by name
        break;
      case 4: {
        listing.set_name(1);
        WalkListing& below = *listings.add_listings();
        below.set_parent(1);
        below.set_entry(5);
        break;
      }
    }
    answer_with(listings);
    (void)list(kRootNode);
    EXPECT_THAT(list(nodes.at("a")), testing::Not(testing::IsEmpty())) << kind;
    EXPECT_GT(filesystem->last_error().value().second, static_cast<std::uint64_t>(kind)) << kind;
    scheduler.advance(seconds(20));
  }
}

// Somebody has put another directory in its place: of that one nothing is used, nor of what is below it.
TEST_F(Tree, WithAnotherDirectoryInItUsesTheRestOfTheAnswer) {
  answer_well();
  const auto well = server.walk;
  server.walk = [&](const schema::WalkRequest& request, schema::WalkReply& reply, std::string& body) {
    well(request, reply, body);
    WalkListings told;
    ASSERT_TRUE(told.ParseFromString(body));
    WalkListings listings;
    for (int i = 0; i < told.listings_size(); ++i) {
      *listings.add_listings() = told.listings(i);
      if (request.starts(0).names(i) != "b") continue;
      WalkListing& other = *listings.mutable_listings(listings.listings_size() - 1);
      other.mutable_directory()->set_handle("another one");
      *other.mutable_entries(0)->mutable_node() = server.node_of("d");
      WalkListing& below = *listings.add_listings();
      below.set_parent(static_cast<std::uint32_t>(listings.listings_size()) - 1);
    }
    body = listings.SerializeAsString();
    reply.set_length(static_cast<std::uint32_t>(body.size()));
  };
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  EXPECT_EQ(list(nodes.at("c")), streamed);
  EXPECT_EQ(filesystem->last_error().value().second, 0u);
}

TEST_F(Tree, OfBytesThatAreNoListingsIsNotBelieved) {
  for (const char* bytes : {"", "no listings at all", "\xff\xff\xff\xff\xff"}) {
    for (const bool compressed : {false, true}) {
      server.walk = [=](const schema::WalkRequest&, schema::WalkReply& reply, std::string& body) {
        body = bytes;
        reply.set_length(compressed ? 1 << 30 : 18);
        reply.set_compressed(compressed);
      };
      begin_walk();
      EXPECT_EQ(list(nodes.at("b")), everything);
      scheduler.advance(seconds(20));
    }
  }
}

TEST_F(Tree, WhoseFilesAreToldAsDirectoriesIsNotBelieved) {
  WalkListings listings;
  WalkListing& listing = *listings.add_listings();
  listing.set_name(1);
  *listing.mutable_directory() = server.node_of("a");
  *listing.add_entries()->mutable_node() = server.node_of("file");
  listings.mutable_listings(0)->mutable_entries(0)->set_name("file");
  WalkListing& below = *listings.add_listings();
  below.set_parent(1);
  answer_with(listings);
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  EXPECT_GT(filesystem->last_error().value().second, 0u);
}

TEST_F(Tree, ThatNeverEndsIsNotAskedForWithoutEnd) {
  // Each directory contains itself and its siblings again.
  server.walk = [this](const schema::WalkRequest& request, schema::WalkReply& reply, std::string& body) {
    WalkListings listings;
    WalkListing& listing = *listings.add_listings();
    listing.set_name(1);
    *listing.mutable_directory() = server.node_of(request.starts(0).names(0));
    for (const char* name : {"a", "b", "c", "d"}) {
      listing.add_entries()->set_name(name);
      *listing.mutable_entries()->rbegin()->mutable_node() = server.node_of(name);
    }
    body = listings.SerializeAsString();
    reply.set_length(static_cast<std::uint32_t>(body.size()));
  };
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  settle();
  EXPECT_LT(server.seen(Request::kWalk), 100u);
}

// As git status does: threads examine files at many places before the first answer comes.
TEST_F(Tree, ExaminedAtManyPlacesAtOnceIsNotAskedForAgainAndAgain) {
  constexpr int kDirectories = 60;
  for (int d = 0; d < kDirectories; ++d) server.put_directory("d" + std::to_string(d));
  server.walk = [this](const schema::WalkRequest& request, schema::WalkReply& reply, std::string& body) {
    WalkListings listings;
    WalkListing& root = *listings.add_listings();
    *root.mutable_directory() = server.node_of("d0");
    root.mutable_directory()->set_handle(request.starts(0).handle());
    for (int d = 0; d < kDirectories; ++d) {
      root.add_entries()->set_name("d" + std::to_string(d));
      *root.mutable_entries()->rbegin()->mutable_node() = server.node_of("d" + std::to_string(d));
    }
    body = listings.SerializeAsString();
    reply.set_length(static_cast<std::uint32_t>(body.size()));
  };
  const auto answer_all_but_walks = [&] {
    for (std::size_t i = 0; i < server.waiting().size();) {
      if (server.waiting()[i].request.message.has_walk()) {
        ++i;
      } else {
        server.answer(i);
        i = 0;
      }
    }
  };
  std::vector<NodeId> directories;
  for (int d = 0; d < kDirectories; ++d) directories.push_back(lookup("d" + std::to_string(d)).node);
  const auto examine = [&](NodeId directory) {
    for (int file = 0; file < 10; ++file)
      filesystem->lookup({}, directory, "f" + std::to_string(file), into(new_answer<EntryReply>()));
    answer_all_but_walks();
  };
  for (int d = 0; d < kDirectories; d += 2) examine(directories[d]);
  EXPECT_EQ(server.seen(Request::kWalk), 1u);
  // It tells of the root only. What is missed until the next answer is what that one brings.
  ASSERT_TRUE(server.waiting()[0].request.message.has_walk());
  server.answer(0);
  scheduler.run();
  for (int d = 1; d < kDirectories; d += 2) examine(directories[d]);
  EXPECT_LE(server.seen(Request::kWalk), 2u);
  settle();
}

class LeasedTree : public Tree {
 protected:
  LeasedTree() {
    server.lease = 7;
    mount_with({.confirmed = [this] { return scheduler.now(); }});
  }
};

// A push about a directory that the answer under way tells of for the first time.
TEST_F(LeasedTree, NamesThatAPushOvertookAreNotKept) {
  server.put_directory("inner");
  const std::string inner = server.node_of("inner").handle();
  server.erase("inner");  // only the tree tells of it
  server.walk = [this, inner](const schema::WalkRequest& request, schema::WalkReply& reply,
                              std::string& body) {
    WalkListings listings;
    WalkListing& outer = *listings.add_listings();
    outer.set_name(1);
    *outer.mutable_directory() = server.node_of(request.starts(0).names(0));
    outer.set_names(schema::COVER_LEASE);
    schema::DirEntry& entry = *outer.add_entries();
    entry.set_name("inner");
    entry.mutable_node()->set_handle(inner);
    entry.mutable_node()->mutable_attr()->set_mode(S_IFDIR | 0755);
    WalkListing& deep = *listings.add_listings();
    deep.set_parent(1);
    deep.set_names(schema::COVER_LEASE);
    body = listings.SerializeAsString();
    reply.set_length(static_cast<std::uint32_t>(body.size()));
    // Somebody makes a name in it: the push is small and comes first.
    schema::Request push;
    auto& item = *push.mutable_invalidate()->add_items();
    item.set_handle(inner);
    item.set_name("new");
    filesystem->handle_pushed(push, [] {});
  };
  (void)list(kRootNode);
  (void)list(nodes.at("a"));
  ASSERT_TRUE(nodes.contains("inner"));
  auto answer = new_answer<EntryReply>();
  const auto before = server.seen(Request::kLookup);
  filesystem->lookup({}, nodes.at("inner"), "new", into(answer));
  (void)finished(answer);
  EXPECT_EQ(server.seen(Request::kLookup), before + 1) << "it was told not to exist";
}

}  // namespace
}  // namespace tusk::client
