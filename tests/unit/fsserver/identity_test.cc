// As whom the server acts: itself, another user, or whoever asks. Needs root; skipped otherwise.
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "mount.h"

namespace tusk::server {
namespace {

constexpr uid_t kNobody = 65534;

class Identity : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_act_as_others()) GTEST_SKIP() << "needs root";
    if (!Credentials::of_user("nobody")) GTEST_SKIP() << "needs the user nobody";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  }
  struct stat stat_of(std::string_view name) {
    struct stat status {};
    EXPECT_EQ(::lstat((dir_ / name).c_str(), &status), 0) << name;
    return status;
  }
  static schema::Request as(schema::Request request, uid_t uid, gid_t gid) {
    request.mutable_caller()->set_uid(uid);
    request.mutable_caller()->set_gid(gid);
    return request;
  }
  static schema::Request create_request(const Mount& mount, std::string name, unsigned mode = 0644) {
    schema::Request request;
    request.mutable_create()->set_parent(mount.root());
    request.mutable_create()->set_name(std::move(name));
    request.mutable_create()->set_flags(O_RDWR | O_EXCL);
    request.mutable_create()->set_mode(mode);
    return request;
  }
  static schema::Request make_request(const Mount& mount, std::string name, unsigned mode) {
    schema::Request request;
    request.mutable_make_node()->set_parent(mount.root());
    request.mutable_make_node()->set_name(std::move(name));
    request.mutable_make_node()->set_mode(mode);
    request.mutable_make_node()->set_target("target");
    return request;
  }

  TempDir dir_;
};

TEST_F(Identity, ActingAsAnotherUserIsTheKernelsJudgement) {
  write_file(dir_ / "roots", "secret");
  ASSERT_EQ(::chmod((dir_ / "roots").c_str(), 0600), 0);
  std::filesystem::create_directory(dir_ / "closed");
  ASSERT_EQ(::chmod((dir_ / "closed").c_str(), 0700), 0);
  Server server(dir_.path(), {.act_as = "nobody"});
  Mount mount(server, {.identity_real = true});
  EXPECT_FALSE(mount.attached().identity_real());
  EXPECT_EQ(mount.attached().owner_uid(), kNobody);

  const std::string roots = mount.handle("roots");
  EXPECT_ERROR(mount.open(roots), err(EACCES));
  EXPECT_ERROR(mount.read(roots, 0, 0, 10), err(EACCES));
  EXPECT_ERROR(mount.write(roots, 0, 0, "x"), err(EACCES));
  EXPECT_ERROR(mount.readdir(mount.handle("closed")), err(EACCES));
  EXPECT_ERROR(mount.lookup(mount.handle("closed"), "x"), err(EACCES));
  EXPECT_ERROR(mount.create(mount.handle("closed"), "x"), err(EACCES));
  schema::Request chmod;
  chmod.mutable_setattr()->set_handle(roots);
  chmod.mutable_setattr()->set_mode(0666);
  EXPECT_ERROR(mount.call(chmod), err(EPERM));
  EXPECT_ERROR(mount.call(make_request(mount, "dev", S_IFCHR | 0600)), err(EPERM));

  EXPECT_OK(mount.create(mount.root(), "mine"));
  EXPECT_OK(mount.make_directory(mount.root(), "dir"));
  EXPECT_EQ(stat_of("mine").st_uid, kNobody);
  EXPECT_EQ(stat_of("dir").st_uid, kNobody);
  EXPECT_OK(mount.remove(mount.root(), "mine"));
}

TEST_F(Identity, ActingAsAnotherUserFindsHandlesAgainAllTheSame) {
  std::filesystem::create_directories(dir_ / "d");
  ASSERT_EQ(::chmod((dir_ / "d").c_str(), 0755), 0);
  write_file(dir_ / "d/file", "x");
  ASSERT_EQ(::chmod((dir_ / "d/file").c_str(), 0644), 0);
  std::string file;
  {
    Server server(dir_.path(), {.act_as = "nobody"});
    Mount mount(server);
    file = mount.handle("d/file");
  }
  Server server(dir_.path(), {.act_as = "nobody"});
  Mount mount(server);
  EXPECT_EQ(mount.read(file, 0, 0, 9).text(), "x");
}

