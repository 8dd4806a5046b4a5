// What the change counters in an answer tell: whether it was the only change.
#include <thread>

#include "fsserver/attributes.h"
#include "mount.h"

namespace tusk::server {
namespace {

schema::Attr attr_after_write(Mount& mount, const std::string& handle, std::string_view bytes) {
  const Answer answer = mount.write(handle, 0, 0, bytes);
  EXPECT_EQ(answer.reply.error(), 0u);
  return answer.reply.write().attr();
}

TEST(ChangeCounter, TellsTheOneBeforeTheChange) {
  const TempDir dir;
  write_file(dir / "file", "old");
  Server server(dir.path());
  Mount mount(server);
  const std::string handle = mount.handle("file");
  const schema::Attr first = attr_after_write(mount, handle, "one");
  const schema::Attr second = attr_after_write(mount, handle, "two");
  EXPECT_EQ(second.change_before(), first.change());
  write_file(dir / "file", "a local program, and another size");
  EXPECT_NE(attr_after_write(mount, handle, "six").change_before(), second.change());
}

// Each answer's `before` is some other's `after`: together they are one chain, whoever wrote.
TEST(ChangeCounter, OfTwoWritersAtOnceIsOneChain) {
  constexpr int kWrites = 200;
  const TempDir dir;
  write_file(dir / "file", "");
  Server server(dir.path());
  Mount one(server);
  MountSetup setup;
  setup.session = std::string(kSessionIdBytes, 't');
  Mount two(server, setup);
  std::vector<schema::Attr> answers[2];
  auto write = [&](Mount& mount, std::vector<schema::Attr>& into) {
    const std::string handle = mount.handle("file");
    for (int i = 0; i < kWrites; ++i)
      into.push_back(attr_after_write(mount, handle, std::string(1 + i % 7, 'x')));
  };
  std::thread other([&] { write(two, answers[1]); });
  write(one, answers[0]);
  other.join();
  std::set<std::uint64_t> befores, afters;
  for (const auto& each : answers) {
    for (const schema::Attr& attr : each) {
      befores.insert(attr.change_before());
      afters.insert(attr.change());
    }
  }
  // All but the first are the result of another one, all but the last are followed by one.
  std::vector<std::uint64_t> strange;
  std::set_difference(befores.begin(), befores.end(), afters.begin(), afters.end(),
                      std::back_inserter(strange));
  EXPECT_LE(strange.size(), 1u);
}

TEST(ChangeCounter, IsUnknownWhileAnotherChangeCouldGetTheSameStamp) {
  const statx_timestamp stamp{.tv_sec = 100, .tv_nsec = 995'000'000};
  EXPECT_TRUE(stamp_may_repeat(stamp, {.tv_sec = 101, .tv_nsec = 5'000'000}, true));
  EXPECT_FALSE(stamp_may_repeat(stamp, {.tv_sec = 101, .tv_nsec = 50'000'000}, true));
  EXPECT_FALSE(stamp_may_repeat(stamp, {.tv_sec = 101, .tv_nsec = 5'000'000}, false));
}

}  // namespace
}  // namespace tusk::server
