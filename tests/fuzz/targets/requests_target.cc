// The file server before hostile clients: three connections, one of them read-only, ask anything in any
// order, with any body, give leases back or do not, hang up and come again. Every call is answered once,
// within what it may send; nothing outside the export is read or changed, and nothing within by a client that
// may only read.
//
// What it does not do: the network below (connection_target.cc, exchanges_target.cc) and time without end.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fsserver/change_watch.h"
#include "fsserver/file_service.h"
#include "proto/base/check.h"
#include "proto/io/clock.h"
#include "proto/wire/types.h"
#include "tests/fuzz/targets/drawn.h"
#include "tests/fuzz/targets/targets.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/fsserver/fake_call.h"

namespace tusk::fuzz {
namespace {

constexpr std::string_view kSecret = "no client may ever read these words";
constexpr int kCallsMax = 64;
constexpr std::size_t kClients = 3;
constexpr std::size_t kReadOnlyClient = 2;
constexpr std::size_t kBodyMax = 64 << 10;
// For what must wait: a lock, or somebody who does not give a lease back.
constexpr Duration kGlance = 20ms;
constexpr Duration kPatience = 30s;

class SeesEverything final : public server::ChangeWatch {
 public:
  [[nodiscard]] schema::ChangeWatching kind() const override { return schema::WATCH_FANOTIFY; }
  [[nodiscard]] bool watch_node(std::string_view, const server::Status&) override { return true; }
  [[nodiscard]] bool watch_names(std::string_view, const Fd&) override { return true; }
};

// The clients' side of pushes.
class HeldPushes final : public rpc::Outbound {
 public:
  void call(rpc::ConnectionId connection, rpc::CallRequest, rpc::Completion done) override {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(connection, std::move(done));
  }
  void disconnect(rpc::ConnectionId, std::string) override {}
  void answer_all() {
    for (auto& [connection, done] : take([](rpc::ConnectionId) { return true; })) {
      rpc::CallReply reply;
      reply.message.mutable_empty();
      done(std::move(reply));
    }
  }
  // As the network does.
  void fail_those_of(rpc::ConnectionId gone) {
    for (auto& [connection, done] : take([&](rpc::ConnectionId id) { return id == gone; }))
      done(fail(ErrorCode::kConnectionLost, "the client is gone"));
  }

 private:
  using Waiting = std::vector<std::pair<rpc::ConnectionId, rpc::Completion>>;
  template <class Wanted>
  Waiting take(Wanted wanted) {
    Waiting taken, left;
    const std::lock_guard lock(mutex_);
    for (auto& push : waiting_) (wanted(push.first) ? taken : left).push_back(std::move(push));
    waiting_ = std::move(left);
    return taken;
  }
  std::mutex mutex_;
  Waiting waiting_;
};

crypto::Fingerprint key_of(std::size_t client) {
  crypto::Fingerprint key;
  key.bytes.fill(static_cast<std::byte>(client + 1));
  return key;
}

std::shared_ptr<server::Export> open_export(const std::filesystem::path& path, server::Access access,
                                            std::string name) {
  server::ExportSettings settings;
  settings.name = std::move(name);
  settings.path = path;
  settings.access = access;
  for (std::size_t client = 0; client < kClients; ++client) settings.clients.push_back(key_of(client));
  crypto::Secret secret;
  secret.bytes.fill(std::byte{0x5a});
  const auto opened = server::Export::open(settings, secret);
  TUSK_CHECK(opened.has_value());
  return *opened;
}

class HostileClients {
 public:
  explicit HostileClients(std::span<const std::byte> input) : operations_(input), drawn_(operations_) {
    namespace fs = std::filesystem;
    for (const char* name : {"data", "view"}) {
      const fs::path root = folder_ / name;
      fs::create_directories(root / "d" / "e");
      support::write_file(root / "a", std::string(5000, 'x'));
      support::write_file(root / "d" / "b", "small");
      fs::create_symlink("../secret", root / "c");
    }
    support::write_file(folder_ / "secret", kSecret);
    server::FileServiceOptions options;
    options.exports = {open_export(folder_ / "data", server::Access::kReadWrite, "data"),
                       open_export(folder_ / "view", server::Access::kReadOnly, "view")};
    options.server_name = "fuzzed";
    options.workers = 2;
    options.own_housekeeping = false;
    options.watch = [](server::Export&, server::ChangeWatch::Events) {
      return std::make_unique<SeesEverything>();
    };
    service_ = std::make_unique<server::FileService>(std::move(options));
    service_->reach_clients_by(&pushes_);
    for (std::size_t client = 0; client < kClients; ++client) connect(client);
  }

  void run() {
    for (int calls = 0; calls < kCallsMax && !operations_.at_end(); ++calls) {
      const std::uint64_t what = drawn_.below(64);
      const std::size_t client = drawn_.below(kClients);
      if (what == 0) {
        disconnect(client, drawn_.flag());
        connect(client);
      } else if (what == 1) {
        pushes_.answer_all();
      } else if (what == 2) {
        housekeep(std::chrono::seconds(drawn_.below(200)));
      } else if (what == 3 && !pending_.empty()) {
        pending_[drawn_.below(pending_.size())]->cancel();
      } else {
        ask(client, drawn_request(drawn_), drawn_body(), drawn_.below(4) == 0 ? drawn_.number() : kBodyMax);
      }
    }
    end();
  }

