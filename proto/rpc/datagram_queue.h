// Gathers outgoing datagrams into runs of equal size for one peer, which the socket sends as one
// (GSO), and keeps what the socket could not take yet.
//
// One network thread. Owns one arena: when it is full, or nothing more is to be sent, it is flushed.
#pragma once

#include <cerrno>
#include <functional>
#include <span>
#include <vector>

#include "proto/base/check.h"
#include "proto/io/udp_socket.h"
#include "proto/wire/types.h"

namespace tusk::rpc {

class DatagramQueue {
 public:
  // Enough for several full GSO runs a system call; small enough to stay in the processor's cache.
  static constexpr std::size_t kArenaBytes = 512 << 10;

  DatagramQueue() : arena_(kArenaBytes) {}

  // Where the next datagram goes; at least wire::kDatagramSizeMax bytes. Only while has_room().
  [[nodiscard]] std::span<std::byte> space() { return std::span(arena_).subspan(used_); }
  [[nodiscard]] bool has_room() const { return kArenaBytes - used_ >= wire::kDatagramSizeMax; }
  [[nodiscard]] bool empty() const { return runs_.empty(); }

  // The first `size` bytes of space() are a datagram. `alone`: not to be part of a run.
  void commit(std::size_t size, const io::Address& to, const io::Address& local, bool alone) {
    TUSK_CHECK(size <= arena_.size() - used_);
    Run* last = runs_.empty() ? nullptr : &runs_.back();
    const bool joins = last && !alone && !last->closed && last->to == to && last->local == local &&
                       size <= last->segment_size && last->datagrams < io::kMaxGsoSegments &&
                       last->size + size <= io::kMaxGsoBytes;
    if (joins) {
      last->size += size;
      ++last->datagrams;
      last->closed = size < last->segment_size;
    } else {
      runs_.push_back({to, local, used_, size, size, 1, alone});
    }
    used_ += size;
  }

  // Sends what it can; false: the socket is full, call again when it is writable. `too_big` is told of
  // datagrams that the interface refused: their peer and size.
  bool flush(io::UdpSocket& socket, const std::function<void(const io::Address&, std::size_t)>& too_big) {
    while (first_ < runs_.size()) {
      batches_.clear();
      for (std::size_t i = first_; i < runs_.size(); ++i) {
        const Run& run = runs_[i];
        batches_.push_back({run.to, run.local, std::span(arena_).subspan(run.offset, run.size),
                            static_cast<std::uint16_t>(run.segment_size), 0});
      }
      const io::SendResult result = socket.send(batches_);
      for (const io::SendFailure& failure : result.failures)
        if (failure.code == from_errno(EMSGSIZE)) too_big(batches_[failure.batch].to, failure.datagram_bytes);
      first_ += result.batches;
      if (result.batches < batches_.size()) {
        runs_[first_].offset += result.bytes_of_next;
        runs_[first_].size -= result.bytes_of_next;
        return false;
      }
    }
    runs_.clear();
    first_ = used_ = 0;
    return true;
  }

 private:
  struct Run {
    io::Address to;
    io::Address local;
    std::size_t offset;
    std::size_t size;
    std::size_t segment_size;
    std::size_t datagrams;
    bool closed;  // its last datagram is shorter, or it must stay alone
  };

  std::vector<std::byte> arena_;
  std::size_t used_ = 0;
  std::vector<Run> runs_;
  std::size_t first_ = 0;  // runs before it are sent
  std::vector<io::OutgoingBatch> batches_;
};

}  // namespace tusk::rpc
