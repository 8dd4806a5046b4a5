#include "proto/rpc/first_flights.h"

#include <algorithm>
#include <utility>

namespace tusk::rpc {

bool FirstFlights::add(Proof proof, std::size_t socket, const io::Datagram& datagram,
                       const wire::ConnectionIdBytes& original, TimePoint now) {
  if (datagram.bytes.size() > kBytesMax) return false;
  Kind& kind = kinds_[static_cast<std::size_t>(proof)];
  const Source source(datagram.from);
  auto found = kind.waiting.find(source);
  if (found != kind.waiting.end()) {
    const auto same = [&](const FirstFlight& flight) {
      return flight.original == original && flight.from == datagram.from;
    };
    if (std::ranges::any_of(found->second, same)) return true;
    if (found->second.size() >= kOfSourceMax) return false;
  } else {
    if (kind.waiting.size() >= kSourcesMax) make_place(kind);
    found = kind.waiting.emplace(source, std::deque<FirstFlight>()).first;
    kind.turns.push_back(source);
  }
  found->second.push_back({socket,
                           datagram.from,
                           datagram.local,
                           {datagram.bytes.begin(), datagram.bytes.end()},
                           datagram.ecn,
                           original,
                           now});
  ++count_;
  return true;
}

// Any source: whoever holds many addresses holds most places, and loses most of them.
void FirstFlights::make_place(Kind& kind) {
  const auto turn = kind.turns.begin() + static_cast<std::ptrdiff_t>(random_.below(kind.turns.size()));
  const auto victim = kind.waiting.find(*turn);
  count_ -= victim->second.size();
  kind.waiting.erase(victim);
  kind.turns.erase(turn);
}

std::optional<FirstFlight> FirstFlights::next_of(Kind& kind, TimePoint now) {
  while (!kind.turns.empty()) {
    const Source source = kind.turns.front();
    kind.turns.pop_front();
    const auto found = kind.waiting.find(source);
    FirstFlight flight = std::move(found->second.front());
    found->second.pop_front();
    --count_;
    if (found->second.empty()) {
      kind.waiting.erase(found);
    } else {
      kind.turns.push_back(source);
    }
    if (now - flight.arrived <= kAgeMax) return flight;
  }
  return std::nullopt;
}

std::optional<FirstFlights::Next> FirstFlights::next(TimePoint now) {
  for (std::size_t i = 0; i < kProofs; ++i) {
    const std::size_t which = std::exchange(turn_, (turn_ + 1) % kProofs);
    if (auto flight = next_of(kinds_[which], now)) return Next{static_cast<Proof>(which), std::move(*flight)};
  }
  return std::nullopt;
}

void FirstFlights::clear() {
  for (Kind& kind : kinds_) kind = {};
  count_ = 0;
}

}  // namespace tusk::rpc
