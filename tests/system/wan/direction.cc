#include "tests/system/wan/direction.h"

#include <cstring>

#include "tests/system/wan/packet.h"

namespace tusk::wan {
namespace {

constexpr std::uint64_t kDamageSeed = 0x6a09e667f3bcc908;  // apart from the link's own streams

// What a full path holds.
ByteCount under_way_when_full(const support::LinkParameters& parameters) {
  const Duration time = parameters.queue_time + parameters.delay + parameters.jitter;
  return static_cast<ByteCount>(static_cast<double>(parameters.rate) / 8 * to_seconds(time)) +
         parameters.queue_bytes;
}

}  // namespace

Direction::Direction(const support::LinkParameters& parameters, std::uint64_t seed,
                     std::size_t packet_size_max, ByteCount memory)
    : link_(parameters, seed),
      damage_(seed ^ kDamageSeed),
      store_(packet_size_max, memory, under_way_when_full(parameters)),
      queue_(store_.capacity()) {}

Direction::Pumped Direction::pump(const ReadClock& now, PacketSource& source, PacketSink& sink) {
  const std::size_t delivered = deliver(now(), sink);
  const std::size_t received = take_in(now, source);
  return {delivered + received, delivered == kBatch || received == kBatch, queue_.next_due()};
}

void Direction::change(TimePoint now, const support::LinkParameters& parameters) {
  queue_.retime(link_.change(now, parameters));
}

DirectionStatistics Direction::statistics(TimePoint now) const {
  DirectionStatistics statistics = statistics_;
  statistics.link = link_.statistics();
  statistics.under_way = queue_.size();
  statistics.bottleneck_free = now + link_.backlog(now);
  return statistics;
}

std::size_t Direction::deliver(TimePoint now, PacketSink& sink) {
  std::size_t delivered = 0;
  while (delivered < kBatch && queue_.next_due() <= now) {
    const std::uint32_t slot = queue_.front().slot;
    queue_.pop();
    const std::span<const std::byte> packet = store_.packet(slot);
    if (sink.send(packet)) {
      ++statistics_.delivered_packets;
      statistics_.delivered_bytes += packet.size();
    } else {
      ++statistics_.refused;
    }
    store_.give_back(slot);
    ++delivered;
  }
  if (delivered == 0) return 0;
  const PacketSink::Refused refused = sink.flush();
  statistics_.delivered_packets -= refused.packets;
  statistics_.delivered_bytes -= refused.bytes;
  statistics_.refused += refused.packets;
  return delivered;
}

std::size_t Direction::take_in(const ReadClock& now, PacketSource& source) {
  std::size_t received = 0;
  while (received < kBatch) {
    const std::uint32_t slot = store_.take();  // dispatch() always leaves one
    const std::size_t size = source.receive(store_.room(slot));
    if (size == 0) {
      store_.give_back(slot);
      break;
    }
    ++received;
    store_.set_size(slot, size);
    dispatch(link_.enqueue(now(), size), slot);
  }
  return received;
}

void Direction::dispatch(const support::Verdict& verdict, std::uint32_t slot) {
  // The last slot only serves to receive into: what needs it to wait in is lost, and counted.
  const bool full = verdict.copies > 0 && store_.available() < verdict.copies;
  if (verdict.copies == 0 || full) {
    statistics_.overflowed += full ? verdict.copies : 0;
    store_.give_back(slot);
    return;
  }
  if (verdict.corrupted) corrupt(store_.packet(slot), damage_);
  if (verdict.congestion_marked) mark_congestion(store_.packet(slot));
  if (verdict.copies == 2) {
    const std::uint32_t twin = store_.take();
    const std::span<const std::byte> packet = store_.packet(slot);
    std::memcpy(store_.room(twin).data(), packet.data(), packet.size());
    store_.set_size(twin, packet.size());
    queue_.push(verdict.deliver_at[1], verdict.departs_at, twin);
  }
  queue_.push(verdict.deliver_at[0], verdict.departs_at, slot);
}

}  // namespace tusk::wan
