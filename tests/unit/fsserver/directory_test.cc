// Listing directories: all entries, each once, page by page, however many there are.
#include <dirent.h>

#include <map>
#include <set>

#include "mount.h"

namespace tusk::server {
namespace {

struct Listing {
  std::multiset<std::string> names;
  int pages = 0;
};

Listing list(Mount& mount, const std::string& directory, bool with_nodes = false, std::uint32_t limit = 0) {
  Listing listing;
  std::uint64_t cookie = 0;
  constexpr int kPagesMax = 200'000;
  for (; listing.pages < kPagesMax;) {
    const Answer answer = EXPECT_OK(mount.readdir(directory, cookie, with_nodes, limit));
    ++listing.pages;
    const schema::ReadDirReply& page = answer.reply.readdir();
    EXPECT_TRUE(page.has_directory());
    for (const schema::DirEntry& entry : page.entries()) {
      listing.names.insert(entry.name());
      cookie = entry.cookie();
    }
    if (page.end() || page.entries().empty()) return listing;
  }
  ADD_FAILURE() << "an endless directory";
  return listing;
}

std::multiset<std::string> numbered(int count) {
  std::multiset<std::string> names;
  for (int i = 0; i < count; ++i) names.insert("entry-" + std::to_string(i));
  return names;
}

TEST(ReadDir, ShowsEachEntryOnceWithoutDots) {
  TempDir dir;
  std::filesystem::create_directory(dir / "d");
  write_file(dir / "f", "12345");
  std::filesystem::create_symlink("f", dir / "l");
  Server server(dir.path());
  Mount mount(server);
  const Answer answer = EXPECT_OK(mount.readdir(mount.root(), 0, true));
  EXPECT_TRUE(answer.reply.readdir().end());
  std::map<std::string, schema::DirEntry> entries;
  for (const auto& entry : answer.reply.readdir().entries()) entries[entry.name()] = entry;
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries["d"].type(), DT_DIR);
  EXPECT_EQ(entries["f"].type(), DT_REG);
  EXPECT_EQ(entries["l"].type(), DT_LNK);
  EXPECT_EQ(entries["f"].node().attr().size(), 5u);
  EXPECT_EQ(entries["f"].ino(), entries["f"].node().attr().ino());
  EXPECT_EQ(entries["f"].node().handle(), mount.handle("f"));
}

TEST(ReadDir, OfNothingEndsAtOnce) {
  TempDir dir;
  Server server(dir.path());
  Mount mount(server);
  const Answer answer = EXPECT_OK(mount.readdir(mount.root()));
  EXPECT_TRUE(answer.reply.readdir().end());
  EXPECT_TRUE(answer.reply.readdir().entries().empty());
}

TEST(ReadDir, GoesOnWhereAPageEnded) {
  TempDir dir;
  for (const auto& name : numbered(300)) write_file(dir / name, "");
  Server server(dir.path());
  Mount mount(server);
  // 1 byte: every page holds one entry, and still goes forward.
  for (const std::uint32_t limit : {1u, 100u, 1000u, 10'000u}) {
    const Listing listing = list(mount, mount.root(), false, limit);
    EXPECT_EQ(listing.names, numbered(300)) << limit;
    EXPECT_GT(listing.pages, 1);
    EXPECT_EQ(list(mount, mount.root(), true, limit).names, numbered(300)) << limit;
  }
}

TEST(ReadDir, GoesOnInAnotherServer) {
  TempDir dir;
  for (const auto& name : numbered(300)) write_file(dir / name, "");
  std::multiset<std::string> names;
  std::uint64_t cookie = 0;
  bool end = false;
  while (!end) {
    Server server(dir.path());
    Mount mount(server);
    const auto page = EXPECT_OK(mount.readdir(mount.root(), cookie, false, 2000)).reply.readdir();
    ASSERT_TRUE(page.end() || !page.entries().empty());
    for (const auto& entry : page.entries()) names.insert(entry.name()), cookie = entry.cookie();
    end = page.end();
  }
  EXPECT_EQ(names, numbered(300));
}

TEST(ReadDir, SkipsWhatVanishesMeanwhile) {
  TempDir dir;
  for (const auto& name : numbered(2000)) write_file(dir / name, "");
  Server server(dir.path());
  Mount mount(server);
  const auto first = EXPECT_OK(mount.readdir(mount.root(), 0, true, 10'000)).reply.readdir();
  std::set<std::string> seen;
  for (const auto& entry : first.entries()) seen.insert(entry.name());
  for (const auto& name : numbered(2000)) std::filesystem::remove(dir / name);
  std::uint64_t cookie = first.entries().rbegin()->cookie();
  for (int page = 0; page < 100; ++page) {
    const auto next = EXPECT_OK(mount.readdir(mount.root(), cookie, true)).reply.readdir();
    for (const auto& entry : next.entries()) EXPECT_FALSE(seen.contains(entry.name()));
    if (next.end()) return;
    if (!next.entries().empty()) cookie = next.entries().rbegin()->cookie();
  }
  ADD_FAILURE() << "an endless directory";
}

TEST(ReadDir, Lists100000Entries) {
  TempDir dir;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const std::string name = dir / ("entry-" + std::to_string(i));
    const Fd made(::open(name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    ASSERT_TRUE(made.valid());
  }
  Server server(dir.path());
  Mount mount(server);
  const Listing names = list(mount, mount.root(), false, 1 << 20);
  EXPECT_EQ(names.names, numbered(kCount));
  const Listing nodes = list(mount, mount.root(), true, 1 << 20);
  EXPECT_EQ(nodes.names, numbered(kCount));
  // A page has a bounded number of entries, however large it may be.
  EXPECT_GE(nodes.pages, kCount / 4096);
  EXPECT_LT(server.exported().nodes().descriptors(), 100u);
}

TEST(ReadDir, RefusesFilesAndStaleDirectories) {
  TempDir dir;
  write_file(dir / "f", "");
  std::filesystem::create_directory(dir / "d");
  Server server(dir.path());
  Mount mount(server);
  EXPECT_ERROR(mount.readdir(mount.handle("f")), err(ENOTDIR));
  const std::string gone = mount.handle("d");
  EXPECT_OK(mount.remove(mount.root(), "d", true));
  EXPECT_ERROR(mount.readdir(gone), err(ESTALE));
}

// The server holds its root, which nobody can see to be gone by a name that leads nowhere.
TEST(ReadDir, AnExportThatWasRemovedIsNoEmptyDirectory) {
  TempDir dir;
  std::filesystem::create_directory(dir / "export");
  Server server(dir / "export");
  Mount mount(server);
  EXPECT_OK(mount.readdir(mount.root()));
  std::filesystem::remove(dir / "export");
  EXPECT_ERROR(mount.readdir(mount.root()), err(ESTALE));
}

}  // namespace
}  // namespace tusk::server
