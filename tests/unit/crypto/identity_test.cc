// What the state directory looks like after a start, a restart, a crash and a mistake of its owner.
#include "proto/crypto/identity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "proto/crypto/key_file.h"

namespace tusk::crypto {
namespace {

using testing::HasSubstr;

class IdentityOnDisk : public testing::Test {
 protected:
  IdentityOnDisk() {
    std::string name = (std::filesystem::temp_directory_path() / "tusk-identity-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~IdentityOnDisk() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  [[nodiscard]] std::filesystem::path dir() const { return root_ / "some" / "state"; }
  [[nodiscard]] std::filesystem::path file() const { return dir() / Identity::kFileName; }

  void write_file(std::string_view content, mode_t mode = 0600) const {
    ASSERT_TRUE(prepare_private_directory(dir()));
    std::ofstream(file(), std::ios::binary) << content;
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
  }
  [[nodiscard]] std::string read_file() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  [[nodiscard]] static mode_t mode_of(const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::lstat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(dir()), {}));
  }
  void expect_refused(std::string_view why) const {
    const auto identity = Identity::load_or_create(dir());
    ASSERT_FALSE(identity);
    EXPECT_EQ(identity.error().code, ErrorCode::kBadConfig) << identity.error().message();
    EXPECT_THAT(identity.error().context, HasSubstr(why));
  }

