// A server that answers what no correct server would: what a program would act upon is an error instead.
#include "client.h"

namespace tusk::client {
namespace {

// Answers one kind of call by itself, and leaves the others to an honest server.
class LyingServer final : public rpc::Caller {
 public:
  LyingServer(FakeServer& honest, Scheduler& scheduler) : honest_(honest), scheduler_(scheduler) {}

  rpc::CallId call(rpc::CallRequest request, rpc::Completion done) override {
    if (request.message.operation_case() != about) return honest_.call(std::move(request), std::move(done));
    scheduler_.post([lie = lie, done = std::move(done)]() mutable {
      done(rpc::CallReply{std::move(lie), 0});
    });
    return rpc::CallId(~std::uint64_t{0});
  }
  void cancel(rpc::CallId id) override { honest_.cancel(id); }

  schema::Request::OperationCase about = schema::Request::OPERATION_NOT_SET;
  schema::Reply lie;

 private:
  FakeServer& honest_;
  Scheduler& scheduler_;
};

class HostileServerTest : public Client {
 protected:
  HostileServerTest() {
    unmount();
    filesystem =
        std::make_unique<Filesystem>(lying, scheduler, kernel, server.attached(), Filesystem::Options());
    server.put("a", std::string(5000, 'a'));
    server.put("b", std::string(5000, 'b'));
  }
  ~HostileServerTest() override {
    unmount();  // before what it calls
  }

  LyingServer lying{server, scheduler};
};

TEST_F(HostileServerTest, ACopyIsNotLongerThanWhatWasToBeCopied) {
  const Handle from = open("a", O_RDONLY), to = open("b");
  lying.about = schema::Request::kCopyRange;
  const auto copied = [&](std::uint64_t told) {
    lying.lie.mutable_copy_range()->set_copied(told);
    auto answer = new_answer<ByteCount>();
    filesystem->copy_range({}, from, 0, to, 0, 1000, into(answer));
    return finished(answer);
  };
  EXPECT_EQ(copied(1000), 1000u);
  EXPECT_FALSE(copied(1001));
  EXPECT_FALSE(copied(~std::uint64_t{0}));
}

TEST_F(HostileServerTest, DataIsNotFoundBeforeWhereItWasSought) {
  const Handle file = open("a", O_RDONLY);
  lying.about = schema::Request::kSeek;
  const auto found = [&](std::uint64_t told) {
    lying.lie.mutable_seek()->set_offset(told);
    auto answer = new_answer<ByteCount>();
    filesystem->seek({}, file, 4096, 3, into(answer));
    return finished(answer);
  };
  EXPECT_EQ(found(4096), 4096u);
  EXPECT_FALSE(found(4095));
  EXPECT_FALSE(found(0));
}

}  // namespace
}  // namespace tusk::client