// As knfsd has it of a file's owner.
TEST_F(Identity, AnOpenFileOutlivesARestartWhateverItsModeSays) {
  constexpr std::uint64_t kOfBefore = 12345;  // an open id of the process that is gone
  for (const mode_t mode : {0444, 0200, 0}) {
    const auto path = dir_ / std::to_string(mode);
    write_file(path, "before");
    ASSERT_EQ(::chown(path.c_str(), kNobody, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  write_file(dir_ / "roots", "before");
  ASSERT_EQ(::chmod((dir_ / "roots").c_str(), 0), 0);
  Server server(dir_.path(), {.act_as = "nobody"});
  Mount mount(server);
  Mount reader(server, {.session = std::string(kSessionIdBytes, 'r'), .read_only = true});
  for (const mode_t mode : {0444, 0200, 0}) {
    const std::string file = mount.handle(std::to_string(mode));
    EXPECT_OK(mount.write(file, kOfBefore, 0, "after."));
    EXPECT_EQ(mount.read(file, kOfBefore, 0, 9).text(), "after.") << mode;
    EXPECT_OK(mount.commit(file, kOfBefore));
    schema::Request cut;
    cut.mutable_setattr()->set_handle(file);
    cut.mutable_setattr()->set_open_id(kOfBefore);
    cut.mutable_setattr()->set_size(3);
    EXPECT_OK(mount.call(cut));
  }
  const std::string closed = mount.handle("0");
  EXPECT_ERROR(mount.write(closed, 0, 0, "x"), err(EACCES));
  EXPECT_ERROR(mount.open(closed, O_RDWR), err(EACCES));
  EXPECT_ERROR(reader.read(closed, kOfBefore, 0, 9), err(EACCES));
  EXPECT_ERROR(mount.write(mount.handle("roots"), kOfBefore, 0, "x"), err(EACCES));
}

TEST_F(Identity, TheThreadIsRootAgainAfterwards) {
  const Credentials nobody = Credentials::of_user("nobody").value();
  {
    const ActingAs acting(&nobody);
    EXPECT_EQ(static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))), kNobody);
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct words[2] = {};
    ASSERT_EQ(::syscall(SYS_capget, &header, words), 0);
    for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_CHOWN, CAP_FOWNER, CAP_FSETID,
                                 CAP_MKNOD, CAP_SYS_RESOURCE, CAP_SYS_ADMIN})
      EXPECT_EQ(words[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability), 0u) << capability;
    {
      const ActingAsServer privileged;
      EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 0);
      EXPECT_TRUE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
    }
    EXPECT_FALSE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
  }
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 0);
  EXPECT_TRUE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
}

TEST_F(Identity, RealMeansThatNewFilesBelongToWhoAsked) {
  Server server(dir_.path(), {.setuid = true});
  Mount mount(server, {.identity_real = true});
  ASSERT_TRUE(mount.attached().identity_real());
  EXPECT_OK(mount.call(as(create_request(mount, "file", 04755), 1234, 5678)));
  EXPECT_OK(mount.call(as(make_request(mount, "dir", S_IFDIR | 0700), 1234, 5678)));
  EXPECT_OK(mount.call(as(make_request(mount, "fifo", S_IFIFO | 0600), 1234, 5678)));
  EXPECT_OK(mount.call(as(make_request(mount, "link", S_IFLNK | 0777), 1234, 5678)));
  EXPECT_OK(mount.call(as(make_request(mount, "device", S_IFCHR | 0600), 0, 0)));
  for (const char* name : {"file", "dir", "fifo", "link"}) {
    EXPECT_EQ(stat_of(name).st_uid, 1234u) << name;
    EXPECT_EQ(stat_of(name).st_gid, 5678u) << name;
  }
  EXPECT_EQ(stat_of("file").st_mode & 07777, 04755u);
  EXPECT_TRUE(S_ISCHR(stat_of("device").st_mode));
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 0);
}

