// What `tusk` says to command lines that make no sense.
#include "fsclient/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tusk::client {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Said {
  int code = 0;
  std::string text;
};

Said tusk(std::vector<std::string> words) {
  words.insert(words.begin(), "tusk");
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(argv.size()), argv.data(), "a test");
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(CommandLine, ATypoInACommandIsRecognised) {
  const Said said = tusk({"mnt", "tusk://h/x#secret", "/mnt"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_EQ(said.text, "tusk: there is no command 'mnt': did you mean mount? (tusk --help)\n");
  EXPECT_THAT(tusk({"unmount", "/mnt"}).text, HasSubstr("did you mean umount?"));
  EXPECT_THAT(tusk({"frobnicate"}).text, HasSubstr("no command 'frobnicate', but mount, umount, status"));
}

TEST(CommandLine, AUrlIsNoCommandAndIsNotSaidAloud) {
  const Said said = tusk({"tusk://h/x#secret", "/mnt"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_THAT(said.text, HasSubstr("tusk mount URL MOUNTPOINT"));
  EXPECT_THAT(said.text, Not(HasSubstr("secret")));
}

TEST(CommandLine, SwappedArgumentsAreRecognised) {
  const Said said = tusk({"mount", "/mnt", "tusk://h/x#secret"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_EQ(said.text, "tusk: the URL comes first, then the directory: tusk mount URL MOUNTPOINT\n");
}

TEST(CommandLine, ASizeWithoutItsFolderIsAMistake) {
  const Said said = tusk({"mount", "-o", "cache_size=1G", "tusk://h/x", "/mnt"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_THAT(said.text, HasSubstr("cache=DIR"));
  EXPECT_THAT(said.text, HasSubstr("cache_mem"));
}

TEST(CommandLine, OtherMistakesAreStillNamed) {
  EXPECT_THAT(tusk({}).text, HasSubstr("subcommand is required"));
  EXPECT_THAT(tusk({"status", "--jason"}).text, HasSubstr("--jason"));
  EXPECT_THAT(tusk({"mount", "http://h/x", "/mnt"}).text, HasSubstr("tusk://"));
}

}  // namespace
}  // namespace tusk::client
