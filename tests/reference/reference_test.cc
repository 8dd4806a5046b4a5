// Random POSIX operations on a mount and on a local directory: every result and both trees must agree.
//
// A failure prints the seed; TUSK_SEED=N replays it, TUSK_TRACE=1 prints each step, TUSK_STEPS=N shortens or
// lengthens it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "proto/base/random.h"
#include "tests/fuse/mounted/mounted_export.h"
#include "tree.h"

namespace tusk::test {
namespace {

constexpr int kStepsDefault = 600;
constexpr std::size_t kOpenFilesMax = 6;
constexpr std::size_t kSizeMax = 700'000;

// What an operation gave: its return value and errno, and the bytes it read.
struct Outcome {
  long result = 0;
  int error = 0;
  std::string bytes;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(long result, std::string bytes = {}) {
  return {result, result < 0 ? errno : 0, std::move(bytes)};
}

// One side: a directory and the files open in it. Both sides are given the same operations.
class Side {
 public:
  explicit Side(std::filesystem::path root) : root_(std::move(root)) {}
  ~Side() {
    for (const int fd : open_) ::close(fd);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // The seed decides what is done; both sides get equal ones.
  Outcome step(Random random, int number);

  // So that what is read next does not come from the kernel's memory.
  void drop_pages() const {
    for (const int fd : open_) (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  // Of the last step, for people.
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  [[nodiscard]] std::string some_path(Random& random);
  Outcome open_step(Random& random);
  Outcome file_step(Random& random, int number);
  Outcome name_step(Random& random);
  Outcome attribute_step(Random& random);

  const std::filesystem::path root_;
  std::vector<int> open_;
  std::string what_;
};

// Few names, so that operations meet.
std::string Side::some_path(Random& random) {
  std::string path;
  for (std::uint64_t depth = random.below(3); depth > 0; --depth)
    path += "/d" + std::to_string(random.below(3));
  path += (random.chance(0.3) ? "/d" : "/f") + std::to_string(random.below(4));
  what_ += " " + path;
  return root_.string() + path;
}

Outcome Side::open_step(Random& random) {
  if (open_.size() >= kOpenFilesMax || (!open_.empty() && random.chance(0.4))) {
    const std::size_t which = random.below(open_.size());
    const int fd = open_[which];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    return outcome(::close(fd));
  }
  int flags = random.chance(0.7) ? O_RDWR : O_RDONLY;
  if (random.chance(0.6)) flags |= O_CREAT;
  if (random.chance(0.2)) flags |= O_EXCL;
  if (random.chance(0.1)) flags |= O_TRUNC;
  if (random.chance(0.1)) flags |= O_APPEND;
  const int fd = ::open(some_path(random).c_str(), flags | O_CLOEXEC, 0640);
  const Outcome opened = outcome(fd < 0 ? -1 : 0);
  if (fd >= 0) open_.push_back(fd);
  return opened;
}

Outcome Side::file_step(Random& random, int number) {
  if (open_.empty()) return {};
  const int fd = open_[random.below(open_.size())];
  const auto offset = static_cast<off_t>(random.below(kSizeMax));
  const std::size_t size = random.below(random.chance(0.5) ? 200'000 : 5'000) + 1;
  const std::uint64_t kind = random.below(8);
  what_ += " file operation " + std::to_string(kind);
  switch (kind) {
    case 0:
    case 1:
    case 2: {
      const std::string bytes = noise(size, static_cast<std::uint64_t>(number));
      return outcome(::pwrite(fd, bytes.data(), bytes.size(), offset));
    }
    case 3:
    case 4: {
      std::string bytes(size, '\0');
      const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), offset);
      bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
      return outcome(got, std::move(bytes));
    }
    case 5:
      return outcome(::ftruncate(fd, offset));
    case 6: {
      struct stat st {};
      const int result = ::fstat(fd, &st);
      return outcome(result, std::to_string(st.st_size) + " " + std::to_string(st.st_nlink));
    }
    default:
      if (random.chance(0.5)) {
        what_ += " fsync";
        return outcome(::fsync(fd));
      }
      what_ += " fallocate";
      return outcome(::fallocate(fd, 0, offset, static_cast<off_t>(size)));
  }
}

Outcome Side::name_step(Random& random) {
  const std::string path = some_path(random);
  const std::uint64_t kind = random.below(8);
  what_ += " name operation " + std::to_string(kind);
  switch (kind) {
    case 0:
      return outcome(::mkdir(path.c_str(), 0750));
    case 1:
      return outcome(::rmdir(path.c_str()));
    case 2:
    case 3:
      return outcome(::unlink(path.c_str()));
    case 4:
      return outcome(::rename(path.c_str(), some_path(random).c_str()));
    case 5:
      return outcome(::link(path.c_str(), some_path(random).c_str()));
    case 6:
      return outcome(::symlink("some/target", path.c_str()));
    default: {
      std::string target(100, '\0');
      const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
      target.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
      return outcome(size, std::move(target));
    }
  }
}

Outcome Side::attribute_step(Random& random) {
  const std::string path = some_path(random);
  const std::uint64_t kind = random.below(5);
  what_ += " attribute operation " + std::to_string(kind);
  switch (kind) {
    case 0:
      return outcome(::chmod(path.c_str(), static_cast<mode_t>(0600 | random.below(0200))));
    case 1: {
      const timespec times[2] = {{static_cast<time_t>(random.below(kSetTimesEnd)), 1},
                                 {static_cast<time_t>(random.below(kSetTimesEnd)), 123}};
      return outcome(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW));
    }
    case 2:
      return outcome(::truncate(path.c_str(), static_cast<off_t>(random.below(kSizeMax))));
    case 3: {
      const std::string value = "c" + std::to_string(random.below(100));
      return outcome(::lsetxattr(path.c_str(), "user.colour", value.data(), value.size(), 0));
    }
    default: {
      struct stat st {};
      const int result = ::lstat(path.c_str(), &st);
      std::string facts = std::to_string(st.st_mode);
      if (S_ISREG(st.st_mode)) facts += " " + std::to_string(st.st_size) + " " + std::to_string(st.st_nlink);
      return outcome(result, std::move(facts));
    }
  }
}

Outcome Side::step(Random random, int number) {
  what_ = "step " + std::to_string(number) + ":";
  switch (random.below(10)) {
    case 0:
    case 1:
      return open_step(random);
    case 2:
    case 3:
    case 4:
    case 5:
      return file_step(random, number);
    case 6:
    case 7:
      return name_step(random);
    default:
      return attribute_step(random);
  }
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Harness {
  explicit Harness(ExportSetup setup)
      : mounted(std::move(setup)), mount(mounted.path()), local(model.path()) {}

  // The first step at which both sides differ, or a sentence about the trees at the end; "" if they agree.
  std::string run(std::uint64_t seed) {
    Random random(seed);
    const int steps = static_cast<int>(number_from("TUSK_STEPS", kStepsDefault));
    for (int number = 0; number < steps; ++number) {
      const std::uint64_t step_seed = random.next();
      const Outcome here = mount.step(Random(step_seed), number);
      const Outcome there = local.step(Random(step_seed), number);
      if (std::getenv("TUSK_TRACE") != nullptr)
        std::printf("%s: %ld %.60s, locally %.60s\n", mount.what().c_str(), static_cast<long>(here.result),
                    here.bytes.c_str(), there.bytes.c_str());
      if (mounted.filesystem().disk() != nullptr) mount.drop_pages();
      if (here == there) continue;
      return mount.what() + ": the mount gave " + std::to_string(here.result) + " (" +
             std::strerror(here.error) + "), a local directory " + std::to_string(there.result) + " (" +
             std::strerror(there.error) + ")" + (here.bytes != there.bytes ? ", and other bytes" : "");
    }
    return "";
  }

  std::string compare() const {
    std::string text;
    for (const std::string& line : differences(mount.root(), local.root())) text += line + "\n";
    for (const std::string& line : differences(mounted.exported(), local.root()))
      text += "on the server: " + line + "\n";
    return text;
  }

  MountedExport mounted;
  TempDir model;
  Side mount;
  Side local;
};

class Reference : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    if (const auto reason = no_fuse()) GTEST_SKIP() << "skipped, because " << *reason;
  }
};

// Runs a seed with a mount of this kind, and compares what is left.
void expect_a_local_directory(std::uint64_t seed, ExportSetup setup) {
  setup.loopback = {.jitter = std::chrono::microseconds(300), .seed = seed};
  Harness harness(std::move(setup));
  ASSERT_EQ(harness.run(seed), "");
  // What is still open was not flushed by a close.
  ::syncfs(Fd(harness.mounted.path().string(), O_RDONLY).get());
  std::promise<void> flushed;
  harness.mounted.filesystem().flush_all([&](const Result<void>&) { flushed.set_value(); });
  flushed.get_future().get();
  EXPECT_EQ(harness.compare(), "");
  if (const client::DiskCache* disk = harness.mounted.filesystem().disk()) {
    EXPECT_GT(disk->stats().stored_bytes, 0u) << "it takes part";
    EXPECT_EQ(disk->stats().damaged, 0u);
  }
}

TEST_P(Reference, AMountBehavesAsALocalDirectory) {
  const std::uint64_t seed = number_from("TUSK_SEED", GetParam());
  SCOPED_TRACE("replay: TUSK_SEED=" + std::to_string(seed) +
               " reference_test --gtest_filter='*AsALocalDirectory/0'");
  expect_a_local_directory(seed, {});
}

// Little memory, so that much of what is read comes from the disk.
TEST_P(Reference, AMountWithADiskCacheDoesSo) {
  const std::uint64_t seed = number_from("TUSK_SEED", GetParam());
  SCOPED_TRACE("replay: TUSK_SEED=" + std::to_string(seed) +
               " reference_test --gtest_filter='*ADiskCacheDoesSo/0'");
  expect_a_local_directory(seed, {.cache_bytes = 64 * 1024, .disk_cache = true});
}

TEST_P(Reference, AMountWithLeasesDoesSo) {
  const std::uint64_t seed = number_from("TUSK_SEED", GetParam());
  SCOPED_TRACE("replay: TUSK_SEED=" + std::to_string(seed) +
               " reference_test --gtest_filter='*LeasesDoesSo/0'");
  expect_a_local_directory(seed, {.leases = true});
}

INSTANTIATE_TEST_SUITE_P(Seeds, Reference, testing::Range<std::uint64_t>(1, 13));

// The canary: one changed byte and one missing file must be found, else the comparison proves nothing.
TEST(ReferenceCanary, ADifferenceIsFound) {
  if (const auto reason = no_fuse()) GTEST_SKIP() << "skipped, because " << *reason;
  Harness harness({});
  ASSERT_EQ(harness.run(1), "");
  write_file(harness.mounted / "canary", "aaaa");
  write_file(harness.model / "canary", "aaab");
  write_file(harness.model / "canary2", "");
  const std::string found = harness.compare();
  EXPECT_NE(found.find("canary differs in its content"), std::string::npos);
  EXPECT_NE(found.find("canary2 is missing"), std::string::npos);
}

}  // namespace
}  // namespace tusk::test
