// The programs above two simulated connections: one asks, the other answers, and everything that
// arrives is compared with what was sent. Either side may ask.
//
// Finds out what a user would notice: wrong bytes, answers to nothing, requests that happen twice.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "proto/transport/connection.h"

namespace tusk::support {

class SimTraffic {
 public:
  using Priority = wire::Priority;
  using Role = transport::Role;
  using Done = std::function<void()>;
  // Runs an action after a while of virtual time.
  using Later = std::function<void(Duration, std::function<void()>)>;
  using Now = std::function<TimePoint()>;

  static constexpr std::size_t kHeaderMin = 17;
  static constexpr std::size_t kHeaderUsual = 40;  // about what a READ takes

  enum class Kind : std::uint8_t { kFetch = 1, kStore = 2 };
  struct Call {
    Kind kind = Kind::kFetch;
    ByteCount size = 0;  // of the body, at most wire::kMessageBodyMax
    Priority priority = Priority::kBulk;
    std::size_t header_size = kHeaderUsual;  // of request and reply
    Role caller = Role::kClient;
    Done done = {};  // when the answer is there or the call was cancelled
  };

  SimTraffic(std::uint64_t seed, Now now, Later later);

  // The connection of one side; needed before its first call.
  void attach(Role side, transport::Connection& connection) { connections_[index(side)] = &connection; }
  [[nodiscard]] bool attached() const { return connections_[0] && connections_[1]; }

  wire::ExchangeId call(Call call);
  // Keeps `window` bytes of 1 MiB fetches (or stores) in flight until `total` bytes are done.
  void stream(ByteCount total, ByteCount window, Kind kind);
  // Gives up the oldest call in flight, or a random one.
  void cancel_oldest();
  void cancel_random(Random& random);
  // How long a side thinks before it answers; 0: it answers at once.
  void think(Duration duration) { thinking_ = duration; }

  void handle_event(Role side, transport::Event& event);

  [[nodiscard]] bool idle() const { return pending_.empty() && streams_left() == 0; }
  [[nodiscard]] ByteCount bytes_done() const { return bytes_done_; }
  [[nodiscard]] std::uint64_t calls_done() const { return calls_done_; }
  [[nodiscard]] std::uint64_t calls_cancelled() const { return calls_cancelled_; }
  [[nodiscard]] std::size_t calls_open() const { return pending_.size(); }
  // The most bytes of requests and replies that were asked for and not answered at one time.
  [[nodiscard]] ByteCount asked_max() const { return asked_max_; }
  [[nodiscard]] std::uint64_t cancellations_seen() const { return cancellations_seen_; }
  [[nodiscard]] Duration interactive_latency_max() const { return interactive_latency_max_; }
  [[nodiscard]] std::uint64_t content_errors() const { return content_errors_; }

  struct SeenClosed {
    Role side;
    ErrorCode code;
    std::string reason;
  };
  [[nodiscard]] const std::vector<SeenClosed>& closed() const { return closed_; }
  [[nodiscard]] bool path_validated() const { return path_validated_; }
  [[nodiscard]] const std::vector<std::byte>& address_token() const { return address_token_; }

  // One sentence for each thing that must never be; empty: all is well.
  [[nodiscard]] std::vector<std::string> complaints() const;

 private:
  struct Pending {
    Kind kind;
    ByteCount size;
    std::uint64_t content;
    std::size_t header_size;
    Priority priority;
    Role caller;
    TimePoint asked_at;
    MutableSharedBytes place;
    Done done;
    [[nodiscard]] ByteCount bytes() const { return size + 2 * header_size; }
  };
  struct Stream {
    ByteCount left;
    ByteCount window;
    ByteCount in_flight;
    Kind kind;
  };

  static constexpr std::size_t index(Role role) { return static_cast<std::size_t>(role); }
  [[nodiscard]] transport::Connection& connection(Role side) { return *connections_[index(side)]; }
  [[nodiscard]] ByteCount streams_left() const;
  void top_up();
  void cancel(std::unordered_map<wire::ExchangeId, Pending>::iterator pending);
  void answer(Role side, const transport::RequestArrived& request);
  void finish(const transport::ReplyArrived& reply);
  void wrong(std::string what);

  Random random_;
  Now now_;
  Later later_;
  std::array<transport::Connection*, 2> connections_{};
  SharedBytes content_;
  std::unordered_map<wire::ExchangeId, Pending> pending_;
  std::unordered_set<wire::ExchangeId> served_;
  std::vector<Stream> streams_;
  Duration thinking_{0};

  ByteCount asked_ = 0;
  ByteCount asked_max_ = 0;
  ByteCount bytes_done_ = 0;
  std::uint64_t calls_done_ = 0;
  std::uint64_t calls_cancelled_ = 0;
  std::uint64_t cancellations_seen_ = 0;
  std::uint64_t content_errors_ = 0;
  Duration interactive_latency_max_{0};
  std::vector<SeenClosed> closed_;
  bool path_validated_ = false;
  std::vector<std::byte> address_token_;
  std::vector<std::string> wrongs_;
};

}  // namespace tusk::support
