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

  std::vector<std::string> list(NodeId node) {
    const Handle directory = *filesystem->open_directory(node);
    std::vector<std::string> names;
    std::uint64_t next = 0;
    for (bool more = true; more;) {  // the end is a reply that brings nothing
      more = false;
      auto answer = new_answer<void>();
      filesystem->read_directory(
          {}, directory, next, true,
          [&](const DirectoryEntryOut& out) {
            names.emplace_back(out.name);
            if (out.attributes) nodes[names.back()] = out.attributes->node;
            next = out.next;
            return more = true;
          },
          into(answer));
      EXPECT_TRUE(finished(answer));
    }
    filesystem->close_directory(directory);
    return names;
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
  std::map<std::string, NodeId> nodes;
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

}  // namespace
}  // namespace tusk::client
