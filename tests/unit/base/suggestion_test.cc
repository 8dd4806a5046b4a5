#include "proto/base/suggestion.h"

#include <gtest/gtest.h>

#include <array>

namespace tusk {
namespace {

constexpr std::array<std::string_view, 5> kKnown{"mount", "umount", "status", "ro", "relatime"};

TEST(ClosestWord, IsWhatWasMeant) {
  for (const auto& [written, meant] : {std::pair{"mnt", "mount"},
                                       {"moutn", "mount"},
                                       {"unmount", "umount"},
                                       {"umnt", "umount"},
                                       {"stat", "status"},
                                       {"Status", "status"},
                                       {"rw", "ro"}})
    EXPECT_EQ(closest_word(written, kKnown), meant) << written;
}

TEST(ClosestWord, IsNoGuessAtSomethingElse) {
  for (const char* written : {"", "m", "x", "quux", "amount of rain", "list"})
    EXPECT_EQ(closest_word(written, kKnown), "") << written;
  EXPECT_EQ(closest_word("mnt", {}), "");
}

}  // namespace
}  // namespace tusk