TEST_F(Identity, RealRefusesOwnersThatAreNone) {
  Server server(dir_.path());
  Mount mount(server, {.identity_real = true});
  constexpr auto kNone = static_cast<uid_t>(-1);
  const std::pair<uid_t, gid_t> owners[] = {{kNone, 1}, {1, kNone}, {kNone, 0}, {0, kNone}, {kNone, kNone}};
  for (const auto& [uid, gid] : owners) {
    EXPECT_ERROR(mount.call(as(create_request(mount, "file"), uid, gid)), err(EINVAL));
    EXPECT_ERROR(mount.call(as(make_request(mount, "dir", S_IFDIR | 0700), uid, gid)), err(EINVAL));
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  }
  // And whoever works next on that thread is the server again.
  const Result<CreatingFor> refused = CreatingFor::begin(CreatingFor::Owner{.uid = 1234, .gid = kNone});
  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(::setfsuid(kNone), 0);
  EXPECT_EQ(::setfsgid(kNone), 0);
  EXPECT_TRUE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
  EXPECT_OK(mount.call(as(create_request(mount, "file"), 1234, 5678)));
  EXPECT_EQ(stat_of("file").st_uid, 1234u);
}

bool may_exceed_limits() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct words[2] = {};
  EXPECT_EQ(::syscall(SYS_capget, &header, words), 0);
  return (words[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE)) != 0;
}

TEST_F(Identity, WhoSparesTheReserveIsNotRootToTheFileSystemAndMayDoAllTheSame) {
  constexpr auto kAsk = static_cast<uid_t>(-1);
  {
    const SparingReserve sparing(true);
    EXPECT_EQ(static_cast<uid_t>(::setfsuid(kAsk)), kNobody);
    EXPECT_TRUE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
  }
  EXPECT_EQ(::setfsuid(kAsk), 0);
  const SparingReserve unwanted(false);
  EXPECT_EQ(::setfsuid(kAsk), 0);
}

TEST_F(Identity, LimitsAreObeyedForAsLongAsWanted) {
  const bool at_first = may_exceed_limits();  // not every root may
  const Credentials nobody{.uid = kNobody, .gid = kNobody, .groups = {}};
  {
    const ObeyingLimits limits(true);
    EXPECT_FALSE(may_exceed_limits());
    const ObeyingLimits again(true);
    {
      const auto owner = CreatingFor::begin(CreatingFor::Owner{.uid = 1234, .gid = 5678});
      EXPECT_FALSE(may_exceed_limits());
    }
    EXPECT_FALSE(may_exceed_limits());
    {
      const ActingAs acting(&nobody);
      const ActingAsServer privileged;
      EXPECT_FALSE(may_exceed_limits());
    }
    EXPECT_FALSE(may_exceed_limits());
    EXPECT_TRUE(Fd(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)).valid());
  }
  EXPECT_EQ(may_exceed_limits(), at_first);
  const ObeyingLimits unwanted(false);
  EXPECT_EQ(may_exceed_limits(), at_first);
}

TEST_F(Identity, RealKeepsTheGroupOfSetGroupIdDirectories) {
  std::filesystem::create_directory(dir_ / "shared");
  ASSERT_EQ(::chown((dir_ / "shared").c_str(), 0, 4242), 0);
  ASSERT_EQ(::chmod((dir_ / "shared").c_str(), 02777), 0);
  Server server(dir_.path());
  Mount mount(server, {.identity_real = true});
  schema::Request request = as(create_request(mount, "file"), 1234, 5678);
  request.mutable_create()->set_parent(mount.handle("shared"));
  EXPECT_OK(mount.call(request));
  EXPECT_EQ(stat_of("shared/file").st_gid, 4242u);
  request = as(make_request(mount, "dir", S_IFDIR | 0755), 1234, 5678);
  request.mutable_make_node()->set_parent(mount.handle("shared"));
  EXPECT_OK(mount.call(request));
  EXPECT_EQ(stat_of("shared/dir").st_gid, 4242u);
  EXPECT_EQ(stat_of("shared/dir").st_mode & 07777, 02755u);
}

TEST_F(Identity, RealChangesOwners) {
  write_file(dir_ / "file", "");
  Server server(dir_.path());
  Mount mount(server, {.identity_real = true});
  schema::Request request;
  request.mutable_setattr()->set_handle(mount.handle("file"));
  request.mutable_setattr()->set_uid(77);
  request.mutable_setattr()->set_gid(78);
  EXPECT_OK(mount.call(request));
  EXPECT_EQ(stat_of("file").st_uid, 77u);
  EXPECT_EQ(stat_of("file").st_gid, 78u);
}

