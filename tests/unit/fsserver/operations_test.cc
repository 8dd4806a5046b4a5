// Each operation on one file or name: what it does, and its errors.
#include <linux/falloc.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#include <atomic>
#include <thread>

#include "mount.h"

namespace tusk::server {
namespace {

class Operations : public testing::Test {
 protected:
  Operations() : server_(dir_.path(), {.setuid = true}), mount_(server_) {}

  const std::string& root() const { return mount_.root(); }
  // A file made and opened by the client.
  struct Opened {
    std::string handle;
    std::uint64_t id;
  };
  Opened create(std::string_view name, std::string_view content = "", unsigned mode = 0644) {
    const auto reply = EXPECT_OK(mount_.create(root(), name, O_RDWR | O_EXCL, mode)).reply.open();
    if (!content.empty()) EXPECT_OK(mount_.write(reply.node().handle(), reply.open_id(), 0, content));
    return {reply.node().handle(), reply.open_id()};
  }
  template <class Fill>
  Answer setattr(const std::string& handle, Fill fill) {
    schema::Request request;
    request.mutable_setattr()->set_handle(handle);
    fill(*request.mutable_setattr());
    return mount_.call(request);
  }
  Answer allocate(const Opened& file, std::uint64_t offset, std::uint64_t length, std::uint32_t mode) {
    schema::Request request;
    request.mutable_allocate()->set_handle(file.handle);
    request.mutable_allocate()->set_open_id(file.id);
    request.mutable_allocate()->set_offset(offset);
    request.mutable_allocate()->set_length(length);
    request.mutable_allocate()->set_mode(mode);
    return mount_.call(request);
  }
  Answer seek(const Opened& file, std::uint64_t offset, int whence) {
    schema::Request request;
    request.mutable_seek()->set_handle(file.handle);
    request.mutable_seek()->set_open_id(file.id);
    request.mutable_seek()->set_offset(offset);
    request.mutable_seek()->set_whence(static_cast<std::uint32_t>(whence));
    return mount_.call(request);
  }
  schema::Attr attr(const std::string& handle) {
    return EXPECT_OK(mount_.getattr(handle)).reply.attr().attr();
  }

