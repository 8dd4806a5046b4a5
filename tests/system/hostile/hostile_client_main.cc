// hostile_client MODE URL SECONDS COUNT [NAME]: what a holder of a token can do to others, for tests.
//
//   walk         COUNT connections ask for WALKs of NAME that take much work and answer nothing, on and on
//   early-logs   COUNT sessions send LOGs whose turn never comes, as many as they may
//   sessions     COUNT sessions that attach and say nothing more
//   descriptors  opens NAME COUNT times with each of many keys
//
// It prints one line, "ready ...", when it has done what it can, goes on for SECONDS, says goodbye and prints
// what came of it. Each connection has a key of its own.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "hostile_client.h"
#include "proto/io/clock.h"

namespace tusk::hostile {
namespace {

constexpr int kWalksUnanswered = 64;  // of each connection
constexpr std::uint64_t kFirstEarlyLog = 100;
constexpr std::size_t kEarlyLogBytes = 4 << 20;
constexpr int kEarlyLogs = 15;  // of each session
constexpr long kOpensUnanswered = 256;
constexpr int kKeys = 20;

struct Arguments {
  std::string mode;
  rpc::MountUrl url;
  Duration time;
  long count;
  std::string name;
};

class Attack {
 public:
  explicit Attack(const Arguments& arguments) : arguments_(arguments) {}

  int carry_out() {
    if (arguments_.mode == "walk") return walk();
    if (arguments_.mode == "early-logs") return early_logs();
    if (arguments_.mode == "sessions") return sessions();
    if (arguments_.mode == "descriptors") return descriptors();
    std::fprintf(stderr, "hostile_client: no such mode\n");
    return EXIT_FAILURE;
  }

 private:
  // nullptr: it was refused.
  Client* enter() {
    identities_.push_back(std::make_unique<crypto::Identity>(*crypto::Identity::generate()));
    clients_.push_back(std::make_unique<Client>(*identities_.back(), arguments_.url));
    const auto error = clients_.back()->attach();
    if (error == 0u) return clients_.back().get();
    ++refused_;
    return nullptr;
  }

  void ready(std::string_view what) {
    std::printf("ready %s, refused %zu\n", std::string(what).c_str(), refused_);
  }

  int finish() {
    std::size_t answers = 0;
    std::size_t cut = 0;
    for (const auto& client : clients_) {
      answers += client->answers();
      cut += client->closed() ? 1 : 0;
      if (!client->closed()) client->leave();
    }
    std::printf("answers %zu, cut %zu, refused %zu\n", answers, cut, refused_);
    return EXIT_SUCCESS;
  }

  // The server lists a whole directory to see whether it is one that the client has, and it is not.
  static void ask_for_walk(Client& client, const std::string& directory) {
    schema::Request request;
    schema::WalkRequest& walk = *request.mutable_walk();
    walk.add_starts()->set_handle(directory);
    walk.set_limit_bytes(1);
    walk.set_digests(true);
    walk.add_known(1);
    client.ask(
        request, [&client, directory](const schema::Reply&) { ask_for_walk(client, directory); }, 65'536);
  }

  int walk() {
    for (long i = 0; i < arguments_.count; ++i) {
      Client* const client = enter();
      if (client == nullptr) continue;
      const std::string directory = client->lookup(arguments_.name);
      if (directory.empty()) return EXIT_FAILURE;
      for (int each = 0; each < kWalksUnanswered; ++each) ask_for_walk(*client, directory);
    }
    ready("walks");
    run(
        all_of(clients_), [] { return false; }, arguments_.time);
    return finish();
  }

  int early_logs() {
    const SharedBytes bytes = [] {
      const MutableSharedBytes memory = allocate_bytes(kEarlyLogBytes);
      return memory.first(memory.size());
    }();
    for (long i = 0; i < arguments_.count; ++i) {
      Client* const client = enter();
      if (client == nullptr) continue;
      for (int each = 0; each < kEarlyLogs; ++each) {
        schema::Request request;
        request.mutable_log()->set_number(kFirstEarlyLog + static_cast<unsigned>(each));
        const auto note = [this](const schema::Reply& reply) { refused_ += reply.error() != 0 ? 1 : 0; };
        client->ask(request, note, 0, bytes);
      }
      run(
          all_of(clients_), [] { return false; }, 100ms);
    }
    ready("logs");
    run(
        all_of(clients_), [] { return false; }, arguments_.time);
    return finish();
  }

  int sessions() {
    std::size_t made = 0;
    for (long i = 0; i < arguments_.count && refused_ < 20; ++i) made += enter() != nullptr ? 1 : 0;
    ready("sessions " + std::to_string(made));
    run(
        all_of(clients_), [] { return false; }, arguments_.time);
    return finish();
  }

  int descriptors() {
    long opened = 0;
    for (int key = 0; key < kKeys; ++key) {
      Client* const client = enter();
      if (client == nullptr) continue;
      opened += open_many(*client);
    }
    ready("descriptors " + std::to_string(opened));
    run(
        all_of(clients_), [] { return false; }, arguments_.time);
    return finish();
  }

  long open_many(Client& client) {
    schema::Request request;
    request.mutable_open()->set_handle(client.lookup(arguments_.name));
    long opened = 0;
    long left = arguments_.count;
    long under_way = 0;
    bool full = false;
    const auto note = [&](const schema::Reply& reply) {
      --under_way;
      full = full || reply.error() != 0;
      opened += reply.error() == 0 ? 1 : 0;
    };
    run(
        {&client},
        [&] {
          for (; left > 0 && under_way < kOpensUnanswered && !full; --left, ++under_way)
            client.ask(request, note);
          return under_way == 0;
        },
        30s);
    refused_ += full ? 1 : 0;
    return opened;
  }

  const Arguments& arguments_;
  std::vector<std::unique_ptr<crypto::Identity>> identities_;
  Clients clients_;
  std::size_t refused_ = 0;
};

}  // namespace
}  // namespace tusk::hostile

int main(int argc, char** argv) {
  using namespace tusk;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() < 5) {
    std::fprintf(stderr, "usage: hostile_client MODE URL SECONDS COUNT [NAME]\n");
    return EXIT_FAILURE;
  }
  auto url = rpc::MountUrl::parse(words[2]);
  if (!url) {
    std::fprintf(stderr, "hostile_client: %s\n", url.error().message().c_str());
    return EXIT_FAILURE;
  }
  const hostile::Arguments arguments{.mode = words[1],
                                     .url = std::move(*url),
                                     .time = std::chrono::seconds(std::atol(words[3])),
                                     .count = std::atol(words[4]),
                                     .name = words.size() > 5 ? words[5] : ""};
  return hostile::Attack(arguments).carry_out();
}
