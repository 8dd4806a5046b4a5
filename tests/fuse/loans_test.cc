// What the kernel is lent under leases: it does not ask for it again, and never shows what was taken back.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <thread>

#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

// What no lease covers is asked for each time.
ExportSetup leases_only() { return {.lifetime = Duration::zero(), .leases = true}; }

class MountedLoans : public MountedTest {
 protected:
  ExportSetup setup() override { return leases_only(); }
  [[nodiscard]] std::uint64_t operations() { return mounted_->filesystem().counters().operations; }
  // Of what is used again and again, nothing is asked for from some time on.
  template <class Use>
  [[nodiscard]] bool costs_nothing(Use use) {
    return eventually([&] {
      const std::uint64_t before = operations();
      for (int i = 0; i < 10; ++i) use();
      return operations() == before;
    });
  }
};

TEST_F(MountedLoans, NamesAttributesAndAbsences) {
  std::filesystem::create_directory(on_server("d"));
  write_file(on_server("d/a"), "x");
  EXPECT_TRUE(costs_nothing([&] { (void)status(in_mount("d/a")); }));
  EXPECT_TRUE(costs_nothing([&] { EXPECT_NE(::access(in_mount("d/none").c_str(), F_OK), 0); }));
}

TEST_F(MountedLoans, WhoHasNoAcl) {
  write_file(on_server("a"), "x");
  const std::string file = in_mount("a");
  EXPECT_TRUE(costs_nothing([&] {
    (void)status(file);
    EXPECT_LT(::lgetxattr(file.c_str(), "system.posix_acl_access", nullptr, 0), 0);
  }));
}

TEST_F(MountedLoans, AnAclThatComesIsSeen) {
  write_file(on_server("a"), "x");
  const std::string file = in_mount("a");
  constexpr const char* kAcl = "system.posix_acl_access";
  const auto length = [&] {
    (void)status(file);
    return ::lgetxattr(file.c_str(), kAcl, nullptr, 0);
  };
  EXPECT_LT(length(), 0);
  // Version 2: user::rw-, user:12345:rw-, group::r--, mask::rw-, other::r--.
  constexpr std::uint32_t kNobody = ~0u;
  struct Entry {
    std::uint16_t tag, rights;
    std::uint32_t id;
  };
  struct {
    std::uint32_t version = 2;
    Entry entries[5] = {{1, 6, kNobody}, {2, 6, 12345}, {4, 4, kNobody}, {16, 6, kNobody}, {32, 4, kNobody}};
  } const acl;
  if (::setxattr(on_server("a").c_str(), kAcl, &acl, sizeof acl, 0) != 0)
    GTEST_SKIP() << "skipped, because there are no ACLs here";
  EXPECT_TRUE(eventually([&] { return length() == sizeof acl; }));
  EXPECT_TRUE(eventually([&] { return (status(file).st_mode & 0777) == 0664; }));
}

TEST_F(MountedLoans, LabelsStayOnTheServer) {
  write_file(on_server("a"), "x");
  EXPECT_LT(::lgetxattr(in_mount("a").c_str(), "security.selinux", nullptr, 0), 0);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// What only this mount did to the file (an attribute of a program's) does not touch its bytes; a later change
// of its own is not to be taken for that, when somebody else has written in between.
TEST_F(MountedLoans, OurChmodDoesNotMakeOldBytesNew) {
  ExportSetup every = leases_only();
  every.lease_all = true;
  mounted_.reset();
  mounted_.emplace(every);
  MountedExport other(*mounted_, every);
  const std::string file = in_mount("a");
  write_file(on_server("a"), "x");
  if (::setxattr(file.c_str(), "user.a", "b", 1, 0) != 0)
    GTEST_SKIP() << "skipped, because there are no extended attributes here";
  write_file(file, noise(3996, 1));
  EXPECT_TRUE(costs_nothing([&] { (void)status(file); }));
  ASSERT_EQ(::chmod((other / "a").c_str(), 0640), 0);
  write_file(other / "a", noise(3841, 2));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_TRUE(read_file(file) == noise(3841, 2));
}

// A look at a file that is new to the kernel, while another client changes it: its answer may be older than
// the call-back.
TEST_F(MountedLoans, AFirstLookThatMeetsAChangeIsCorrected) {
  constexpr int kFiles = 300;
  ExportSetup every = leases_only();
  every.lease_all = true;
  mounted_.reset();
  mounted_.emplace(every);
  MountedExport other(*mounted_, every);
  for (int i = 0; i < kFiles; ++i) write_file(on_server(std::to_string(i)), "x");
  std::atomic<int> step{0};
  const auto meet = [&step](int at) {
    ++step;
    while (step < 2 * at + 2) std::this_thread::yield();
  };
  std::thread looking([&] {
    for (int i = 0; i < kFiles; ++i) {
      meet(i);
      struct stat seen {};
      (void)::stat(in_mount(std::to_string(i)).c_str(), &seen);
    }
  });
  for (int i = 0; i < kFiles; ++i) {
    meet(i);
    EXPECT_EQ(::chmod((other / std::to_string(i)).c_str(), 0604), 0);
  }
  looking.join();
  for (int i = 0; i < kFiles; ++i) EXPECT_EQ(status(in_mount(std::to_string(i))).st_mode & 0777, 0604u) << i;
}

}  // namespace
}  // namespace tusk::test
