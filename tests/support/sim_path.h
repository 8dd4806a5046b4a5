// The path between two simulated peers: a Link for each direction, the datagrams under way on them, and
// a place for tests to meddle. Virtual time is an argument; all chance comes from the seed.
//
// It does not know what datagrams mean: sim_pair.h sends plaintext packets over it, sim_secure_pair.h
// sealed ones.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "proto/transport/exchanges.h"
#include "proto/wire/types.h"
#include "tests/support/link/link.h"

namespace tusk::support {

using transport::Role;

[[nodiscard]] constexpr Role other(Role role) {
  return role == Role::kClient ? Role::kServer : Role::kClient;
}

// Where the client sends from, as the server sees it. The simulated server has just one address.
using SimAddress = std::uint64_t;

class SimPath {
 public:
  static constexpr std::uint32_t kIpOverhead = 28;  // IPv4 and UDP headers

  struct Options {
    LinkParameters to_server;
    LinkParameters to_client;
    std::uint32_t mtu = 1500;      // larger IP packets vanish
    bool deliver_damaged = false;  // with a flipped bit; else damaged datagrams are dropped
  };

  struct Arrival {
    Role receiver = Role::kClient;
    SimAddress address = 0;      // source when the server receives, destination when the client does
    std::uint32_t size = 0;      // bytes of the datagram on the wire
    bool marked = false;         // ECN CE
    std::span<std::byte> bytes;  // until the next call of a non-const member; may be overwritten
  };

  // What the packets of several paths can have in common: the bottleneck of each direction, by receiver.
  using Links = std::array<Link, 2>;

  // Sees a datagram before it meets the link, may change its bytes; false: it is dropped.
  using Sieve = std::function<bool(std::span<std::byte> datagram)>;

  [[nodiscard]] static std::shared_ptr<Links> make_links(const Options& options, std::uint64_t seed);
  SimPath(const Options& options, std::uint64_t seed, std::shared_ptr<Links> links);

  // `size`: what the datagram takes on the wire, which need not be its bytes' number.
  void send(TimePoint now, Role receiver, std::span<std::byte> bytes, std::uint32_t size, SimAddress address);
  // As above, but without asking the sieves: what an attacker sends.
  void inject(TimePoint now, Role receiver, std::span<const std::byte> bytes, std::uint32_t size,
              SimAddress address);

  [[nodiscard]] TimePoint next_arrival() const { return flights_.empty() ? kNever : flights_.front().at; }
  // What has arrived by `now`, in order.
  [[nodiscard]] std::optional<Arrival> poll_arrival(TimePoint now);

  // Sieves stay for good; each sees what the earlier ones let through.
  void add_sieve(Role receiver, Sieve sieve) { sieves_[index(receiver)].push_back(std::move(sieve)); }
  void change(TimePoint now, const LinkParameters& to_server, const LinkParameters& to_client);
  // The link to `receiver` was changed: what stands in its queue leaves at another time.
  void retime(Role receiver, const Retiming& retiming);
  void change_mtu(std::uint32_t mtu) { mtu_ = mtu; }

  [[nodiscard]] const LinkParameters& parameters(Role receiver) const {
    return (*links_)[index(receiver)].parameters();
  }
  [[nodiscard]] const LinkStatistics& statistics(Role receiver) const {
    return (*links_)[index(receiver)].statistics();
  }
  [[nodiscard]] Link& link(Role receiver) { return (*links_)[index(receiver)]; }
  [[nodiscard]] std::uint64_t too_large() const { return too_large_; }
  [[nodiscard]] std::size_t under_way() const { return flights_.size(); }

 private:
  struct Flight {
    TimePoint at;
    std::uint64_t order;  // ties keep their order
    TimePoint departs_at;
    SimAddress address;
    std::uint32_t size;
    std::uint32_t buffer;
    Role receiver;
    bool marked;
    bool damaged;
    // The heap's top is the least.
    bool operator<(const Flight& b) const { return at != b.at ? at > b.at : order > b.order; }
  };
  struct Buffer {
    std::vector<std::byte> bytes;
    std::uint32_t flights = 0;
  };

  static constexpr std::size_t index(Role role) { return static_cast<std::size_t>(role); }
  [[nodiscard]] std::uint32_t take_buffer();
  void release(std::uint32_t buffer);

  const std::shared_ptr<Links> links_;
  Random damage_;
  std::uint32_t mtu_;
  const bool deliver_damaged_;
  std::array<std::vector<Sieve>, 2> sieves_;
  std::vector<Flight> flights_;  // a heap
  std::uint64_t order_ = 0;
  std::uint64_t too_large_ = 0;

  std::vector<Buffer> buffers_;
  std::vector<std::uint32_t> free_buffers_;
  std::optional<std::uint32_t> handed_out_;  // the buffer of the last Arrival
  std::vector<std::byte> copy_;              // the last Arrival, when another copy is still under way
};

}  // namespace tusk::support
