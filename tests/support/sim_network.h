// Several pairs behind one bottleneck in virtual time: how flows share a line.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "proto/transport/siblings.h"
#include "tests/support/sim_pair.h"

namespace tusk::support {

class SimNetwork {
 public:
  // The line that all share; what a flow does not say otherwise.
  explicit SimNetwork(SimOptions options);

  // The mount of a pair: its first one.
  [[nodiscard]] const SimPair& mount_of(std::size_t pair) const { return *mounts_[pair]; }

  // The servers of all pairs that join from now on are one process, and the clients one host.
  void serve_from_one() {
    receivers_ = std::make_shared<transport::Siblings>();
    senders_ = std::make_shared<transport::Siblings>();
  }

  // A pair of peers that comes into being now.
  SimPair& join(transport::CongestionKind congestion = transport::CongestionKind::kModel);
  // A further one of the mount that `first` belongs to: together they are to have what one would have.
  SimPair& join_mount_of(const SimPair& first);
  [[nodiscard]] const std::vector<std::unique_ptr<SimPair>>& pairs() const { return pairs_; }

  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] Duration elapsed() const { return now_ - TimePoint(); }
  [[nodiscard]] Link& link(Role receiver) { return (*options_.links)[static_cast<std::size_t>(receiver)]; }
  void change_links(const std::function<void(LinkParameters& to_server, LinkParameters& to_client)>& edit);

  // Runs for so long, and calls `sample`, if there is one, every `interval`.
  void run_for(Duration duration, Duration interval = Duration::max(),
               const std::function<void()>& sample = nullptr);

 private:
  void run_to(TimePoint end);

  SimOptions options_;
  TimePoint now_{};
  std::vector<std::unique_ptr<SimPair>> pairs_;
  std::shared_ptr<transport::Siblings> receivers_, senders_;
  std::vector<const SimPair*> mounts_;  // to which each belongs: its first pair
};

// What each of several flows got of the line in a stretch of time.
class Shares {
 public:
  // Datagrams are what it takes of the line; bodies what comes of it, without headers, repeats and parity.
  enum class Of : std::uint8_t { kDatagrams, kBodies };
  // From now on, of what `receiver` gets: the client, if they fetch.
  explicit Shares(const SimNetwork& network, transport::Role receiver = transport::Role::kClient,
                  Of of = Of::kDatagrams);
  // Bit/s of each pair since then, in the order they joined; those that joined later are not among them.
  [[nodiscard]] std::vector<double> rates() const;
  // The same of mounts, in the order of their first pairs.
  [[nodiscard]] std::vector<double> rates_of_mounts() const;

 private:
  [[nodiscard]] ByteCount received(SimPair& pair) const;

  const SimNetwork& network_;
  const transport::Role receiver_;
  const Of of_;
  const TimePoint since_;
  std::vector<ByteCount> received_;
};

// (sum x)^2 / (n sum x^2), Jain, Chiu and Hawe 1984: 1 is equal, 1/n is one for all.
[[nodiscard]] double jain_index(const std::vector<double>& shares);

}  // namespace tusk::support
