// The wire format, byte by byte: every sample must encode to exactly its file under tests/golden/bytes,
// and the file must decode to exactly the sample.
//
// A failure means that this build talks differently from the ones before. If that is a mistake, repair
// the code. If it is meant: raise wire::kVersion unless old peers understand the new bytes, change
// docs/PROTOCOL.md, run this program once with TUSK_GOLDEN_UPDATE=1 in the environment, and commit the
// changed files together with the document.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "proto/rpc/message_codec.h"
#include "tests/golden/samples/samples.h"

namespace tusk::golden {
namespace {

using testing::IsEmpty;
using testing::Not;

constexpr std::size_t kBytesPerLine = 32;
constexpr std::string_view kHowToChange =
    "\nThe wire format differs from the golden file. Not meant? Repair the code. Meant? Read the head of "
    "tests/golden/golden_test.cc, change docs/PROTOCOL.md, then run golden_test with TUSK_GOLDEN_UPDATE=1.";

const std::filesystem::path kFolder = std::filesystem::path(TUSK_GOLDEN_DIR) / "bytes";

// ---------------------------------------------------------------- golden files

struct Golden {
  std::string description;
  Bytes bytes;
  bool operator==(const Golden&) const = default;
};

std::string to_text(const Golden& golden) {
  std::string text = "# " + golden.description + "\n";
  const std::span<const std::byte> bytes(golden.bytes);
  for (std::size_t at = 0; at < bytes.size(); at += kBytesPerLine)
    text += to_hex(bytes.subspan(at, std::min(kBytesPerLine, bytes.size() - at))) + "\n";
  return text;
}

std::optional<Golden> parse(const std::string& text) {
  const std::size_t end_of_first = text.find('\n');
  if (!text.starts_with("# ") || end_of_first == std::string::npos) return std::nullopt;
  const auto bytes = from_hex(std::string_view(text).substr(end_of_first));
  if (!bytes) return std::nullopt;
  return Golden{text.substr(2, end_of_first - 2), *bytes};
}

std::filesystem::path file_of(std::string_view kind, std::string_view name) {
  return kFolder / kind / (std::string(name) + ".hex");
}

std::optional<Golden> load(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return parse(text.str());
}

bool updating() { return std::getenv("TUSK_GOLDEN_UPDATE") != nullptr; }

// What is pinned for `name`; in an update it is first made to be `now`.
Golden pinned(std::string_view kind, std::string_view name, const Golden& now) {
  const auto file = file_of(kind, name);
  if (updating()) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << to_text(now);
  }
  auto golden = load(file);
  EXPECT_TRUE(golden) << "no usable golden file " << file << kHowToChange;
  return golden.value_or(Golden{});
}

// ---------------------------------------------------------------- frames

// What is wrong with the pinned bytes of a frame; empty: nothing.
std::string difference(const FrameSample& sample, const Golden& golden) {
  if (encode(sample.frame, sample.form) != golden.bytes) return "encodes to other bytes";
  if (describe(sample.frame) != golden.description) return "is described otherwise";
  const auto decoded = decode_one(golden.bytes);
  if (!decoded) return "does not decode";
  if (describe(*decoded) != golden.description) return "decodes to " + describe(*decoded);
  if (encode(*decoded, sample.form) != golden.bytes) return "decodes and encodes to other bytes";
  return {};
}

TEST(GoldenFrames, EncodeToAndDecodeFromThePinnedBytes) {
  for (const FrameSample& sample : frame_samples()) {
    const Golden golden =
        pinned("frame", sample.name, {describe(sample.frame), encode(sample.frame, sample.form)});
    EXPECT_THAT(difference(sample, golden), IsEmpty()) << sample.name << kHowToChange;
  }
}

TEST(GoldenFrames, CoverEveryFrameAndBothFormsOfABody) {
  std::set<std::size_t> kinds;
  std::set<std::byte> types;
  for (const FrameSample& sample : frame_samples()) {
    kinds.insert(sample.frame.index());
    types.insert(encode(sample.frame, sample.form).front());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<wire::Frame>);
  EXPECT_EQ(types.size(), std::variant_size_v<wire::Frame> + 1);
}

TEST(GoldenFrames, CanaryEveryChangedByteIsNoticed) {
  for (const FrameSample& sample : frame_samples()) {
    const Golden golden{describe(sample.frame), encode(sample.frame, sample.form)};
    ASSERT_THAT(difference(sample, golden), IsEmpty());
    for (std::size_t i = 0; i < golden.bytes.size(); ++i) {
      Golden changed = golden;
      changed.bytes[i] ^= std::byte{1};
      EXPECT_THAT(difference(sample, changed), Not(IsEmpty())) << sample.name << " byte " << i;
    }
    EXPECT_THAT(difference(sample, {golden.description + "!", golden.bytes}), Not(IsEmpty()));
  }
}

// ---------------------------------------------------------------- packet headers

TEST(GoldenHeaders, OfShortPacketsArePinned) {
  for (const ShortHeaderSample& sample : short_header_samples()) {
    const Golden now{describe(sample.header), encode(sample.header)};
    const Golden golden = pinned("header", sample.name, now);
    EXPECT_EQ(golden, now) << sample.name << kHowToChange;
    const auto parsed = wire::parse_short_header(golden.bytes);
    ASSERT_TRUE(parsed) << sample.name << kHowToChange;
    EXPECT_EQ(describe(parsed->header), golden.description) << sample.name << kHowToChange;
    EXPECT_EQ(parsed->size, golden.bytes.size());
  }
}

TEST(GoldenHeaders, OfLongPacketsArePinned) {
  for (const LongHeaderSample& sample : long_header_samples()) {
    const Golden now{describe(sample.header), encode(sample.header)};
    const Golden golden = pinned("header", sample.name, now);
    EXPECT_EQ(golden, now) << sample.name << kHowToChange;
    const auto parsed = wire::parse_long_header(golden.bytes);
    ASSERT_TRUE(parsed) << sample.name << kHowToChange;
    EXPECT_EQ(describe(parsed->header), golden.description) << sample.name << kHowToChange;
    EXPECT_EQ(parsed->size, golden.bytes.size());
  }
}

TEST(GoldenHeaders, CoverEveryTypeOfLongPacket) {
  std::set<wire::LongType> types;
  for (const LongHeaderSample& sample : long_header_samples()) types.insert(sample.header.type);
  EXPECT_EQ(types.size(), 4u);
}

// ---------------------------------------------------------------- messages

TEST(GoldenMessages, DecodeToWhatTheyWereMadeFrom) {
  for (const MessageSample& sample : message_samples()) {
    const auto encoded = rpc::encode_message(sample.request);
    ASSERT_TRUE(encoded);
    const Bytes now(encoded->bytes.begin(), encoded->bytes.end());
    EXPECT_EQ(now.front(), static_cast<std::byte>(sample.compressed ? 1 : 0)) << sample.name;
    const Golden golden = pinned("message", sample.name, {sample.name, now});
    if (!sample.compressed) {
      EXPECT_EQ(to_hex(golden.bytes), to_hex(now)) << sample.name << kHowToChange;
    }
    schema::Request decoded;
    ASSERT_TRUE(rpc::decode_message(golden.bytes, decoded)) << sample.name << kHowToChange;
    EXPECT_EQ(decoded.SerializeAsString(), sample.request.SerializeAsString()) << sample.name << kHowToChange;
  }
}

// ---------------------------------------------------------------- the folder

TEST(GoldenFiles, AllBelongToASample) {
  std::set<std::filesystem::path> known;
  for (const auto& sample : frame_samples()) known.insert(file_of("frame", sample.name));
  for (const auto& sample : short_header_samples()) known.insert(file_of("header", sample.name));
  for (const auto& sample : long_header_samples()) known.insert(file_of("header", sample.name));
  for (const auto& sample : message_samples()) known.insert(file_of("message", sample.name));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_TRUE(known.contains(entry.path()))
        << entry.path() << " is of no use: remove it or give it a sample";
  }
  EXPECT_EQ(files, known.size());
}

TEST(GoldenFiles, CanaryDamagedFilesAreRefused) {
  const Golden golden{"PING", {std::byte{1}}};
  EXPECT_EQ(parse(to_text(golden)), golden);
  EXPECT_FALSE(parse("PING\n01\n")) << "no description";
  EXPECT_FALSE(parse("# PING\n0\n")) << "half a byte";
  EXPECT_FALSE(parse("# PING\n0x01\n")) << "not a digit";
  EXPECT_NE(parse("# PING\n02\n"), golden);
}

}  // namespace
}  // namespace tusk::golden
