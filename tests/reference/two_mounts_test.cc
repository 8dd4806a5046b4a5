// Random operations by two mounts of one export in turn, and on a local directory: each must find what the
// other has left, as if there were one.
//
// A failure prints the seed; TUSK_SEED=N replays it, TUSK_TRACE=1 prints each step, TUSK_STEPS=N shortens or
// lengthens it.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/base/random.h"
#include "tests/fuse/mounted/mounted_export.h"
#include "tree.h"

namespace tusk::test {
namespace {

constexpr int kTurnsDefault = 400;
constexpr std::size_t kContentMax = 20'000;

std::uint64_t setting(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string gave(long result) { return result < 0 ? std::strerror(errno) : std::to_string(result); }

// Few names, so that the two meet.
std::string place(Random& random) {
  std::string path;
  for (std::uint64_t depth = random.below(3); depth > 0; --depth)
    path += "/d" + std::to_string(random.below(2));
  return path + (random.chance(0.3) ? "/d" : "/f") + std::to_string(random.below(3));
}

std::string names_in(const std::string& path) {
  DIR* const directory = ::opendir(path.c_str());
  if (directory == nullptr) return gave(-1);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) names.emplace_back(entry->d_name);
  ::closedir(directory);
  std::ranges::sort(names);
  std::string text;
  for (const std::string& name : names) text += name + " ";
  return text;
}

std::string written(const std::string& path, int flags, const std::string& bytes) {
  const int fd = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0640);
  if (fd < 0) return gave(-1);
  std::string text = gave(::write(fd, bytes.data(), bytes.size()));
  return text + " " + gave(::close(fd));
}

std::string content(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return gave(-1);
  std::string bytes(2 * kContentMax, '\0');
  const ssize_t size = ::read(fd, bytes.data(), bytes.size());
  std::string text = gave(size);
  ::close(fd);
  return text + " " + bytes.substr(0, size < 0 ? 0 : static_cast<std::size_t>(size));
}

std::string facts(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return gave(-1);
  std::string text = std::to_string(st.st_mode) + " " + std::to_string(st.st_nlink);
  return S_ISREG(st.st_mode) ? text + " " + std::to_string(st.st_size) : text;
}

// What one turn gave, in words. Files are closed at its end: between two clients that is when data is there.
std::string turn(const std::string& root, Random random, std::uint64_t number, std::string& what) {
  const std::uint64_t kind = random.below(12);
  const std::string name = place(random);
  const std::string other = place(random);
  const std::string path = root + name;
  what = "operation " + std::to_string(kind) + " on " + name + " (" + other + ")";
  switch (kind) {
    case 0:
    case 1:
      return written(path, O_CREAT | (random.chance(0.3) ? O_EXCL : O_TRUNC),
                     noise(random.below(kContentMax), number));
    case 2:
      return written(path, O_APPEND, noise(random.below(100), number));
    case 3:
      return gave(::mkdir(path.c_str(), 0750));
    case 4:
      return gave(::rmdir(path.c_str()));
    case 5:
      return gave(::unlink(path.c_str()));
    case 6:
      return gave(::rename(path.c_str(), (root + other).c_str()));
    case 7:
      return gave(::link(path.c_str(), (root + other).c_str()));
    case 8:
      return gave(::chmod(path.c_str(), static_cast<mode_t>(0600 | random.below(0200))));
    case 9:
      return names_in(random.chance(0.5) ? root : path);
    case 10:
      return content(path);
    default:
      return facts(path);
  }
}

// Of a file's bytes, of which turn they are: what was written when.
std::string explained(const std::string& told, std::uint64_t turns) {
  const std::size_t head = told.find(' ');
  if (head == std::string::npos || told.size() <= head + 65) return told.substr(0, 200);
  const std::string start = told.substr(head + 1, 64);
  for (std::uint64_t number = 0; number < turns; ++number)
    if (noise(start.size(), number) == start)
      return told.substr(0, head) + " bytes of turn " + std::to_string(number);
  return told.substr(0, 200);
}

class TwoMounts : public testing::TestWithParam<std::uint64_t> {};

TEST_P(TwoMounts, BehaveAsOneLocalDirectory) {
  if (const auto reason = no_fuse()) GTEST_SKIP() << "skipped, because " << *reason;
  const std::uint64_t seed = setting("TUSK_SEED", GetParam());
  SCOPED_TRACE("replay: TUSK_SEED=" + std::to_string(seed) +
               " reference_test --gtest_filter='*TwoMounts*/0'");
  ExportSetup setup{.loopback = {.jitter = std::chrono::microseconds(300), .seed = seed},
                    .leases = true,
                    .lease_all = true};
  MountedExport one(setup);
  ++setup.loopback.seed;
  MountedExport two(one, setup);
  const TempDir model;
  Random random(seed);
  const std::uint64_t turns = setting("TUSK_STEPS", kTurnsDefault);
  for (std::uint64_t number = 0; number < turns; ++number) {
    const std::uint64_t turn_seed = random.next();
    // Now in turns, now one for a while: then it comes to hold directories exclusively.
    const bool first = random.chance(0.5) ? random.chance(0.5) : number / 20 % 2 == 0;
    std::string what;
    const std::string here = turn((first ? one : two).path().string(), Random(turn_seed), number, what);
    const std::string there = turn(model.path().string(), Random(turn_seed), number, what);
    if (setting("TUSK_TRACE", 0) != 0)
      std::printf("turn %lu by the %s: %s: %.60s\n", number, first ? "first" : "second", what.c_str(),
                  here.c_str());
    ASSERT_TRUE(here == there) << "turn " << number << " by the " << (first ? "first" : "second") << ": "
                               << what << "\n  the mount: " << explained(here, number)
                               << "\n  nearby:    " << explained(there, number);
  }
  EXPECT_THAT(differences(one.path(), model.path()), testing::IsEmpty());
  EXPECT_THAT(differences(two.path(), model.path()), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, TwoMounts, testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace tusk::test
