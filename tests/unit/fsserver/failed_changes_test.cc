// A change of a file that fails may have been made in part: the set-user-ID bits go before the first byte,
// and of several changes the first are done. Those who know the file are told of it all the same.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>

#include "mount.h"

namespace tusk::server {
namespace {

constexpr rlim_t kFileBytesMax = 1 << 20;

// No file of this process gets longer while it lives.
class FileSizeLimit {
 public:
  FileSizeLimit() : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = kFileBytesMax;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

struct FailingChange {
  const char* name;
  ErrorCode error;
  schema::Request (*request)(const std::string& source, const std::string& target);
  std::string_view body;
};

schema::Request write_across_the_limit(const std::string&, const std::string& target) {
  schema::Request request;
  request.mutable_write()->set_handle(target);
  request.mutable_write()->set_offset(kFileBytesMax - 1);
  request.mutable_write()->set_length(2);
  return request;
}

schema::Request copy_beyond_the_limit(const std::string& source, const std::string& target) {
  schema::Request request;
  request.mutable_copy_range()->set_source(source);
  request.mutable_copy_range()->set_target(target);
  request.mutable_copy_range()->set_target_offset(kFileBytesMax);
  request.mutable_copy_range()->set_length(1);
  return request;
}

schema::Request allocate_beyond_the_limit(const std::string&, const std::string& target) {
  schema::Request request;
  request.mutable_allocate()->set_handle(target);
  request.mutable_allocate()->set_offset(kFileBytesMax);
  request.mutable_allocate()->set_length(1);
  return request;
}

schema::Request mode_and_a_time_that_is_none(const std::string&, const std::string& target) {
  schema::Request request;
  request.mutable_setattr()->set_handle(target);
  request.mutable_setattr()->set_mode(0700);
  request.mutable_setattr()->set_mtime_s(1);
  request.mutable_setattr()->set_mtime_ns(2'000'000'000);
  return request;
}

class FailedChanges : public testing::TestWithParam<FailingChange> {};

TEST_P(FailedChanges, AreReportedWhereTheyWereMadeInPart) {
  TempDir dir;
  std::mutex mutex;
  std::vector<std::string> mutated;
  Server server(dir.path(), {.mutated = [&](Export&, const std::vector<std::string>& handles) {
                  const std::lock_guard lock(mutex);
                  mutated.insert(mutated.end(), handles.begin(), handles.end());
                }});
  Mount mount(server);
  write_file(dir / "source", "source");
  write_file(dir / "target", "target");
  ASSERT_EQ(::chmod((dir / "target").c_str(), 06755), 0);
  const std::string target = mount.handle("target");
  const schema::Request request = GetParam().request(mount.handle("source"), target);
  {
    const FileSizeLimit limit;
    EXPECT_ERROR(mount.call(request, GetParam().body), GetParam().error);
  }
  struct stat after {};
  ASSERT_EQ(::stat((dir / "target").c_str(), &after), 0);
  EXPECT_NE(after.st_mode & 07777, 06755u) << "nothing was made: the case shows nothing";
  const std::lock_guard lock(mutex);
  EXPECT_NE(std::ranges::find(mutated, target), mutated.end());
}

INSTANTIATE_TEST_SUITE_P(
    OfFiles, FailedChanges,
    testing::Values(FailingChange{"Write", from_errno(EFBIG), write_across_the_limit, "xy"},
                    FailingChange{"CopyRange", from_errno(EFBIG), copy_beyond_the_limit, {}},
                    FailingChange{"Allocate", from_errno(EFBIG), allocate_beyond_the_limit, {}},
                    FailingChange{"SetAttr", from_errno(EINVAL), mode_and_a_time_that_is_none, {}}),
    [](const testing::TestParamInfo<FailingChange>& tested) { return tested.param.name; });

}  // namespace
}  // namespace tusk::server
