// First flights that wait for a handshake. A handshake costs a millisecond and a flight costs its sender
// nothing, so they take turns: first the kinds of proof, then the sources of each kind. A source has a few
// places, and so has each kind; what finds none is dropped, and its client sends it again.
//
// Pure. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/source.h"
#include "proto/wire/types.h"

namespace tusk::rpc {

struct FirstFlight {
  std::size_t socket = 0;
  io::Address from;
  io::Address local;
  std::vector<std::byte> bytes;
  std::uint8_t ecn = 0;
  wire::ConnectionIdBytes original;
  TimePoint arrived;
};

class FirstFlights {
 public:
  static constexpr std::size_t kOfSourceMax = 8;
  static constexpr std::size_t kSourcesMax = 64;  // of each kind
  static constexpr std::size_t kBytesMax =
      1500;  // clients fill theirs to 1232 (docs/PROTOCOL.md, "Handshake")
  // A client has sent it again by then.
  static constexpr Duration kAgeMax = 2s;

  explicit FirstFlights(std::uint64_t seed) : random_(seed) {}

  // False: there is no place for it, or it is too large. True also for a repetition of one that waits.
  [[nodiscard]] bool add(Proof proof, std::size_t socket, const io::Datagram& datagram,
                         const wire::ConnectionIdBytes& original, TimePoint now);
  struct Next {
    Proof proof;
    FirstFlight flight;
  };
  // The one whose turn it is.
  [[nodiscard]] std::optional<Next> next(TimePoint now);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t count() const { return count_; }
  void clear();

 private:
  struct Kind {
    std::map<Source, std::deque<FirstFlight>> waiting;
    std::deque<Source> turns;  // each source that has one waiting, once
  };

  void make_place(Kind& kind);
  [[nodiscard]] std::optional<FirstFlight> next_of(Kind& kind, TimePoint now);

  std::array<Kind, kProofs> kinds_;
  std::size_t turn_ = 0;  // of the kinds
  std::size_t count_ = 0;
  Random random_;
};

}  // namespace tusk::rpc