  TempDir dir_;
  Server server_;
  Mount mount_;
};

TEST_F(Operations, GetAttrTellsWhatStatTells) {
  write_file(dir_ / "file", "12345");
  const schema::Attr seen = attr(mount_.handle("file"));
  struct stat real {};
  ASSERT_EQ(::stat((dir_ / "file").c_str(), &real), 0);
  EXPECT_EQ(seen.ino(), real.st_ino);
  EXPECT_EQ(seen.mode(), real.st_mode);
  EXPECT_EQ(seen.nlink(), real.st_nlink);
  EXPECT_EQ(seen.uid(), real.st_uid);
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen.blocks(), static_cast<std::uint64_t>(real.st_blocks));
  EXPECT_EQ(seen.mtime_s(), real.st_mtim.tv_sec);
  EXPECT_EQ(seen.mtime_ns(), static_cast<std::uint32_t>(real.st_mtim.tv_nsec));
}

TEST_F(Operations, ChangeMovesWithContentAndAttributes) {
  const Opened file = create("file", "x");
  const std::uint64_t before = attr(file.handle).change();
  EXPECT_NE(before, 0u);
  EXPECT_EQ(attr(file.handle).change(), before);
  EXPECT_OK(mount_.write(file.handle, file.id, 1, "y"));
  const std::uint64_t after = attr(file.handle).change();
  EXPECT_NE(after, before);
}

TEST_F(Operations, LookupOfNothingIsEnoent) {
  EXPECT_ERROR(mount_.lookup(root(), "none"), err(ENOENT));
  write_file(dir_ / "file", "");
  EXPECT_ERROR(mount_.lookup(mount_.handle("file"), "x"), err(ENOTDIR));
}

TEST_F(Operations, CreateSetsTheExactMode) {
  ::umask(077);
  for (const unsigned mode : {0u, 0600u, 0644u, 0777u, 04755u, 01666u}) {
    const std::string name = "f" + std::to_string(mode);
    const auto made = EXPECT_OK(mount_.create(root(), name, O_RDWR | O_EXCL, mode)).reply.open();
    EXPECT_EQ(made.node().attr().mode(), S_IFREG | mode);
    EXPECT_TRUE(made.created());
    EXPECT_NE(made.open_id(), 0u);
  }
  for (const unsigned mode : {0700u, 0777u, 01777u, 02775u})
    EXPECT_EQ(EXPECT_OK(mount_.make_directory(root(), "d" + std::to_string(mode), mode))
                  .reply.node()
                  .node()
                  .attr()
                  .mode(),
              S_IFDIR | mode);
  ::umask(022);
}

TEST_F(Operations, CreateOpensWhatIsThereUnlessExclusive) {
  write_file(dir_ / "file", "content");
  EXPECT_ERROR(mount_.create(root(), "file", O_RDWR | O_EXCL), err(EEXIST));
  const auto opened = EXPECT_OK(mount_.create(root(), "file", O_RDWR)).reply.open();
  EXPECT_FALSE(opened.created());
  EXPECT_EQ(opened.node().attr().size(), 7u);
  EXPECT_EQ(EXPECT_OK(mount_.create(root(), "file", O_RDWR | O_TRUNC)).reply.open().node().attr().size(), 0u);
  std::filesystem::create_directory(dir_ / "d");
  EXPECT_ERROR(mount_.create(root(), "d", O_RDWR), err(EISDIR));
  EXPECT_OK(mount_.create(root(), "x", O_ACCMODE));  // of Linux: both rights, for ioctl(2) only
}

TEST_F(Operations, OpenRefusesWhatIsNoFile) {
  EXPECT_ERROR(mount_.open(root()), err(EISDIR));
  EXPECT_OK(mount_.make_node(root(), "fifo", S_IFIFO | 0600));
  EXPECT_ERROR(mount_.open(mount_.handle("fifo")), err(ENXIO));  // and does not wait for a writer
  EXPECT_ERROR(mount_.read(mount_.handle("fifo"), 0, 0, 1), err(ENXIO));
}

TEST_F(Operations, OpenBringsTheFirstBytesUnlessKnown) {
  write_file(dir_ / "file", "content");
  schema::Request request;
  request.mutable_open()->set_handle(mount_.handle("file"));
  request.mutable_open()->set_read_ahead(4);
  const Answer first = EXPECT_OK(mount_.call(request));
  EXPECT_EQ(first.text(), "cont");
  EXPECT_EQ(first.reply.open().body_bytes(), 4u);
  request.mutable_open()->set_read_ahead(1000);
  EXPECT_EQ(mount_.call(request).text(), "content");
  EXPECT_EQ(mount_.call(request, "", 3).text(), "con");  // what the client has room for
  request.mutable_open()->set_known_change(first.reply.open().node().attr().change());
  EXPECT_EQ(mount_.call(request).body.size(), 0u);
}

TEST_F(Operations, ReadGivesWhatIsThere) {
  write_file(dir_ / "file", "0123456789");
  const std::string file = mount_.handle("file");
  const std::uint64_t id = EXPECT_OK(mount_.open(file)).reply.open().open_id();
  for (const std::uint64_t open_id : {id, std::uint64_t{0}, std::uint64_t{12345}}) {
    Answer answer = EXPECT_OK(mount_.read(file, open_id, 2, 3));
    EXPECT_EQ(answer.text(), "234");
    EXPECT_EQ(answer.reply.read().length(), 3u);
    EXPECT_FALSE(answer.reply.read().end_of_file());
    EXPECT_EQ(answer.reply.read().change(), attr(file).change());
    answer = EXPECT_OK(mount_.read(file, open_id, 7, 3));
    EXPECT_TRUE(answer.reply.read().end_of_file());
    answer = EXPECT_OK(mount_.read(file, open_id, 8, 100));
    EXPECT_EQ(answer.text(), "89");
    EXPECT_TRUE(answer.reply.read().end_of_file());
    EXPECT_EQ(EXPECT_OK(mount_.read(file, open_id, 1000, 100)).text(), "");
  }
}

TEST_F(Operations, ReadRefusesWhatItCannotGive) {
  write_file(dir_ / "file", "x");
  const std::string file = mount_.handle("file");
  EXPECT_ERROR(mount_.read(file, 0, 0, kReadBytesMax + 1), err(EINVAL));
  schema::Request request;
  request.mutable_read()->set_handle(file);
  request.mutable_read()->set_length(100);
  EXPECT_ERROR(mount_.call(request, "", 99), err(EINVAL));  // never a short read that is not the end
  EXPECT_ERROR(mount_.read(file, 0, ~0ull, 1), err(EFBIG));
  EXPECT_ERROR(mount_.read(root(), 0, 0, 1), err(EISDIR));
  const std::uint64_t id = EXPECT_OK(mount_.open(file)).reply.open().open_id();
  write_file(dir_ / "other", "y");
  EXPECT_ERROR(mount_.read(mount_.handle("other"), id, 0, 1), err(EBADF));
}

TEST_F(Operations, ReadCompressesWhatGetsSmaller) {
  std::string noise(100'000, '\0');
  crypto::random_bytes(std::as_writable_bytes(std::span(noise)));
  write_file(dir_ / "text", std::string(100'000, 'a'));
  write_file(dir_ / "noise", noise);
  schema::Request request;
  request.mutable_read()->set_length(100'000);
  request.mutable_read()->set_compress(true);
  request.mutable_read()->set_handle(mount_.handle("text"));
  const Answer text = EXPECT_OK(mount_.call(request));
  EXPECT_TRUE(text.reply.read().compressed());
  EXPECT_EQ(text.reply.read().length(), 100'000u);
  EXPECT_LT(text.body.size(), 1000u);
  request.mutable_read()->set_handle(mount_.handle("noise"));
  const Answer raw = EXPECT_OK(mount_.call(request));
  EXPECT_FALSE(raw.reply.read().compressed());
  EXPECT_EQ(raw.text(), noise);

  schema::Request write;
  write.mutable_write()->set_handle(mount_.handle("noise"));
  write.mutable_write()->set_compressed(true);
  write.mutable_write()->set_length(100'000);
  EXPECT_OK(mount_.call(write, text.text()));
  EXPECT_EQ(read_file(dir_ / "noise"), std::string(100'000, 'a'));
  write.mutable_write()->set_length(99'999);  // a frame longer than announced
  EXPECT_ERROR(mount_.call(write, text.text()), ErrorCode::kMalformed);
  write.mutable_write()->set_length(100'001);
  EXPECT_ERROR(mount_.call(write, text.text()), ErrorCode::kMalformed);
  EXPECT_ERROR(mount_.call(write, "no frame"), ErrorCode::kMalformed);
}

TEST_F(Operations, WriteGoesWhereItIsSent) {
  const Opened file = create("file");
  const Answer written = EXPECT_OK(mount_.write(file.handle, file.id, 5, "hello"));
  EXPECT_EQ(written.reply.write().offset(), 5u);
  EXPECT_EQ(written.reply.write().attr().size(), 10u);
  EXPECT_OK(mount_.write(file.handle, 0, 0, "01234"));
  EXPECT_EQ(read_file(dir_ / "file"), "01234hello");
  const Answer far = EXPECT_OK(mount_.write(file.handle, file.id, 5ull << 30, "x"));
  EXPECT_EQ(far.reply.write().attr().size(), (5ull << 30) + 1);
  EXPECT_LT(far.reply.write().attr().blocks(), 100u);
}

TEST_F(Operations, AppendSaysWhereItWent) {
  const Opened file = create("file", "abc");
  EXPECT_EQ(EXPECT_OK(mount_.append(file.handle, file.id, "def")).reply.write().offset(), 3u);
  EXPECT_EQ(EXPECT_OK(mount_.append(file.handle, 0, "ghi")).reply.write().offset(), 6u);
  // A file opened for appending still takes writes at an offset.
  const std::uint64_t id = EXPECT_OK(mount_.open(file.handle, O_WRONLY | O_APPEND)).reply.open().open_id();
  EXPECT_OK(mount_.write(file.handle, id, 0, "A"));
  EXPECT_EQ(EXPECT_OK(mount_.append(file.handle, id, "j")).reply.write().offset(), 9u);
  EXPECT_EQ(read_file(dir_ / "file"), "Abcdefghij");
}

TEST_F(Operations, ManyAppendsNeverOverlap) {
  const Opened file = create("file");
  std::vector<std::shared_ptr<PendingCall>> calls;
  for (int i = 0; i < 200; ++i) {
    schema::Request request;
    request.mutable_write()->set_handle(file.handle);
    request.mutable_write()->set_open_id(file.id);
    request.mutable_write()->set_append(true);
    request.mutable_write()->set_length(10);
    calls.push_back(mount_.start(request, "0123456789"));
  }
  std::set<std::uint64_t> offsets;
  for (const auto& call : calls) offsets.insert(EXPECT_OK(call->wait()).reply.write().offset());
  EXPECT_EQ(offsets.size(), 200u);
  EXPECT_EQ(*offsets.rbegin(), 1990u);
}

TEST_F(Operations, WriteRefusesNonsense) {
  const Opened file = create("file");
  schema::Request request;
  request.mutable_write()->set_handle(file.handle);
  request.mutable_write()->set_length(4);
  EXPECT_ERROR(mount_.call(request, "12345"), ErrorCode::kMalformed);
  request.mutable_write()->set_length(kWriteBytesMax + 1);
  EXPECT_ERROR(mount_.call(request, std::string(kWriteBytesMax + 1, 'x')), err(EINVAL));
  EXPECT_ERROR(mount_.write(file.handle, file.id, ~0ull - 1, "x"), err(EFBIG));
  EXPECT_ERROR(mount_.write(root(), 0, 0, "x"), err(EISDIR));
}

TEST_F(Operations, UnlinkedFilesLiveWhileOpen) {
  const Opened file = create("file", "still here");
  const Answer removed = EXPECT_OK(mount_.remove(root(), "file"));
  EXPECT_EQ(removed.reply.remove().attr().nlink(), 0u);
  EXPECT_EQ(mount_.read(file.handle, file.id, 0, 100).text(), "still here");
  EXPECT_OK(mount_.write(file.handle, file.id, 0, "STILL"));
  EXPECT_EQ(EXPECT_OK(mount_.getattr(file.handle, file.id)).reply.attr().attr().nlink(), 0u);
  EXPECT_OK(setattr(file.handle, [&](auto& r) { r.set_open_id(file.id), r.set_size(2); }));
  EXPECT_EQ(mount_.read(file.handle, file.id, 0, 100).text(), "ST");
  EXPECT_OK(mount_.commit(file.handle, file.id));
  EXPECT_OK(mount_.close(file.id));
  EXPECT_ERROR(mount_.getattr(file.handle), err(ESTALE));
}

TEST_F(Operations, FilesRenamedOverLiveWhileOpen) {
  const Opened old = create("old", "old");
  create("new", "new");
  EXPECT_OK(mount_.rename(root(), "new", root(), "old"));
  EXPECT_EQ(mount_.read(old.handle, old.id, 0, 9).text(), "old");
  EXPECT_EQ(mount_.read(mount_.handle("old"), 0, 0, 9).text(), "new");
}

TEST_F(Operations, CloseOfAnUnknownFileIsNoError) { EXPECT_OK(mount_.close(4711)); }

TEST_F(Operations, CommitSyncsFilesAndDirectories) {
  const Opened file = create("file", "x");
  EXPECT_EQ(EXPECT_OK(mount_.commit(file.handle, file.id)).reply.commit().boot_id(),
            mount_.attached().boot_id());
  EXPECT_OK(mount_.commit(file.handle));
  schema::Request request;
  request.mutable_commit()->set_handle(root());
  request.mutable_commit()->set_directory(true);
  EXPECT_OK(mount_.call(request));
  request.mutable_commit()->set_handle(file.handle);
  request.mutable_commit()->set_data_only(true);
  EXPECT_ERROR(mount_.call(request), err(ENOTDIR));
}

TEST_F(Operations, SetAttrSetsEachAndOnlyThat) {
  const Opened file = create("file", "0123456789");
  EXPECT_EQ(EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_mode(04711); })).reply.attr().attr().mode(),
            S_IFREG | 04711u);
  EXPECT_EQ(EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_size(3); })).reply.attr().attr().size(), 3u);
  schema::Attr now =
      EXPECT_OK(
          setattr(file.handle, [](auto& r) { r.set_mtime_s(1'000'000'000), r.set_mtime_ns(123'456'789); }))
          .reply.attr()
          .attr();
  EXPECT_EQ(now.mtime_s(), 1'000'000'000);
  EXPECT_EQ(now.mtime_ns(), 123'456'789u);
  const std::int64_t atime = now.atime_s();
  EXPECT_NE(atime, 1'000'000'000);
  now = EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_atime_s(-5), r.set_atime_ns(7); }))
            .reply.attr()
            .attr();
  EXPECT_EQ(now.atime_s(), -5);
  EXPECT_EQ(now.mtime_s(), 1'000'000'000);
  now = EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_mtime_now(true); })).reply.attr().attr();
  EXPECT_GT(now.mtime_s(), 1'000'000'000);
  // A new size and a given mtime in one: the mtime is what was asked for.
  now = EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_size(100), r.set_mtime_s(42); }))
            .reply.attr()
            .attr();
  EXPECT_EQ(now.mtime_s(), 42);
  EXPECT_EQ(now.size(), 100u);
}

TEST_F(Operations, SetAttrErrors) {
  const Opened file = create("file");
  EXPECT_ERROR(setattr(root(), [](auto& r) { r.set_size(0); }), err(EISDIR));
  EXPECT_ERROR(setattr(file.handle, [](auto& r) { r.set_size(~0ull); }), err(EFBIG));
  EXPECT_ERROR(setattr(file.handle, [](auto& r) { r.set_mtime_s(1), r.set_mtime_ns(1'000'000'000); }),
               err(EINVAL));
  EXPECT_ERROR(setattr(file.handle, [](auto& r) { r.set_uid(4711); }),
               err(EPERM));  // owners are not real here
  EXPECT_OK(setattr(file.handle, [](auto& r) { r.set_uid(::geteuid()); }));
}

TEST_F(Operations, SymlinksHaveTargetsAndTimesOfTheirOwn) {
  write_file(dir_ / "target", "");
  const auto made = EXPECT_OK(mount_.make_symlink(root(), "link", "target")).reply.node().node();
  schema::Request request;
  request.mutable_readlink()->set_handle(made.handle());
  EXPECT_EQ(EXPECT_OK(mount_.call(request)).reply.readlink().target(), "target");
  EXPECT_OK(setattr(made.handle(), [](auto& r) { r.set_mtime_s(42); }));
  EXPECT_EQ(attr(made.handle()).mtime_s(), 42);
  EXPECT_NE(attr(mount_.handle("target")).mtime_s(), 42);
  EXPECT_OK(mount_.link(made.handle(), root(), "hard"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "hard"));
  request.mutable_readlink()->set_handle(root());
  EXPECT_ERROR(mount_.call(request), err(EINVAL));
  EXPECT_ERROR(mount_.make_symlink(root(), "x", ""), err(ENOENT));
  EXPECT_ERROR(mount_.make_symlink(root(), "x", std::string(PATH_MAX, 'x')), err(ENAMETOOLONG));
  EXPECT_ERROR(mount_.make_symlink(root(), "link", "y"), err(EEXIST));
}

TEST_F(Operations, MakeNodeMakesFifosAndNoDevices) {
  EXPECT_EQ(EXPECT_OK(mount_.make_node(root(), "fifo", S_IFIFO | 0620)).reply.node().node().attr().mode(),
            S_IFIFO | 0620u);
  EXPECT_EQ(EXPECT_OK(mount_.make_node(root(), "sock", S_IFSOCK | 0600)).reply.node().node().attr().mode(),
            S_IFSOCK | 0600u);
  EXPECT_EQ(EXPECT_OK(mount_.make_node(root(), "file", 0640)).reply.node().node().attr().mode(),
            S_IFREG | 0640u);
  EXPECT_ERROR(mount_.make_node(root(), "dev", S_IFCHR | 0600), err(EPERM));
  EXPECT_ERROR(mount_.make_node(root(), "dev", S_IFBLK | 0600), err(EPERM));
  EXPECT_ERROR(mount_.make_node(root(), "odd", 0030000 | 0600), err(EINVAL));
  EXPECT_ERROR(mount_.make_node(root(), "fifo", S_IFDIR | 0700), err(EEXIST));
}

TEST_F(Operations, RemoveErrors) {
  std::filesystem::create_directories(dir_ / "d/e");
  write_file(dir_ / "f", "");
  EXPECT_ERROR(mount_.remove(root(), "none"), err(ENOENT));
  EXPECT_ERROR(mount_.remove(root(), "d"), err(EISDIR));
  EXPECT_ERROR(mount_.remove(root(), "f", true), err(ENOTDIR));
  EXPECT_ERROR(mount_.remove(root(), "d", true), err(ENOTEMPTY));
  EXPECT_OK(mount_.remove(mount_.handle("d"), "e", true));
  EXPECT_OK(mount_.remove(root(), "d", true));
  EXPECT_OK(mount_.remove(root(), "f"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(Operations, RemovingOneOfTwoLinksTellsOfTheOther) {
  write_file(dir_ / "a", "");
  const Answer linked = EXPECT_OK(mount_.link(mount_.handle("a"), root(), "b"));
  EXPECT_EQ(linked.reply.node().node().attr().nlink(), 2u);
  EXPECT_EQ(EXPECT_OK(mount_.remove(root(), "a")).reply.remove().attr().nlink(), 1u);
}

TEST_F(Operations, RenameFlagsAndErrors) {
  write_file(dir_ / "a", "a");
  write_file(dir_ / "b", "b");
  std::filesystem::create_directories(dir_ / "d/e");
  EXPECT_ERROR(mount_.rename(root(), "a", root(), "b", 1), err(EEXIST));
  EXPECT_ERROR(mount_.rename(root(), "a", root(), "none", 2), err(ENOENT));
  EXPECT_ERROR(mount_.rename(root(), "a", root(), "b", 8), err(EINVAL));
  EXPECT_ERROR(mount_.rename(root(), "none", root(), "c"), err(ENOENT));
  EXPECT_ERROR(mount_.rename(root(), "d", mount_.handle("d/e"), "x"), err(EINVAL));
  EXPECT_OK(mount_.rename(root(), "a", root(), "b", 2));
  EXPECT_EQ(read_file(dir_ / "b"), "a");
  EXPECT_OK(mount_.rename(root(), "a", mount_.handle("d"), "c", 1));
  EXPECT_EQ(read_file(dir_ / "d/c"), "b");
}

// So that who moved it knows that its bytes are still those it has.
TEST_F(Operations, RenamingAFileTellsItsAttributesAndWhatTheyWereBefore) {
  write_file(dir_ / "a", "a");
  std::filesystem::create_directories(dir_ / "d");
  const schema::Attr before = mount_.lookup(root(), "a").reply.node().node().attr();
  const schema::Attr after =
      EXPECT_OK(mount_.rename(root(), "a", mount_.handle("d"), "b")).reply.rename().moved().attr();
  EXPECT_EQ(after.change_before(), before.change());
  EXPECT_NE(after.change(), before.change());
  EXPECT_EQ(after.change(), mount_.lookup(mount_.handle("d"), "b").reply.node().node().attr().change());
  EXPECT_FALSE(EXPECT_OK(mount_.rename(root(), "d", root(), "e")).reply.rename().has_moved());
}

TEST_F(Operations, LinkErrors) {
  write_file(dir_ / "a", "a");
  EXPECT_ERROR(mount_.link(mount_.handle("a"), root(), "a"), err(EEXIST));
  EXPECT_ERROR(mount_.link(root(), root(), "d"), err(EPERM));
}

TEST_F(Operations, StatFsTellsTheSpace) {
  schema::Request request;
  request.mutable_statfs()->set_handle(root());
  const auto facts = EXPECT_OK(mount_.call(request)).reply.statfs();
  EXPECT_GT(facts.blocks(), 0u);
  EXPECT_GE(facts.blocks_free(), facts.blocks_available());
  EXPECT_GT(facts.block_size(), 0u);
  EXPECT_EQ(facts.name_max(), 255u);
}

TEST_F(Operations, XattrsComeAndGo) {
  const Opened file = create("file");
  schema::Request set, get, list, remove;
  set.mutable_setxattr()->set_handle(file.handle);
  set.mutable_setxattr()->set_name("user.colour");
  set.mutable_setxattr()->set_value(std::string("r\0d", 3));
  get.mutable_getxattr()->set_handle(file.handle);
  get.mutable_getxattr()->set_name("user.colour");
  list.mutable_listxattr()->set_handle(file.handle);
  remove.mutable_removexattr()->set_handle(file.handle);
  remove.mutable_removexattr()->set_name("user.colour");
  const Answer probe = mount_.call(set);
  if (probe.error() == err(EOPNOTSUPP)) GTEST_SKIP() << "no user xattrs on this file system";
  EXPECT_OK(probe);
  EXPECT_EQ(EXPECT_OK(mount_.call(get)).reply.xattr().value(), std::string("r\0d", 3));
  EXPECT_EQ(EXPECT_OK(mount_.call(list)).reply.xattr().value(), std::string("user.colour\0", 12));
  set.mutable_setxattr()->set_flags(XATTR_CREATE);
  EXPECT_ERROR(mount_.call(set), err(EEXIST));
  EXPECT_OK(mount_.call(remove));
  EXPECT_ERROR(mount_.call(remove), err(ENODATA));
  EXPECT_ERROR(mount_.call(get), err(ENODATA));
  set.mutable_setxattr()->set_flags(XATTR_REPLACE);
  EXPECT_ERROR(mount_.call(set), err(ENODATA));
  set.mutable_setxattr()->set_flags(8);
  EXPECT_ERROR(mount_.call(set), err(EINVAL));
  set.mutable_setxattr()->set_flags(0);
  set.mutable_setxattr()->set_value(std::string(65 * 1024, 'x'));
  EXPECT_ERROR(mount_.call(set), err(E2BIG));
  for (const char* name : {"security.selinux", "trusted.x", "system.other", "nonsense"}) {
    get.mutable_getxattr()->set_name(name);
    EXPECT_ERROR(mount_.call(get), err(EOPNOTSUPP)) << name;
  }
  get.mutable_getxattr()->set_name("");
  EXPECT_ERROR(mount_.call(get), err(EINVAL));
  get.mutable_getxattr()->set_name("user." + std::string(300, 'x'));
  EXPECT_ERROR(mount_.call(get), err(ERANGE));
}

TEST_F(Operations, AllocatePunchAndSeek) {
  const Opened file = create("file");
  EXPECT_EQ(EXPECT_OK(allocate(file, 0, 1 << 20, 0)).reply.attr().attr().size(), 1u << 20);
  EXPECT_OK(mount_.write(file.handle, file.id, 0, std::string(1 << 20, 'x')));
  const std::uint64_t full = attr(file.handle).blocks();
  const Answer punched =
      EXPECT_OK(allocate(file, 64 << 10, 512 << 10, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE));
  EXPECT_LT(punched.reply.attr().attr().blocks(), full);
  EXPECT_EQ(EXPECT_OK(seek(file, 0, SEEK_HOLE)).reply.seek().offset(), 64u << 10);
  EXPECT_EQ(EXPECT_OK(seek(file, 64 << 10, SEEK_DATA)).reply.seek().offset(), 576u << 10);
  EXPECT_ERROR(seek(file, 1 << 20, SEEK_DATA), err(ENXIO));
  EXPECT_ERROR(seek(file, ~0ull, SEEK_DATA), err(ENXIO));
  EXPECT_ERROR(seek(file, 0, SEEK_END), err(EINVAL));
  EXPECT_ERROR(allocate(file, 0, 0, 0), err(EINVAL));
  EXPECT_ERROR(allocate(file, 0, 1, 0x1000), err(EOPNOTSUPP));
  EXPECT_ERROR(allocate(file, ~0ull, 1, 0), err(EFBIG));
}

class CopyRange : public Operations {
 protected:
  Answer copy(const Opened& source, std::uint64_t from, const Opened& target, std::uint64_t to,
              std::uint64_t length) {
    schema::Request request;
    schema::CopyRangeRequest& copy = *request.mutable_copy_range();
    copy.set_source(source.handle);
    copy.set_source_open_id(source.id);
    copy.set_source_offset(from);
    copy.set_target(target.handle);
    copy.set_target_open_id(target.id);
    copy.set_target_offset(to);
    copy.set_length(length);
    return mount_.call(request);
  }
};

TEST_F(CopyRange, CopiesAndStopsAtTheEnd) {
  const Opened source = create("source", "0123456789");
  const Opened target = create("target");
  EXPECT_EQ(EXPECT_OK(copy(source, 2, target, 0, 100)).reply.copy_range().copied(), 8u);
  EXPECT_EQ(read_file(dir_ / "target"), "23456789");
  EXPECT_EQ(EXPECT_OK(copy(source, 10, target, 0, 100)).reply.copy_range().copied(), 0u);
  EXPECT_EQ(EXPECT_OK(copy(source, 1000, target, 0, 100)).reply.copy_range().copied(), 0u);
  EXPECT_EQ(EXPECT_OK(copy(source, 0, source, 10, 10)).reply.copy_range().target().size(), 20u);
  EXPECT_EQ(read_file(dir_ / "source"), "01234567890123456789");
  EXPECT_ERROR(copy(source, 0, source, 5, 10), err(EINVAL));
  EXPECT_ERROR(copy(source, ~0ull, target, 0, 1), err(EFBIG));
}

TEST_F(CopyRange, KeepsHolesAndZeroes) {
  const Opened source = create("source");
  const Opened target = create("target");
  write_file(dir_ / "target", std::string(3 << 20, 'T'));
  EXPECT_OK(mount_.write(source.handle, source.id, 1 << 20, std::string(64 << 10, 'S')));
  EXPECT_OK(setattr(source.handle, [](auto& r) { r.set_size(8 << 20); }));
  std::uint64_t done = 0;
  while (done < (8u << 20)) {
    const std::uint64_t copied =
        EXPECT_OK(copy(source, done, target, done, (8 << 20) - done)).reply.copy_range().copied();
    ASSERT_GT(copied, 0u);
    done += copied;
  }
  EXPECT_EQ(read_file(dir_ / "target"), read_file(dir_ / "source"));
  EXPECT_LE(attr(target.handle).blocks(), attr(source.handle).blocks() + 64);
}

TEST_F(CopyRange, AHoleAtTheEndCutsNothingOffThatOthersAppend) {
  const Opened source = create("source");
  const Opened target = create("target");
  EXPECT_OK(setattr(source.handle, [](auto& r) { r.set_size(1); }));
  std::atomic<bool> over{false};
  std::atomic<bool> cut{false};
  std::jthread other([&] {
    const Fd file(::open((dir_ / "target").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    for (off_t end = 0; !over;) {
      const off_t before =
          std::exchange(end, ::write(file.number(), "a", 1) == 1 ? ::lseek(file.number(), 0, SEEK_CUR) : 0);
      if (end <= before) cut = true;
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t size = attr(target.handle).size();
    EXPECT_OK(copy(source, 0, target, size, 1));
    EXPECT_GT(attr(target.handle).size(), size);
  }
  over = true;
  other.join();
  EXPECT_FALSE(cut);
}

TEST_F(CopyRange, CrossesFileSystems) {
  std::filesystem::create_directory(dir_ / "mounted");
  if (::mount("tusk-test", (dir_ / "mounted").c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "may not mount here";
  const std::string content(1'500'000, 'c');
  const Opened source = create("source", content.substr(0, 1 << 20));
  EXPECT_OK(mount_.write(source.handle, source.id, 1 << 20, content.substr(1 << 20)));
  const auto made = EXPECT_OK(mount_.create(mount_.handle("mounted"), "target")).reply.open();
  const Opened target{made.node().handle(), made.open_id()};
  std::uint64_t done = 0;
  while (done < content.size()) {
    const std::uint64_t copied =
        EXPECT_OK(copy(source, done, target, done, content.size())).reply.copy_range().copied();
    ASSERT_GT(copied, 0u);
    done += copied;
  }
  EXPECT_EQ(read_file(dir_ / "mounted/target"), content);
  EXPECT_OK(mount_.close(target.id));
  mount_.disconnect();
  EXPECT_EQ(::umount2((dir_ / "mounted").c_str(), MNT_DETACH), 0);
}

TEST(FullDisk, SaysSoToTheWriter) {
  TempDir dir;
  if (::mount("tusk-test", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "may not mount here";
  {
    Server server(dir.path());
    Mount mount(server);
    const auto file = EXPECT_OK(mount.create(mount.root(), "file")).reply.open();
    EXPECT_ERROR(mount.write(file.node().handle(), file.open_id(), 0, std::string(1 << 20, 'x')),
                 err(ENOSPC));
    schema::Request allocate;
    allocate.mutable_allocate()->set_handle(file.node().handle());
    allocate.mutable_allocate()->set_length(1 << 20);
    EXPECT_ERROR(mount.call(allocate), err(ENOSPC));
    EXPECT_OK(mount.remove(mount.root(), "file"));
    EXPECT_OK(mount.close(file.open_id()));
    // The space is free again at once: nothing holds the removed file.
    const auto again = EXPECT_OK(mount.create(mount.root(), "again")).reply.open();
    EXPECT_OK(mount.write(again.node().handle(), again.open_id(), 0, std::string(200 << 10, 'x')));
  }
  EXPECT_EQ(::umount2(dir.path().c_str(), MNT_DETACH), 0);
}

TEST(Mutations, AreReportedOnceEachAndOnlyWhenTheySucceed) {
  TempDir dir;
  std::mutex mutex;
  std::vector<std::string> changed;
  Server server(dir.path(), {.mutated = [&](Export&, const std::vector<std::string>& handles) {
                  const std::lock_guard lock(mutex);
                  changed.insert(changed.end(), handles.begin(), handles.end());
                }});
  Mount mount(server);
  EXPECT_OK(mount.make_directory(mount.root(), "d"));
  EXPECT_EQ(changed, std::vector{mount.root()});
  changed.clear();
  EXPECT_ERROR(mount.make_directory(mount.root(), "d"), err(EEXIST));
  EXPECT_OK(mount.lookup(mount.root(), "d"));
  EXPECT_TRUE(changed.empty());
}

TEST(ReplyMemoryBudget, ReadsWaitForTheClientToTakeWhatWasRead) {
  TempDir dir;
  write_file(dir / "file", std::string(1 << 20, 'x'));
  Server server(dir.path(), {.reply_memory_max = 4 << 20});
  Mount mount(server);
  schema::Request request;
  request.mutable_read()->set_handle(mount.handle("file"));
  request.mutable_read()->set_length(1 << 20);
  const auto first = mount.start(request);
  const auto second = mount.start(request);
  first->wait();
  second->wait();
  const auto third = mount.start(request);
  EXPECT_TRUE(server.service().drain(5s));  // it holds no thread either
  EXPECT_FALSE(third->answered());
  first->release();
  EXPECT_EQ(third->wait().body.size(), 1u << 20);
}

TEST(ReplyMemoryBudget, CompressedReadsCountUntilTheClientHasThem) {
  TempDir dir;
  write_file(dir / "file", std::string(1 << 20, 'x'));
  Server server(dir.path(), {.reply_memory_max = 4 << 20});
  Mount mount(server);
  schema::Request request;
  request.mutable_read()->set_handle(mount.handle("file"));
  request.mutable_read()->set_length(1 << 20);
  request.mutable_read()->set_compress(true);
  const auto first = mount.start(request);
  const auto second = mount.start(request);
  EXPECT_TRUE(first->wait().reply.read().compressed());
  EXPECT_TRUE(second->wait().reply.read().compressed());
  const auto third = mount.start(request);
  EXPECT_TRUE(server.service().drain(5s));
  EXPECT_FALSE(third->answered());
  first->release();
  EXPECT_TRUE(third->wait().reply.read().compressed());
}

}  // namespace
}  // namespace tusk::server
