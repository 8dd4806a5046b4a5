// URLs that come out of files and pipes.
#include "fsclient/url_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "tests/support/temp_dir.h"

namespace tusk::client {
namespace {

using support::TempDir;
using support::write_file;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "AAAAAAAAAAAAAAAAAAAAAA";
const std::string kUrl = std::string("tusk://h/films#") + kSecret;

class UrlFile : public testing::Test {
 protected:
  std::string file_with(const std::string& text, mode_t mode = 0600) {
    const std::string path = (folder_ / "url").string();
    write_file(path, text);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static std::string error_of(const Result<std::string>& read) {
    EXPECT_FALSE(read);
    return read ? "" : read.error().context;
  }

  TempDir folder_;
};

TEST_F(UrlFile, HoldsAUrlWithBlanksAroundIt) {
  for (const std::string& text : {kUrl, kUrl + "\n", "\n  " + kUrl + " \r\n\n"})
    EXPECT_EQ(read_url_file(file_with(text)).value(), kUrl);
  EXPECT_EQ(read_url_file(file_with(kUrl, 0400)).value(), kUrl);
}

TEST_F(UrlFile, ThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0660, 0620})
    EXPECT_THAT(error_of(read_url_file(file_with(kUrl, mode))), HasSubstr("chmod 600")) << mode;
}

TEST_F(UrlFile, ThatHoldsNoUrlIsNamedWithoutRepeatingIt) {
  EXPECT_THAT(error_of(read_url_file((folder_ / "none").string())), HasSubstr("No such file"));
  EXPECT_THAT(error_of(read_url_file(file_with(" \n\n"))), HasSubstr("is empty"));
  EXPECT_THAT(error_of(read_url_file(file_with(std::string(10'000, 'x')))), HasSubstr("a longer line"));
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_THAT(error_of(read_url_file(folder_.path().string())), HasSubstr("Is a directory"));
  const auto url = mount_url("", file_with("http://h/x#" + std::string(kSecret)));
  ASSERT_FALSE(url);
  EXPECT_THAT(url.error().context, HasSubstr("does not begin with tusk://"));
  EXPECT_THAT(url.error().context, Not(HasSubstr(kSecret)));
}

TEST_F(UrlFile, IsReadFromStandardInput) {
  for (const bool by_word : {false, true}) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const std::string line = kUrl + "\n";
    ASSERT_EQ(::write(pipe[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    const int before = ::dup(STDIN_FILENO);
    ::dup2(pipe[0], STDIN_FILENO);  // whose writer stays: the end of the line is enough
    const auto url = by_word ? mount_url("-", "") : mount_url("", "-");
    ::dup2(before, STDIN_FILENO);
    for (const int fd : {pipe[0], pipe[1], before}) ::close(fd);
    ASSERT_TRUE(url) << url.error().context;
    EXPECT_EQ(url->to_text(), rpc::MountUrl::parse(kUrl)->to_text());
  }
}

TEST_F(UrlFile, AgreesWithTheUrlBesideIt) {
  const std::string file = file_with(kUrl);
  EXPECT_EQ(mount_url("tusk://h/films", file)->token.size(), rpc::kTokenBytes);
  EXPECT_TRUE(mount_url("tusk://h:8875/films", file));
  for (const char* other : {"tusk://i/films", "tusk://h:1/films", "tusk://h/films2"})
    EXPECT_THAT(mount_url(other, file).error().context, HasSubstr("another server or export")) << other;
  EXPECT_THAT(mount_url(kUrl, file).error().context, HasSubstr("belongs into the file"));
}

TEST(MountWords, AreAUrlAndAPlaceOrAPlaceAlone) {
  const auto words = [](std::optional<std::string> first, std::optional<std::string> second, bool file) {
    const auto said = mount_words(first, second, file);
    return said ? said->url + "|" + said->mountpoint : said.error().context;
  };
  EXPECT_EQ(words(kUrl, "/m", false), kUrl + "|/m");
  EXPECT_EQ(words("-", "/m", false), "-|/m");
  EXPECT_EQ(words("tusk://h/x", "/m", true), "tusk://h/x|/m");
  EXPECT_EQ(words("/m", std::nullopt, true), "|/m");
  EXPECT_THAT(words("/m", std::nullopt, false), HasSubstr("MOUNTPOINT is missing"));
  EXPECT_THAT(words(kUrl, std::nullopt, true), HasSubstr("MOUNTPOINT is missing"));
  EXPECT_THAT(words(std::nullopt, std::nullopt, true), HasSubstr("are missing"));
  EXPECT_THAT(words("/m", kUrl, false), HasSubstr("the URL comes first"));
  EXPECT_THAT(words(kUrl, "", false), HasSubstr("MOUNTPOINT is empty"));
  EXPECT_THAT(words("", std::nullopt, true), HasSubstr("MOUNTPOINT is empty"));
}

}  // namespace
}  // namespace tusk::client