  std::filesystem::path root_;
};

TEST_F(IdentityOnDisk, IsMadeOnceAndFoundAgain) {
  const auto first = Identity::load_or_create(dir());
  ASSERT_TRUE(first) << first.error().message();
  const std::string content = read_file();
  const auto second = Identity::load_or_create(dir());
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(first->fingerprint(), second->fingerprint());
  EXPECT_EQ(content, read_file());
}

TEST_F(IdentityOnDisk, IsPrivateWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const auto identity = Identity::load_or_create(dir());
  ::umask(before);
  ASSERT_TRUE(identity);
  EXPECT_EQ(mode_of(dir()), 0700U);
  EXPECT_EQ(mode_of(file()), 0600U);
}

TEST_F(IdentityOnDisk, LeavesNothingBesideTheKey) {
  ASSERT_TRUE(Identity::load_or_create(dir()));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(IdentityOnDisk, IgnoresWhatACrashLeftBehind) {
  ASSERT_TRUE(prepare_private_directory(dir()));
  std::ofstream(file().string() + ".a1b2c3") << "-----BEGIN PRIV";
  ASSERT_TRUE(Identity::load_or_create(dir()));
}

TEST_F(IdentityOnDisk, IsTheSameForAllWhoStartAtOnce) {
  constexpr int kStarts = 8;
  std::vector<std::optional<Fingerprint>> found(kStarts);
  {
    std::vector<std::jthread> threads;
    for (auto& fingerprint : found)
      threads.emplace_back([&] {
        if (const auto identity = Identity::load_or_create(dir())) fingerprint = identity->fingerprint();
      });
  }
  ASSERT_TRUE(found[0]);
  for (const auto& fingerprint : found) EXPECT_EQ(fingerprint, found[0]);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(IdentityOnDisk, RefusesAKeyThatOthersCanRead) {
  ASSERT_TRUE(Identity::load_or_create(dir()));
  ASSERT_EQ(::chmod(file().c_str(), 0640), 0);
  expect_refused("chmod 600");
}

TEST_F(IdentityOnDisk, RefusesADirectoryThatOthersCanWrite) {
  ASSERT_TRUE(prepare_private_directory(dir()));
  ASSERT_EQ(::chmod(dir().c_str(), 0777), 0);
  expect_refused("chmod 700");
}

TEST_F(IdentityOnDisk, RefusesADirectoryThatOthersCanReplace) {
  ASSERT_TRUE(prepare_private_directory(dir()));
  ASSERT_EQ(::chmod(dir().parent_path().c_str(), 0777), 0);
  expect_refused("lets others replace");
  ASSERT_EQ(::chmod(dir().parent_path().c_str(), 01777), 0);  // as /tmp
  EXPECT_TRUE(Identity::load_or_create(dir()));
}

TEST_F(IdentityOnDisk, RefusesADirectoryThatAGroupOrItsOwnerCanReplace) {
  constexpr unsigned kOther = 12'345;
  if (::geteuid() != 0) GTEST_SKIP() << "skipped, because it needs root";
  ASSERT_TRUE(prepare_private_directory(dir()));
  const std::string parent = dir().parent_path();
  ASSERT_EQ(::chown(parent.c_str(), 0, kOther), 0);
  ASSERT_EQ(::chmod(parent.c_str(), 0775), 0);
  expect_refused("lets others replace");
  ASSERT_EQ(::chmod(parent.c_str(), 0755), 0);
  EXPECT_TRUE(Identity::load_or_create(dir()));
  ASSERT_EQ(::chown(parent.c_str(), kOther, 0), 0);
  expect_refused("lets others replace");
  ASSERT_EQ(::chown(parent.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(parent.c_str(), 0775), 0);
  EXPECT_TRUE(Identity::load_or_create(dir())) << "root's own group";
  ASSERT_EQ(::chown(dir().c_str(), kOther, 0), 0);
  expect_refused("belongs to another user");
}

TEST_F(IdentityOnDisk, NeverOverwritesADamagedKey) {
  for (const std::string_view damaged : {"", "garbage", "-----BEGIN PRIVATE KEY-----\nMC4CAQ"}) {
    write_file(damaged);
    expect_refused("no readable key");
    EXPECT_EQ(read_file(), damaged);
  }
}

TEST_F(IdentityOnDisk, RefusesEveryTruncationOfAKey) {
  ASSERT_TRUE(Identity::load_or_create(dir()));
  const std::string whole = read_file();
  // Without the line break at the end it is still whole.
  for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
    write_file(whole.substr(0, length));
    EXPECT_FALSE(Identity::load_or_create(dir())) << length;
  }
}

TEST_F(IdentityOnDisk, DoesNotAskForAPassphrase) {
  write_file(
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
      "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgAAAAAAAAAAAICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n");
  expect_refused("no readable key");
}

TEST_F(IdentityOnDisk, RefusesAKeyOfAnotherKind) {
  // An X25519 key: of no use and no danger.
  write_file(
      "-----BEGIN PRIVATE KEY-----\n"
      "MC4CAQAwBQYDK2VuBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
      "-----END PRIVATE KEY-----\n");
  expect_refused("another kind");
}

TEST_F(IdentityOnDisk, RefusesWhatIsNoFile) {
  ASSERT_TRUE(prepare_private_directory(dir()));
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_refused("not a regular file");
  ASSERT_TRUE(std::filesystem::remove(file()));
  std::filesystem::create_symlink("/dev/zero", file());
  expect_refused("symbolic link");
}

TEST_F(IdentityOnDisk, RefusesAFileThatIsTooLong) {
  write_file(std::string(kKeyFileBytesMax + 1, 'x'));
  expect_refused("too long");
}

TEST_F(IdentityOnDisk, SaysWhenTheDirectoryIsAFile) {
  ASSERT_TRUE(prepare_private_directory(dir().parent_path()));
  std::ofstream(dir()) << "x";
  expect_refused("not a directory");
}

TEST_F(IdentityOnDisk, SaysWhenAParentIsAFile) {
  std::ofstream(root_ / "some") << "x";
  const auto identity = Identity::load_or_create(dir());
  ASSERT_FALSE(identity);
  EXPECT_EQ(identity.error().code, from_errno(ENOTDIR)) << identity.error().message();
  EXPECT_THAT(identity.error().context, HasSubstr("some"));
}

TEST_F(IdentityOnDisk, CreatesNoSecondKeyFile) {
  write_file("first");
  const auto created = create_key_file(file(), "second");
  ASSERT_TRUE(created);
  EXPECT_FALSE(*created);
  EXPECT_EQ(read_file(), "first");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(IdentityOnDisk, DerivesTheSameSecretsAfterARestart) {
  const auto first = Identity::load_or_create(dir());
  const auto second = Identity::load_or_create(dir());
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->derive_secret("handles") == second->derive_secret("handles"));
  EXPECT_FALSE(first->derive_secret("handles") == first->derive_secret("tokens"));
}

TEST(IdentityInMemory, IsNewEachTime) {
  const auto a = Identity::generate();
  const auto b = Identity::generate();
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->fingerprint(), b->fingerprint());
  EXPECT_FALSE(a->derive_secret("x") == b->derive_secret("x"));
}

TEST(FingerprintOf, RefusesNoKey) {
  const auto fingerprint = fingerprint_of(nullptr);
  ASSERT_FALSE(fingerprint);
  EXPECT_EQ(fingerprint.error().code, ErrorCode::kAuthenticationFailed);
}

// Ed25519 secret key of RFC 8032 §7.1, test 1. The fingerprint was computed beside this code:
//   openssl pkey -in identity.key -pubout -outform DER | openssl dgst -sha256 -binary | basenc --base64url
TEST_F(IdentityOnDisk, HasTheFingerprintThatOpensslComputes) {
  write_file(
      "-----BEGIN PRIVATE KEY-----\n"
      "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
      "-----END PRIVATE KEY-----\n");
  const auto identity = Identity::load_or_create(dir());
  ASSERT_TRUE(identity) << identity.error().message();
  EXPECT_EQ(identity->fingerprint().to_text(), "BuP9j9opu2CrWVV95h7bCuzbIxE0vjDnW0Vfjht5L6k");
}

}  // namespace
}  // namespace tusk::crypto