TEST_F(Identity, AWriteByOthersThanRootTakesTheSetUserIdBitAway) {
  Server server(dir_.path(), {.setuid = true});
  Mount mount(server, {.identity_real = true});
  for (const uid_t uid : {uid_t{0}, uid_t{1234}}) {
    const std::string name = "file" + std::to_string(uid);
    const auto made = EXPECT_OK(mount.call(as(create_request(mount, name, 06755), uid, uid))).reply.open();
    schema::Request write;
    write.mutable_write()->set_handle(made.node().handle());
    write.mutable_write()->set_open_id(made.open_id());
    write.mutable_write()->set_length(1);
    const auto written = EXPECT_OK(mount.call(as(write, uid, uid), "x")).reply.write();
    EXPECT_EQ(written.attr().mode() & 07777, uid == 0 ? 06755u : 0755u);
    EXPECT_EQ(stat_of(name).st_mode & 07777, uid == 0 ? 06755u : 0755u);
  }
}

// chattr +a, as long as it lives.
class AppendOnly {
 public:
  explicit AppendOnly(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    set_ = change([](int& flags) { flags |= FS_APPEND_FL; });
  }
  ~AppendOnly() {
    if (set_) (void)change([](int& flags) { flags &= ~FS_APPEND_FL; });
  }
  AppendOnly(const AppendOnly&) = delete;
  AppendOnly& operator=(const AppendOnly&) = delete;
  [[nodiscard]] bool set() const { return set_; }

 private:
  bool change(const std::function<void(int&)>& how) const {
    int flags = 0;
    if (::ioctl(fd_.number(), FS_IOC_GETFLAGS, &flags) != 0) return false;
    how(flags);
    return ::ioctl(fd_.number(), FS_IOC_SETFLAGS, &flags) == 0;
  }

  Fd fd_;
  bool set_ = false;
};

TEST_F(Identity, WhatIsChangedIsSaidToBeAlsoIfTheSetUserIdBitCannotBeTakenAway) {
  write_file(dir_ / "file", "one");
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 04755), 0);
  const AppendOnly append_only(dir_ / "file");
  if (!append_only.set()) GTEST_SKIP() << "no chattr +a here";
  std::vector<std::string> mutated;
  Server server(dir_.path(), {.mutated = [&](Export&, const std::vector<std::string>& nodes) {
                  mutated.insert(mutated.end(), nodes.begin(), nodes.end());
                }});
  Mount mount(server);
  const std::string file = mount.handle("file");
  const std::uint64_t open_id = EXPECT_OK(mount.open(file, O_WRONLY)).reply.open().open_id();
  EXPECT_ERROR(mount.append(file, open_id, "two"), err(EPERM));
  EXPECT_EQ(read_file(dir_ / "file"), "one");  // the bits go first, as with a local file system
  EXPECT_EQ(mutated, (std::vector{file}));
  schema::Request allocate;
  allocate.mutable_allocate()->set_handle(file);
  allocate.mutable_allocate()->set_open_id(open_id);
  allocate.mutable_allocate()->set_length(100);
  EXPECT_ERROR(mount.call(allocate), err(EPERM));
  EXPECT_EQ(stat_of("file").st_size, 3);
  EXPECT_EQ(mutated, (std::vector{file, file}));
}

TEST_F(Identity, RealShowsSecurityAttributes) {
  write_file(dir_ / "file", "");
  if (::setxattr((dir_ / "file").c_str(), "trusted.tusk", "x", 1, 0) != 0)
    GTEST_SKIP() << "no trusted xattrs here";
  Server server(dir_.path());
  schema::Request get;
  get.mutable_getxattr()->set_name("trusted.tusk");
  Mount real(server, {.identity_real = true});
  get.mutable_getxattr()->set_handle(real.handle("file"));
  EXPECT_EQ(EXPECT_OK(real.call(get)).reply.xattr().value(), "x");
  Mount user(server, {.session = std::string(kSessionIdBytes, 'u')});
  EXPECT_ERROR(user.call(get), err(EOPNOTSUPP));
  schema::Request list;
  list.mutable_listxattr()->set_handle(user.handle("file"));
  EXPECT_EQ(EXPECT_OK(user.call(list)).reply.xattr().value(), "");
}

TEST_F(Identity, UsersThatAreNotThereAreNamed) {
  ExportSettings settings{.name = "x", .path = dir_.path(), .act_as = "no-such-user"};
  const auto opened = Export::open(settings, test_secret());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kBadConfig);
  EXPECT_THAT(opened.error().context, testing::HasSubstr("no-such-user"));
}

}  // namespace
}  // namespace tusk::server
