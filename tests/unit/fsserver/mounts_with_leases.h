// Two mounts that have leases on one export, and the pushes they get.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "fsserver/change_watch.h"
#include "mount.h"

namespace tusk::server {

// Everything is seen, and nothing happens but what a test says.
class TellTale final : public ChangeWatch {
 public:
  explicit TellTale(Events events) : events_(std::move(events)) {}
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const Status&) override { return true; }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }
  [[nodiscard]] const Events& events() const { return events_; }

 private:
  const Events events_;
};

// The clients' side of pushes: keeps them until the test answers.
class Pushes final : public rpc::Outbound {
 public:
  void call(rpc::ConnectionId connection, rpc::CallRequest request, rpc::Completion done) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({connection, std::move(request.message), std::move(done)});
    changed_.notify_all();
  }
  void disconnect(rpc::ConnectionId connection, std::string) override { cut.push_back(connection); }

  schema::InvalidateRequest wait_for(rpc::ConnectionId connection) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return find(connection) != nullptr; }));
    const Push* const push = find(connection);
    return push == nullptr ? schema::InvalidateRequest() : push->request.invalidate();
  }
  // Of exclusiveness.
  schema::InvalidateRequest wait_for_recall(rpc::ConnectionId connection) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return find(connection, true) != nullptr; }));
    const Push* const push = find(connection, true);
    return push == nullptr ? schema::InvalidateRequest() : push->request.invalidate();
  }
  void answer_all() {
    answer_if([](const Push&) { return true; });
  }
  // Those that were sent over one connection.
  void answer(rpc::ConnectionId connection) {
    answer_if([connection](const Push& push) { return push.connection == connection; });
  }
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

  std::vector<rpc::ConnectionId> cut;

 private:
  struct Push {
    rpc::ConnectionId connection;
    schema::Request request;
    rpc::Completion done;
  };
  void answer_if(const std::function<bool(const Push&)>& wanted) {
    std::vector<Push> pushes;
    {
      const std::lock_guard lock(mutex_);
      const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), std::not_fn(wanted));
      std::move(first, waiting_.end(), std::back_inserter(pushes));
      waiting_.erase(first, waiting_.end());
    }
    for (Push& push : pushes) {
      rpc::CallReply reply;
      reply.message.mutable_empty();
      push.done(std::move(reply));
    }
  }
  const Push* find(rpc::ConnectionId connection, bool recall = false) const {
    for (const Push& push : waiting_)
      if (push.connection == connection && push.request.has_invalidate() &&
          (!recall || push.request.invalidate().exclusive_over() != 0))
        return &push;
    return nullptr;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Push> waiting_;
};

class MountsWithLeases : public testing::Test {
 protected:
  explicit MountsWithLeases(LeaseLimits limits = {.room_bytes = 0, .room_files = 0})
      : server(dir.path(), {.watch =
                                [this](Export&, ChangeWatch::Events events) {
                                  auto made = std::make_unique<TellTale>(std::move(events));
                                  watch = made.get();
                                  return made;
                                },
                            .leases = limits}) {
    write_file(dir / "file", "one");
    std::filesystem::create_directory(dir / "sub");
    server.service().reach_clients_by(&pushes);
    reader.emplace(server, MountSetup{.session = std::string(kSessionIdBytes, 'r'), .leases = true});
    writer.emplace(server, MountSetup{.session = std::string(kSessionIdBytes, 'w'), .leases = true});
  }
  ~MountsWithLeases() override {
    server.service().reach_clients_by(nullptr);
    pushes.answer_all();
  }

  TempDir dir;
  Pushes pushes;
  TellTale* watch = nullptr;
  Server server;
  std::optional<Mount> reader;
  std::optional<Mount> writer;
};

}  // namespace tusk::server
