#include "tests/support/sim_network.h"

#include <algorithm>
#include <numeric>

namespace tusk::support {

SimNetwork::SimNetwork(SimOptions options) : options_(std::move(options)) {
  options_.links = SimPath::make_links(options_.path, options_.seed);
}

SimPair& SimNetwork::join(transport::CongestionKind congestion) {
  SimOptions options = options_;
  options.begin = elapsed();
  options.seed += 2 * pairs_.size() + 2;
  options.connection.congestion = congestion;
  SimPair& pair = *pairs_.emplace_back(std::make_unique<SimPair>(options));
  if (receivers_) pair.server().meet(receivers_);
  if (senders_) pair.server().tell_peer_of(senders_);
  mounts_.push_back(&pair);
  return pair;
}

SimPair& SimNetwork::join_mount_of(const SimPair& first) {
  SimPair& pair = join();
  mounts_.back() = &first;
  const auto flows = static_cast<std::uint64_t>(std::ranges::count(mounts_, &first));
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (mounts_[i] == &first) pairs_[i]->client().share_with(flows);
  return pair;
}

void SimNetwork::change_links(const std::function<void(LinkParameters&, LinkParameters&)>& edit) {
  LinkParameters to_server = link(Role::kServer).parameters();
  LinkParameters to_client = link(Role::kClient).parameters();
  edit(to_server, to_client);
  for (const auto& [receiver, parameters] :
       {std::pair{Role::kServer, to_server}, std::pair{Role::kClient, to_client}}) {
    const Retiming retiming = link(receiver).change(now_, parameters);
    for (const auto& pair : pairs_) pair->path().retime(receiver, retiming);
  }
}

void SimNetwork::run_for(Duration duration, Duration interval, const std::function<void()>& sample) {
  const TimePoint end = now_ + duration;
  while (now_ < end) {
    run_to(end - now_ <= interval ? end : now_ + interval);
    if (sample) sample();
  }
}

// The link wants its packets in order of time: the pair to which something happens first goes first.
void SimNetwork::run_to(TimePoint end) {
  std::vector<TimePoint> next;
  for (const auto& pair : pairs_) next.push_back(pair->next_event());
  while (!next.empty()) {
    const auto first = std::ranges::min_element(next);
    if (*first > end) break;
    SimPair& pair = *pairs_[static_cast<std::size_t>(first - next.begin())];
    pair.step(end);
    *first = pair.next_event();
  }
  now_ = end;
  for (const auto& pair : pairs_) pair->advance(end);
}

Shares::Shares(const SimNetwork& network, Role receiver, Of of)
    : network_(network), receiver_(receiver), of_(of), since_(network.now()) {
  for (const auto& pair : network.pairs()) received_.push_back(received(*pair));
}

ByteCount Shares::received(SimPair& pair) const {
  const transport::ConnectionStats stats = pair.connection(receiver_)->stats();
  return of_ == Of::kBodies ? stats.body_bytes_received : stats.bytes_received;
}

std::vector<double> Shares::rates() const {
  std::vector<double> rates;
  const double seconds = to_seconds(network_.now() - since_);
  for (std::size_t i = 0; i < received_.size(); ++i)
    rates.push_back(static_cast<double>(received(*network_.pairs()[i]) - received_[i]) * 8 / seconds);
  return rates;
}

std::vector<double> Shares::rates_of_mounts() const {
  const std::vector<double> all = rates();
  std::vector<double> mounts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SimPair* const mount = &network_.mount_of(i);
    if (mount != network_.pairs()[i].get()) continue;
    mounts.push_back(0);
    for (std::size_t j = i; j < all.size(); ++j)
      if (&network_.mount_of(j) == mount) mounts.back() += all[j];
  }
  return mounts;
}

double jain_index(const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double squares = std::inner_product(shares.begin(), shares.end(), shares.begin(), 0.0);
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 0;
}

}  // namespace tusk::support
