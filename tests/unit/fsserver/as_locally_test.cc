// Operations do what the kernel does for a program of its own, also where a client's kernel leaves that to
// the server.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <chrono>
#include <thread>

#include "mount.h"

namespace tusk::server {
namespace {

class AsLocally : public testing::Test {
 protected:
  AsLocally() : server_(dir_.path(), {.setuid = true}), mount_(server_) {}

  const std::string& root() const { return mount_.root(); }

  TempDir dir_;
  Server server_;
  Mount mount_;
};

TEST_F(AsLocally, RenameLeavesAWhiteout) {
  write_file(dir_ / "a", "a");
  EXPECT_OK(mount_.rename(root(), "a", root(), "b", 4));
  struct stat left {};
  ASSERT_EQ(::lstat((dir_ / "a").c_str(), &left), 0);
  EXPECT_TRUE(S_ISCHR(left.st_mode));
  EXPECT_EQ(left.st_rdev, 0u);
  EXPECT_EQ(read_file(dir_ / "b"), "a");
}

// Programs may have it open, or have it by another name.
TEST_F(AsLocally, RenameTellsWhatIsLeftOfTheFileThatItReplaces) {
  write_file(dir_ / "a", "");
  write_file(dir_ / "b", "");
  EXPECT_OK(mount_.link(mount_.handle("b"), root(), "c"));
  EXPECT_EQ(EXPECT_OK(mount_.rename(root(), "a", root(), "b")).reply.rename().replaced().nlink(), 1u);
  EXPECT_FALSE(EXPECT_OK(mount_.rename(root(), "b", root(), "free")).reply.rename().has_replaced());
  EXPECT_FALSE(EXPECT_OK(mount_.rename(root(), "c", root(), "free", 2)).reply.rename().has_replaced());
  std::filesystem::create_directory(dir_ / "d");
  std::filesystem::create_directory(dir_ / "e");
  EXPECT_EQ(EXPECT_OK(mount_.rename(root(), "d", root(), "e")).reply.rename().replaced().nlink(), 0u);
}

TEST_F(AsLocally, TheUmaskCountsWhereThereIsNoDefaultAcl) {
  // A version; user::rwx, group::rwx, other::r-x.
  const std::string acl("\2\0\0\0\1\0\7\0\xff\xff\xff\xff\4\0\7\0\xff\xff\xff\xff\x20\0\5\0\xff\xff\xff\xff",
                        28);
  std::filesystem::create_directory(dir_ / "plain");
  std::filesystem::create_directory(dir_ / "acl");
  if (::setxattr((dir_ / "acl").c_str(), "system.posix_acl_default", acl.data(), acl.size(), 0) != 0)
    GTEST_SKIP() << "no ACLs here";
  for (const auto& [where, mode] : {std::pair("plain", 0600u), std::pair("acl", 0664u)}) {
    schema::Request create;
    create.mutable_create()->set_parent(mount_.handle(where));
    create.mutable_create()->set_name("a");
    create.mutable_create()->set_flags(O_RDWR);
    create.mutable_create()->set_mode(0600);
    create.mutable_create()->set_umask(066);
    const Answer created = EXPECT_OK(mount_.call(create));
    EXPECT_EQ(created.reply.open().node().attr().mode() & 0777, mode) << where;
    schema::Request make;
    make.mutable_make_node()->set_parent(mount_.handle(where));
    make.mutable_make_node()->set_name("p");
    make.mutable_make_node()->set_mode(S_IFIFO | 0600);
    make.mutable_make_node()->set_umask(066);
    EXPECT_EQ(EXPECT_OK(mount_.call(make)).reply.node().node().attr().mode() & 0777, mode) << where;
  }
}

TEST_F(AsLocally, ASetAttrThatNamesNothingMovesTheCtime) {
  write_file(dir_ / "a", "");
  const std::string handle = mount_.handle("a");
  schema::Request look;
  look.mutable_getattr()->set_handle(handle);
  const schema::Attr before = EXPECT_OK(mount_.call(look)).reply.attr().attr();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of an older kernel
  schema::Request set;
  set.mutable_setattr()->set_handle(handle);
  const schema::Attr after = EXPECT_OK(mount_.call(set)).reply.attr().attr();
  EXPECT_NE(std::pair(before.ctime_s(), before.ctime_ns()), std::pair(after.ctime_s(), after.ctime_ns()));
  EXPECT_EQ(before.mtime_ns(), after.mtime_ns());
}

}  // namespace
}  // namespace tusk::server
