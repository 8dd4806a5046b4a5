#include "proto/base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace tusk {
namespace {

TEST(Text, PrintableTextKeepsUtf8AndLosesWhatSteersATerminal) {
  EXPECT_EQ(printable("B\xc3\xbc"
                      "cher \xf0\x9f\x90\x98"),
            "B\xc3\xbc"
            "cher \xf0\x9f\x90\x98");
  EXPECT_EQ(printable("a\nroot entered\x1b[2J\x7f"), "a?root entered?[2J?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "?2J");  // CSI as one character
  EXPECT_EQ(printable("\x9b"
                      "2J\xc3"),
            "?2J?");                                        // or as a byte of Latin-1
  EXPECT_EQ(printable("\xc0\x8a \xed\xa0\x80"), "?? ???");  // overlong, a surrogate
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), kPrintableBytesMax);
  EXPECT_EQ(printable(""), "");
}

TEST(Text, ControlCharactersAreFoundInAsciiAndInUtf8) {
  for (const std::string text : {"a\nb", "\x1b", "\x7f", "a\xc2\x80", "a\xc2\x9b"})
    EXPECT_TRUE(has_control_characters(text)) << printable(text);
  EXPECT_TRUE(has_control_characters(std::string_view("\0", 1)));
  for (const std::string text : {"", "data",
                                 "B\xc3\xbc"
                                 "cher",
                                 "\xc2\xa0", "\xff"})
    EXPECT_FALSE(has_control_characters(text)) << text;
}

TEST(Text, WordsForAShellAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(shell_word("/mnt/data"), "/mnt/data");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace tusk
