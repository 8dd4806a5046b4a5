// Each way by which bytes get into memory here, and into the kernel's pages, and what ends them there.
#include "fsclient/kernel_pages.h"

#include "leased.h"

namespace tusk::client {
namespace {

using namespace std::chrono_literals;

template <class Base>
class Pages : public Base {
 protected:
  // As a clock does: whatever becomes due runs at its time, and the server answers.
  void pass(Duration time) {
    constexpr Duration kStep = 50ms;
    for (; time > Duration::zero(); time -= kStep) {
      this->scheduler.advance(kStep);
      if (answers) this->settle();
    }
  }
  // Since the last look.
  [[nodiscard]] bool dropped() {
    const bool any = !this->kernel.inodes.empty() || !this->kernel.ranges.empty();
    this->kernel.inodes.clear();
    this->kernel.ranges.clear();
    return any;
  }
  [[nodiscard]] std::uint64_t reads() const { return this->server.seen(schema::Request::kRead); }
  [[nodiscard]] std::uint64_t looks() const { return this->server.seen(schema::Request::kGetattr); }
  // Large enough that its bytes come by READ, not with the OPEN.
  static constexpr ByteCount kFar = 600 * kKiB;
  static std::string content(int salt) { return pattern(kMiB, static_cast<std::size_t>(salt)); }
  static std::string at_far(int salt) { return content(salt).substr(kFar, 4096); }
  Handle open_and_read(int flags = O_RDONLY) {
    this->server.put("a", content(1));
    const Handle file = this->open("a", flags);
    EXPECT_TRUE(this->read(file, kFar, 4096) == at_far(1));
    (void)dropped();
    return file;
  }
  bool answers = true;
};

// ---------------------------------------------------------------- without a lease

class PagesOfALifetime : public Pages<Client> {};

TEST_F(PagesOfALifetime, OfBytesThatOthersChangeAreDroppedWhenItIsOver) {
  const Handle file = open_and_read();
  server.put("a", content(2));
  pass(2s);
  EXPECT_TRUE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

TEST_F(PagesOfALifetime, StayWhileTheServerSaysThatTheBytesAreTheFiles) {
  const Handle file = open_and_read();
  pass(10s);
  EXPECT_FALSE(dropped());
  EXPECT_GE(looks(), 9u);
  EXPECT_LE(looks(), 21u);
  const std::uint64_t before = reads();
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(1));
  EXPECT_EQ(reads(), before) << "what is here is the file's";
}

TEST_F(PagesOfALifetime, OfAFileThatNobodyHasOpenNeedNoQuestions) {
  const Handle file = open_and_read();
  close(file);
  pass(2s);
  const std::uint64_t before = looks();
  pass(10s);
  EXPECT_EQ(looks(), before);
}

TEST_F(PagesOfALifetime, AreDroppedWhenTheServerDoesNotAnswer) {
  (void)open_and_read();
  answers = false;
  pass(3s);
  EXPECT_TRUE(dropped());
}

TEST_F(PagesOfALifetime, BytesInMemoryAreCheckedToo) {
  const Handle file = open_and_read(O_RDONLY | O_DIRECT);
  server.put("a", content(2));
  scheduler.advance(1500ms);
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

TEST_F(PagesOfALifetime, OfOwnWritesEndLikeOthers) {
  server.put("a", content(1));
  const Handle file = open("a");
  EXPECT_TRUE(finished(write(file, 0, "own")));
  pass(1s);
  (void)dropped();
  server.put("a", content(2));
  pass(2s);
  EXPECT_TRUE(dropped());
  EXPECT_TRUE(read(file, 0, 3) == content(2).substr(0, 3));
}

TEST_F(PagesOfALifetime, ManyOpenFilesCostNoMoreThanSomeQuestionsALook) {
  constexpr int kFiles = 300;
  const auto name = [](int i) { return "f" + std::to_string(i); };
  for (int i = 0; i < kFiles; ++i) server.put(name(i), content(1));
  for (int i = 0; i < kFiles; ++i) (void)read(open(name(i), O_RDONLY), kFar, 4096);
  const std::uint64_t before = looks();
  pass(3s);
  EXPECT_LE(looks() - before, 6 * KernelPages::kAsksMax);
  EXPECT_TRUE(dropped());
}

// ---------------------------------------------------------------- under a lease

class PagesUnderALease : public Pages<Leased> {};

TEST_F(PagesUnderALease, StayAndCostNothing) {
  const Handle file = open_and_read();
  const std::uint64_t before = looks();
  pass(60s);
  EXPECT_FALSE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(1));
  EXPECT_EQ(looks(), before);
}

TEST_F(PagesUnderALease, AreDroppedWithIt) {
  const Handle file = open_and_read();
  server.put("a", content(2));
  EXPECT_TRUE(take_back(push_of_change()));
  EXPECT_TRUE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

// The server tells nobody of the next change: the lease of the bytes is over with that of the attributes.
TEST_F(PagesUnderALease, AreDroppedWithThatOfTheAttributes) {
  const Handle file = open_and_read();
  server.chmod("a", S_IFREG | 0600);
  EXPECT_TRUE(take_back(push(server.node_of("a").handle())));
  EXPECT_TRUE(dropped());
  server.put("a", content(2));
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

// A READ that ran while another client's WRITE was under way.
TEST_F(PagesUnderALease, ReadDuringAChangeServeTheReaderOnly) {
  const Handle file = open_and_read();
  EXPECT_TRUE(take_back(push_of_change()));
  (void)dropped();
  server.being_changed = true;
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(1));
  pass(100ms);
  EXPECT_TRUE(dropped()) << "nobody would tell the kernel";
  server.being_changed = false;
  server.put("a", content(2));
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
  EXPECT_TRUE(take_back(push_of_change()));
  pass(100ms);
}

TEST_F(PagesUnderALease, WrittenDuringAnothersChangeAreDropped) {
  server.put("a", content(1));
  const Handle file = open("a");
  server.being_changed = true;
  EXPECT_TRUE(finished(write(file, 0, "own")));
  pass(100ms);
  EXPECT_TRUE(dropped());
}

// The answer has been overtaken by a push that names the attributes only.
TEST_F(PagesUnderALease, ThatCameBehindAPushAreNotKept) {
  server.put("a", content(1));
  const Handle file = open("a", O_RDONLY);
  const auto answer = begin_read(file, kFar, 4096);
  std::size_t asked = 0;
  for (; !server.waiting().empty(); ++asked) server.execute(0);
  scheduler.advance(1ms);
  filesystem->handle_pushed(push(server.node_of("a").handle()), [] {});
  server.put("a", content(2));
  for (; asked > 0; --asked) server.deliver();
  EXPECT_TRUE(text_of(finished(answer)) == at_far(1)) << "as of a moment of the call";
  pass(100ms);
  EXPECT_TRUE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

TEST_F(PagesUnderALease, AreDroppedWhenTheServerIsOutOfReachForLongerThanIt) {
  (void)open_and_read();
  lose_contact();
  answers = false;
  pass(7s);
  EXPECT_FALSE(dropped());
  pass(7s);
  EXPECT_TRUE(dropped());
}

TEST_F(PagesUnderALease, StayWhenTheServerIsHeardAgainInTime) {
  const Handle file = open_and_read();
  lose_contact();
  answers = false;
  pass(8s);
  heard = answers = true;
  pass(20s);
  EXPECT_FALSE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(1));
}

TEST_F(PagesUnderALease, EndWhenAllLeasesAreTakenBack) {
  const Handle file = open_and_read();
  server.put("a", content(2));
  schema::Request request;
  request.mutable_invalidate()->set_lease_floor(server.lease + 1);
  server.lease += 1;
  EXPECT_TRUE(take_back(request));
  pass(2s);
  EXPECT_TRUE(dropped());
  EXPECT_TRUE(read(file, kFar, 4096) == at_far(2));
}

// ---------------------------------------------------------------- beside the kernel's pages

TEST_F(PagesUnderALease, ADirectWriteDropsThoseThatReadersHaveBroughtBack) {
  server.put("a", content(1));
  const Handle buffered = open("a", O_RDONLY);
  (void)read(buffered, kFar, 4096);
  const Handle direct = open("a", O_RDWR | O_DIRECT);
  const auto written = write(direct, kFar, std::string(512, 'n'));
  scheduler.hold_notifications();
  EXPECT_FALSE(written->has_value()) << "the kernel has the old page until then";
  scheduler.let_notifications_go();
  EXPECT_TRUE(finished(written));
  ASSERT_EQ(kernel.ranges.size(), 1u);
  EXPECT_EQ(kernel.ranges[0].second, (Interval{kFar, kFar + 512}));
}

TEST_F(PagesUnderALease, ADirectWriteToAFileThatNobodyReadsWaitsForNothing) {
  server.put("a", content(1));
  const Handle direct = open("a", O_RDWR | O_DIRECT);
  (void)read(direct, kFar, 4096);
  EXPECT_TRUE(write(direct, kFar, std::string(512, 'n'))->has_value());
  EXPECT_TRUE(kernel.ranges.empty());
}

// ---------------------------------------------------------------- a file that never stands still

class ReadsOfAHotFile : public Pages<Leased> {
 protected:
  // Somebody writes to it each time that the server has answered.
  void write_on_after_each_answer() {
    for (int i = 0; i < 1000 && server.waiting().empty(); ++i)
      if (!scheduler.run()) return;
    while (!server.waiting().empty()) {
      server.execute(0);
      scheduler.advance(1ms);
      server.put("a", content(++salt));
      filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
      server.deliver();
    }
  }
  int salt = 1;
};

TEST_F(ReadsOfAHotFile, ReturnWhatTheServerHadAndAskOnce) {
  const Handle file = open_and_read();
  for (int i = 0; i < 100; ++i) {
    filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
    const std::uint64_t before = reads();
    const auto answer = begin_read(file, kFar, 4096);
    for (int round = 0; round < 100 && !answer->has_value(); ++round) write_on_after_each_answer();
    ASSERT_TRUE(answer->has_value()) << i;
    const std::string text = text_of(std::move(**answer));
    EXPECT_TRUE(text == at_far(salt) || text == at_far(salt - 1) || text == at_far(salt - 2)) << i;
    EXPECT_LE(reads() - before, 2u) << "the page, and its block ahead";
  }
}

TEST_F(ReadsOfAHotFile, OfSeveralBlocksToo) {
  const Handle file = open_and_read();
  filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
  const auto answer = begin_read(file, 0, 3 * kBlockSize);
  for (int round = 0; round < 100 && !answer->has_value(); ++round) write_on_after_each_answer();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(text_of(std::move(**answer)).size(), 3 * kBlockSize);
}

// The kernel holds the page until the reader has it: a drop that waits for it would take it before the reader
// comes, which asks again.
TEST_F(ReadsOfAHotFile, TakesThePageBehindTheReaderThatWaitsForIt) {
  const Handle file = open_and_read();
  (void)take_back(push_of_change());
  (void)dropped();
  const auto answer = begin_read(file, kFar, 4096);
  server.put("a", content(2));
  filesystem->handle_pushed(push_of_change(), [] {});
  scheduler.run();
  const Interval page{kFar, kFar + 4096};
  EXPECT_THAT(kernel.inodes, testing::IsEmpty());
  EXPECT_THAT(kernel.ranges, testing::ElementsAre(testing::Pair(testing::_, Interval{0, page.begin})));
  ASSERT_EQ(kernel.tails.size(), 1u);
  EXPECT_EQ(kernel.tails[0].second, page.end);
  kernel.ranges.clear();
  EXPECT_TRUE(finished(answer).has_value());
  EXPECT_THAT(kernel.ranges, testing::IsEmpty()) << "the reader comes to it now";
  scheduler.advance(KernelPages::kOnceFor);
  EXPECT_THAT(kernel.ranges, testing::ElementsAre(testing::Pair(testing::_, page)));
}

// Told a new size, the kernel would show the old last page with zeros behind it.
TEST_F(ReadsOfAHotFile, AttributesWaitForPagesThatWerePassedOver) {
  const Handle file = open_and_read();
  (void)take_back(push_of_change());
  (void)dropped();
  const auto answer = begin_read(file, kFar, 4096);
  filesystem->handle_pushed(push_of_change(), [] {});
  scheduler.run();
  kernel.inodes.clear();
  EXPECT_TRUE(attributes(lookup("a").node));
  EXPECT_THAT(kernel.inodes, testing::Not(testing::IsEmpty()));
  (void)finished(answer);
}

TEST_F(ReadsOfAHotFile, AFileThatIsCutMeanwhileEndsWhereItDid) {
  const Handle file = open_and_read();
  filesystem->handle_pushed(push(server.node_of("a").handle(), true), [] {});
  server.put("a", std::string(kFar + 10, 'x'));
  const auto answer = begin_read(file, kFar, 4096);
  for (int round = 0; round < 100 && !answer->has_value(); ++round) write_on_after_each_answer();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(text_of(std::move(**answer)), "xxxxxxxxxx");
}

}  // namespace
}  // namespace tusk::client
