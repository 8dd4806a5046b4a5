// What gives privileges on the server's machine: only exports that say so let clients make it.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mount.h"

namespace tusk::server {
namespace {

// A capability set of revision 2: cap_net_raw+ep.
constexpr std::string_view kCapability("\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);

struct Case {
  bool setuid = false;
  bool identity_real = false;
};

class SpecialBits : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] mode_t mode_of(const char* name) const {
    struct stat st {};
    EXPECT_EQ(::lstat((dir_ / name).c_str(), &st), 0) << name;
    return st.st_mode & 07777;
  }
  // As root where owners are real.
  [[nodiscard]] static schema::Request by_root(schema::Request request) {
    if (GetParam().identity_real) request.mutable_caller()->set_uid(0);
    return request;
  }
  Answer chmod(const std::string& handle, mode_t mode) {
    schema::Request request;
    request.mutable_setattr()->set_handle(handle);
    request.mutable_setattr()->set_mode(mode);
    return mount_.call(by_root(request));
  }
  // With these bits, on the mount and on the server.
  void expect(const Answer& answer, const schema::Attr& attr, const char* name, mode_t mode) {
    EXPECT_OK(answer);
    EXPECT_EQ(attr.mode() & 07777, mode) << name;
    EXPECT_EQ(mode_of(name), mode) << name;
  }
  [[nodiscard]] static mode_t kept(mode_t bits) { return GetParam().setuid ? bits : bits & ~06000u; }

  TempDir dir_;
  Server server_{dir_.path(), {.setuid = GetParam().setuid}};
  Mount mount_{server_, {.identity_real = GetParam().identity_real}};
};

TEST_P(SpecialBits, AreToldWithTheAttach) {
  EXPECT_EQ(mount_.attached().special_bits_stripped(), !GetParam().setuid);
}

TEST_P(SpecialBits, OfWhatIsMade) {
  schema::Request create;
  create.mutable_create()->set_parent(mount_.root());
  create.mutable_create()->set_name("created");
  create.mutable_create()->set_flags(O_RDWR | O_EXCL);
  create.mutable_create()->set_mode(07755);
  const Answer created = mount_.call(by_root(create));
  expect(created, created.reply.open().node().attr(), "created", kept(07755));
  for (const auto& [name, type] : {std::pair("made", S_IFREG), {"fifo", S_IFIFO}, {"socket", S_IFSOCK}}) {
    schema::Request make;
    make.mutable_make_node()->set_parent(mount_.root());
    make.mutable_make_node()->set_name(name);
    make.mutable_make_node()->set_mode(type | 06711);
    const Answer made = mount_.call(by_root(make));
    expect(made, made.reply.node().node().attr(), name, kept(06711));
  }
  schema::Request make;
  make.mutable_make_node()->set_parent(mount_.root());
  make.mutable_make_node()->set_name("directory");
  make.mutable_make_node()->set_mode(S_IFDIR | 03775);
  const Answer made = mount_.call(by_root(make));
  expect(made, made.reply.node().node().attr(), "directory", 03775);
}

TEST_P(SpecialBits, OfWhatIsChmodded) {
  write_file(dir_ / "file", "program");
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 04755), 0);  // by the server's administrator
  const std::string file = mount_.handle("file");
  for (const mode_t mode : {04711, 02755, 02644, 06755, 01755, 07777}) {
    const Answer done = chmod(file, mode);
    expect(done, done.reply.attr().attr(), "file", kept(mode));
  }
  ASSERT_EQ(::mkdir((dir_ / "directory").c_str(), 0755), 0);
  const Answer done = chmod(mount_.handle("directory"), 02775);
  expect(done, done.reply.attr().attr(), "directory", 02775);
}

