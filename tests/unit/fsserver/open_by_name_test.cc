// LOOKUPs that open what they find.
#include <csignal>

#include "mount.h"

namespace tusk::server {
namespace {

constexpr std::uint64_t kId = kClientOpenIdMin + 5;
constexpr std::size_t kAbove = 1000;

class OpenByName : public testing::Test {
 protected:
  OpenByName() {
    write_file(dir_ / "large", std::string(kAbove + 1, 'x'));
    write_file(dir_ / "small", std::string(kAbove, 'x'));
    std::filesystem::create_directory(dir_ / "directory");
  }
  // Whether it was opened.
  bool look(std::string_view name, std::uint64_t id = kId) {
    const Answer answer = mount_.call(lookup(name, id));
    EXPECT_OK(answer);
    return answer.reply.node().opened();
  }
  schema::Request lookup(std::string_view name, std::uint64_t id = kId) {
    schema::Request request;
    request.mutable_lookup()->set_parent(mount_.root());
    request.mutable_lookup()->set_name(std::string(name));
    request.mutable_lookup()->set_open_id(id);
    request.mutable_lookup()->set_open_above(kAbove);
    return request;
  }
  std::size_t open_files() { return server_.service().clients().at(0).open_files; }

  TempDir dir_;
  Server server_{dir_.path(), ServerSetup{.client_descriptors_max = 8}};
  Mount mount_{server_};
};

TEST_F(OpenByName, IsReadAndClosedLikeAnyOther) {
  EXPECT_TRUE(look("large"));
  EXPECT_EQ(open_files(), 1u);
  const std::string handle = mount_.handle("large");
  std::filesystem::remove(dir_ / "large");
  EXPECT_EQ(mount_.read(handle, kId, 0, 10).text(), "xxxxxxxxxx");
  EXPECT_OK(mount_.close(kId));
  EXPECT_EQ(open_files(), 0u);
}

TEST_F(OpenByName, IsForLargeFilesOnly) {
  EXPECT_FALSE(look("small"));
  EXPECT_FALSE(look("directory"));
  EXPECT_FALSE(mount_.lookup(mount_.root(), "large").reply.node().opened()) << "nobody asked";
  EXPECT_EQ(open_files(), 0u);
}

TEST_F(OpenByName, IsDoneOnceIfItIsAskedTwice) {
  EXPECT_TRUE(look("large"));
  EXPECT_TRUE(look("large"));
  EXPECT_EQ(open_files(), 1u);
}

TEST_F(OpenByName, DoesNotTakeAnIdThatIsAnothersOrTheServers) {
  write_file(dir_ / "other", std::string(kAbove + 1, 'y'));
  EXPECT_TRUE(look("large"));
  EXPECT_FALSE(look("other"));
  EXPECT_FALSE(look("other", 5));
  EXPECT_EQ(mount_.read(mount_.handle("large"), kId, 0, 1).text(), "x");
}

TEST_F(OpenByName, LeavesHalfOfTheDescriptorsForOpens) {
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(look("large", kId + i));
  EXPECT_FALSE(look("large", kId + 4));
  EXPECT_OK(mount_.open(mount_.handle("large")));
}

TEST_F(OpenByName, DoesNotWaitForProgramsThatHoldALeaseOnTheFile) {
  const Fd file(::open((dir_ / "large").c_str(), O_RDWR | O_CLOEXEC));
  ::signal(SIGIO, SIG_IGN);
  if (::fcntl(file.number(), F_SETLEASE, F_WRLCK) != 0)
    GTEST_SKIP() << "skipped, because there are no leases on files here";
  EXPECT_FALSE(look("large"));
  ::fcntl(file.number(), F_SETLEASE, F_UNLCK);
  EXPECT_TRUE(look("large"));
}

// Whoever repeats it on a new connection does not lose what the late one finds opened.
TEST_F(OpenByName, OfAnotherCallIsNotClosedByOneThatWasGivenUp) {
  EXPECT_TRUE(look("large"));
  const auto late = mount_.start(lookup("large"));
  late->cancel();
  (void)late->wait();
  EXPECT_TRUE(server_.service().drain(20s));
  EXPECT_EQ(open_files(), 1u);
}

}  // namespace
}  // namespace tusk::server
