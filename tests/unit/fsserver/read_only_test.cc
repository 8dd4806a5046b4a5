// What changes something is refused where it must be, and known to leases: for every operation there is.
#include <map>

#include "fsserver/lease_effects.h"
#include "mount.h"

namespace tusk::server {
namespace {

using schema::Request;

struct Sample {
  Request request;
  bool mutates;
};

// One plausible request of each operation. A new operation without one fails CoversEveryOperation.
std::map<Request::OperationCase, Sample> samples(const std::string& root, const std::string& file) {
  std::map<Request::OperationCase, Sample> all;
  const auto add = [&](bool mutates, auto fill) {
    Request request;
    fill(request);
    all[request.operation_case()] = {request, mutates};
  };
  add(false, [&](Request& r) { r.mutable_lookup()->set_parent(root), r.mutable_lookup()->set_name("file"); });
  add(false, [&](Request& r) { r.mutable_getattr()->set_handle(file); });
  add(true, [&](Request& r) { r.mutable_setattr()->set_handle(file), r.mutable_setattr()->set_mode(0600); });
  add(false, [&](Request& r) { r.mutable_readdir()->set_handle(root); });
  add(false, [&](Request& r) { r.mutable_open()->set_handle(file); });
  add(true, [&](Request& r) { r.mutable_create()->set_parent(root), r.mutable_create()->set_name("new"); });
  add(false, [&](Request& r) { r.mutable_read()->set_handle(file), r.mutable_read()->set_length(1); });
  add(true, [&](Request& r) { r.mutable_write()->set_handle(file); });
  add(false, [&](Request& r) { r.mutable_commit()->set_handle(file); });
  add(false, [&](Request& r) { r.mutable_close()->set_open_id(1); });
  add(true, [&](Request& r) {
    r.mutable_make_node()->set_parent(root), r.mutable_make_node()->set_name("new");
    r.mutable_make_node()->set_mode(S_IFDIR | 0755);
  });
  add(true, [&](Request& r) { r.mutable_remove()->set_parent(root), r.mutable_remove()->set_name("file"); });
  add(true, [&](Request& r) {
    r.mutable_rename()->set_old_parent(root), r.mutable_rename()->set_old_name("file");
    r.mutable_rename()->set_new_parent(root), r.mutable_rename()->set_new_name("new");
  });
  add(true, [&](Request& r) {
    r.mutable_link()->set_handle(file), r.mutable_link()->set_new_parent(root),
        r.mutable_link()->set_new_name("new");
  });
  add(false, [&](Request& r) { r.mutable_readlink()->set_handle(file); });
  add(false, [&](Request& r) { r.mutable_statfs()->set_handle(root); });
  add(false,
      [&](Request& r) { r.mutable_getxattr()->set_handle(file), r.mutable_getxattr()->set_name("user.x"); });
  add(true,
      [&](Request& r) { r.mutable_setxattr()->set_handle(file), r.mutable_setxattr()->set_name("user.x"); });
  add(false, [&](Request& r) { r.mutable_listxattr()->set_handle(file); });
  add(true, [&](Request& r) {
    r.mutable_removexattr()->set_handle(file), r.mutable_removexattr()->set_name("user.x");
  });
  add(true, [&](Request& r) { r.mutable_allocate()->set_handle(file), r.mutable_allocate()->set_length(1); });
  add(false,
      [&](Request& r) { r.mutable_seek()->set_handle(file), r.mutable_seek()->set_whence(SEEK_DATA); });
  add(true, [&](Request& r) {
    r.mutable_copy_range()->set_source(file), r.mutable_copy_range()->set_target(file);
  });
  add(false, [&](Request& r) { r.mutable_walk()->add_starts()->set_handle(root); });
  add(false, [&](Request& r) { r.mutable_read_files()->add_folders()->set_handle(root); });
  add(false, [&](Request& r) { r.mutable_lock()->set_handle(file); });
  add(false, [&](Request& r) { r.mutable_acquire()->add_handles(root); });
  return all;
}

TEST(ReadOnly, CoversEveryOperation) {
  const auto all = samples("", "");
  EXPECT_EQ(all.size(), operations().size());
  for (const Operation& operation : operations()) {
    ASSERT_TRUE(all.contains(operation.operation)) << operation.name;
    EXPECT_EQ(mutates(operation, all.at(operation.operation).request), all.at(operation.operation).mutates)
        << operation.name;
  }
  // The schema's own list: what is between attach and detach has an entry in the table.
  for (int number = Request::kLookup; number < Request::kDetach; ++number) {
    EXPECT_NE(find_operation(static_cast<Request::OperationCase>(number)), nullptr) << number;
  }
}

// What others hold under leases is taken back by that before an operation runs.
TEST(LeaseEffects, EveryMutationSaysWhatItChanges) {
  TempDir dir;
  write_file(dir / "file", "content");
  Server server(dir.path());
  Mount mount(server);
  for (const auto& [operation, sample] : samples(mount.root(), mount.handle("file")))
    EXPECT_EQ(!changes_of(sample.request, server.exported().nodes(), true).empty(), sample.mutates)
        << find_operation(operation)->name;
}

void expect_refused_and_untouched(Mount& mount, const TempDir& dir) {
  const std::string file = mount.handle("file");
  for (const auto& [operation, sample] : samples(mount.root(), file)) {
    const Answer answer = mount.call(sample.request);
    if (sample.mutates)
      EXPECT_ERROR(answer, err(EROFS)) << find_operation(operation)->name;
    else
      EXPECT_NE(answer.error(), err(EROFS)) << find_operation(operation)->name;
  }
  for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC})
    EXPECT_ERROR(mount.open(file, flags), err(EROFS));
  EXPECT_EQ(read_file(dir / "file"), "content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(ReadOnly, ExportRefusesEveryMutation) {
  TempDir dir;
  write_file(dir / "file", "content");
  Server server(dir.path(), {.access = Access::kReadOnly});
  Mount mount(server);
  EXPECT_TRUE(mount.attached().read_only());
  expect_refused_and_untouched(mount, dir);
}

TEST(ReadOnly, MountOfAWritableExportRefusesEveryMutationToo) {
  TempDir dir;
  write_file(dir / "file", "content");
  Server server(dir.path());
  Mount mount(server, {.read_only = true});
  expect_refused_and_untouched(mount, dir);
}

}  // namespace
}  // namespace tusk::server