// Else a client could put a program of its own into one of the administrator's.
TEST_P(SpecialBits, EndWithAWrite) {
  write_file(dir_ / "file", "program");
  const std::string file = mount_.handle("file");
  const auto write = [&] {
    schema::Request request;
    request.mutable_write()->set_handle(file);
    request.mutable_write()->set_length(1);
    EXPECT_OK(mount_.call(by_root(request), "x"));
  };
  const auto truncate = [&] {
    schema::Request request;
    request.mutable_setattr()->set_handle(file);
    request.mutable_setattr()->set_size(3);
    EXPECT_OK(mount_.call(by_root(request)));
  };
  for (const std::function<void()>& change :
       {std::function<void()>(write), std::function<void()>(truncate)}) {
    ASSERT_EQ(::chmod((dir_ / "file").c_str(), 06755), 0);
    change();
    const bool root_may = GetParam().setuid && GetParam().identity_real && ::geteuid() == 0;
    EXPECT_EQ(mode_of("file"), root_may ? 06755u : 0755u);
  }
}

// Of a write that fails half-way, too: its first bytes are there.
TEST_P(SpecialBits, EndBeforeTheFirstByteIsWritten) {
  constexpr rlim_t kLimit = 1 << 20;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  write_file(dir_ / "file", "program");
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 06755), 0);
  const rlimit small{.rlim_cur = kLimit, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  schema::Request request;
  request.mutable_write()->set_handle(mount_.handle("file"));
  request.mutable_write()->set_offset(kLimit - 1);
  request.mutable_write()->set_length(2);
  EXPECT_ERROR(mount_.call(by_root(request), "xy"), err(EFBIG));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(dir_ / "file"), kLimit);
  const bool root_may = GetParam().setuid && GetParam().identity_real && ::geteuid() == 0;
  EXPECT_EQ(mode_of("file"), root_may ? 06755u : 0755u);
}

TEST_P(SpecialBits, AndCapabilities) {
  if (!GetParam().identity_real) return;  // others see no such attributes at all
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs root";
  write_file(dir_ / "file", "program");
  schema::Request set;
  set.mutable_setxattr()->set_handle(mount_.handle("file"));
  set.mutable_setxattr()->set_name("security.capability");
  set.mutable_setxattr()->set_value(std::string(kCapability));
  if (GetParam().setuid)
    EXPECT_OK(mount_.call(by_root(set)));
  else
    EXPECT_ERROR(mount_.call(by_root(set)), err(EPERM));
  char value[64];
  EXPECT_EQ(::getxattr((dir_ / "file").c_str(), "security.capability", value, sizeof value) > 0,
            GetParam().setuid);
}

TEST_P(SpecialBits, AndDevices) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs root";
  const auto make = [&](const char* name, mode_t type, dev_t device) {
    schema::Request request;
    request.mutable_make_node()->set_parent(mount_.root());
    request.mutable_make_node()->set_name(name);
    request.mutable_make_node()->set_mode(type | 0666);
    request.mutable_make_node()->set_rdev(device);
    return mount_.call(by_root(request));
  };
  for (const mode_t type : {S_IFCHR, S_IFBLK}) {
    const std::string name = std::to_string(type);
    if (GetParam().setuid && GetParam().identity_real)
      EXPECT_OK(make(name.c_str(), type, makedev(1, 3)));
    else
      EXPECT_ERROR(make(name.c_str(), type, makedev(1, 3)), err(EPERM));
  }
  // What overlayfs puts in the place of a removed file opens nothing.
  if (GetParam().identity_real) EXPECT_OK(make("whiteout", S_IFCHR, 0));
}

INSTANTIATE_TEST_SUITE_P(OfExports, SpecialBits,
                         testing::Values(Case{false, false}, Case{false, true}, Case{true, false},
                                         Case{true, true}),
                         [](const auto& each) {
                           return std::string(each.param.setuid ? "WithSetuid" : "ByDefault") +
                                  (each.param.identity_real ? "IdentityReal" : "IdentityUser");
                         });

}  // namespace
}  // namespace tusk::server