 private:
  void connect(std::size_t client) {
    peers_[client] = {rpc::ConnectionId(++last_connection_), key_of(client), "192.0.2.1:1"};
    schema::Request request;
    auto& attach = *request.mutable_attach();
    attach.set_export_name(client == kReadOnlyClient ? "view" : "data");
    attach.set_session(std::string(16, static_cast<char>('0' + client)));
    attach.set_version(server::kSchemaVersion);
    attach.set_client_name("hostile");
    attach.set_leases(true);
    ask(client, request, {}, 0);
  }
  void disconnect(std::size_t client, bool for_good) {
    service_->handle_disconnect(peers_[client], for_good);
    pushes_.fail_those_of(peers_[client].connection);
  }
  void housekeep(Duration later) {
    later_ += later;
    service_->housekeep(io::now() + later_);
  }

  std::string drawn_body() {
    std::string body(drawn_.below(4) == 0 ? drawn_.below(kBodyMax) : drawn_.below(3000), 'b');
    const auto start = operations_.bytes(16);
    std::copy_n(as_text(start).begin(), std::min(start.size(), body.size()), body.begin());
    return body;
  }

  void ask(std::size_t client, const schema::Request& request, std::string_view body,
           std::uint64_t capacity) {
    capacity = std::min<std::uint64_t>(capacity, wire::kMessageBodyMax);
    auto call =
        std::make_unique<server::FakeCall>(peers_[client], request, copy_bytes(as_byte_span(body)), capacity);
    auto pending = call->client();
    service_->handle_call(std::move(call));
    const TimePoint until = io::now() + kGlance;
    while (!pending->answered() && io::now() < until) std::this_thread::sleep_for(20us);
    if (!pending->answered()) return pending_.push_back(std::move(pending));
    look_at(pending->wait(), capacity);
  }

  void look_at(const server::Answer& answer, std::uint64_t capacity) {
    TUSK_CHECK(answer.body.size() <= capacity);
    TUSK_CHECK(answer.reply.ByteSizeLong() <= wire::kMessageHeaderMax);
    TUSK_CHECK(as_text(answer.body.bytes).find(kSecret) == std::string_view::npos);
    TUSK_CHECK(answer.reply.error() == 0 ||
               answer.reply.error() != static_cast<std::uint32_t>(ErrorCode::kInternal));
    const schema::Reply& reply = answer.reply;
    drawn_.learn_handle(reply.attach().root().handle());
    drawn_.learn_handle(reply.node().node().handle());
    drawn_.learn_handle(reply.open().node().handle());
    drawn_.learn_open(reply.open().open_id());
    for (const auto& entry : reply.readdir().entries()) drawn_.learn_handle(entry.node().handle());
    for (const auto& entry : reply.log().replies()) {
      drawn_.learn_handle(entry.node().node().handle());
      drawn_.learn_handle(entry.open().node().handle());
    }
  }

  void end() {
    for (const auto& call : pending_) call->cancel();
    for (std::size_t client = 0; client < kClients; ++client) disconnect(client, false);
    pushes_.answer_all();
    const TimePoint until = io::now() + kPatience;
    for (const auto& call : pending_)
      while (!call->answered()) {
        TUSK_CHECK(io::now() < until);
        housekeep(60s);
        pushes_.answer_all();
        std::this_thread::sleep_for(100us);
      }
    housekeep(std::chrono::hours(1));
    service_->reach_clients_by(nullptr);
    service_.reset();
    TUSK_CHECK(support::read_file(folder_ / "secret") == kSecret);
    TUSK_CHECK(support::read_file(folder_ / "view" / "a") == std::string(5000, 'x'));
    TUSK_CHECK(support::read_file(folder_ / "view" / "d" / "b") == "small");
    const auto below = std::filesystem::recursive_directory_iterator(folder_ / "view");
    TUSK_CHECK(std::distance(begin(below), {}) == 5);
    const auto beside = std::filesystem::directory_iterator(folder_.path());
    TUSK_CHECK(std::distance(begin(beside), {}) == 3);
  }

  Operations operations_;
  Drawn drawn_;
  support::TempDir folder_;
  HeldPushes pushes_;
  std::unique_ptr<server::FileService> service_;
  std::array<rpc::Peer, kClients> peers_;
  std::vector<std::shared_ptr<server::PendingCall>> pending_;
  std::uint64_t last_connection_ = 0;
  Duration later_{};
};

}  // namespace

void run_requests(std::span<const std::byte> input) { HostileClients(input).run(); }

std::vector<Bytes> requests_seeds() {
  std::vector<Bytes> seeds;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) seeds.push_back(random_operations(seed, 1500));
  return seeds;
}

}  // namespace tusk::fuzz
