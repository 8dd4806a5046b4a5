// A UDP socket made for hundreds of thousands of datagrams a second: many datagrams a system call
// (sendmmsg, recvmmsg) and many a trip through the kernel (UDP_SEGMENT "GSO", UDP_GRO).
//
// It moves bytes and counts; it knows no packet format, no connection and no pace. It never fragments
// (IP_PMTUDISC_PROBE) and no error of the network ends it.
//
// One thread at a time uses a socket or a batch; several sockets may share a port (reuse_port).
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/base/result.h"
#include "proto/io/address.h"

namespace tusk::io {

class Syscalls;

// The kernel's limits for one send with UDP_SEGMENT: UDP_MAX_SEGMENTS of all kernels since 4.18 and
// the largest UDP payload over IPv4.
constexpr std::size_t kMaxGsoSegments = 64;
constexpr std::size_t kMaxGsoBytes = 65'507;

// Messages handed to one sendmmsg; longer lists take several calls.
constexpr std::size_t kMaxMessagesPerCall = 64;

// A scheduler stall of 25 ms at 10 Gbit/s fills 32 MB.
constexpr std::size_t kWantedBufferBytes = 32 << 20;

// Always 64 KiB: the kernel cuts a merged run that does not fit, without an error.
constexpr std::size_t kReceiveBufferBytes = 65'536;
constexpr std::size_t kDefaultReceiveBuffers = 16;
constexpr std::size_t kMaxReceiveBuffers = 256;

// Equal-sized datagrams for one peer; the last one may be shorter. Any number of bytes: send() cuts
// them to what the kernel takes.
struct OutgoingBatch {
  Address to;
  Address local{};  // the source address; the wildcard leaves it to the kernel. Its port is ignored
  std::span<const std::byte> bytes;  // not empty
  std::uint16_t segment_size = 0;    // payload bytes of each datagram, > 0
  // The two ECN bits (RFC 3168 §5): 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE. Endpoints send 0: nothing of
  // theirs is marked (docs/PROTOCOL.md, "Frames").
  std::uint8_t ecn = 0;
};

// Consecutive datagrams of a batch that the kernel refused. They count as lost.
struct SendFailure {
  std::size_t batch = 0;            // index in the list given to send()
  ErrorCode code = ErrorCode::kOk;  // EMSGSIZE: larger than the first hop's MTU, lower the size
  std::size_t datagram_bytes = 0;   // the payload size of the first of them
  std::size_t datagrams = 0;
};

struct SendResult {
  std::size_t batches = 0;  // dealt with: sent, or listed in `failures`
  // When `batches` is less than was given the send buffer is full: wait for writability, then go on
  // with that batch, without its first `bytes_of_next` bytes, which are sent.
  std::size_t bytes_of_next = 0;
  std::span<const SendFailure> failures;  // valid until the next send()
};

struct Datagram {
  Address from;
  Address local;               // the address it was sent to, with this socket's port: answer from there
  std::span<std::byte> bytes;  // may be overwritten (decrypted in place) until the next receive()
  std::uint8_t ecn = 0;
};

struct ReceiveResult {
  std::size_t datagrams = 0;
  bool more = false;  // every buffer was used: there is probably more
};

// The memory of one receive(): `buffers` times 64 KiB. Reuse it.
class ReceiveBatch {
 public:
  explicit ReceiveBatch(std::size_t buffers = kDefaultReceiveBuffers);  // 1 to kMaxReceiveBuffers
  ReceiveBatch(ReceiveBatch&&) noexcept;
  ReceiveBatch& operator=(ReceiveBatch&&) noexcept;
  ~ReceiveBatch();

 private:
  friend class UdpSocket;
  // What the kernel merged into one buffer.
  struct Run {
    Address from;
    Address local;
    std::span<std::byte> bytes;
    std::size_t segment_size = 0;
    std::uint8_t ecn = 0;
  };
  struct State;
  [[nodiscard]] std::span<const Run> runs() const;
  std::unique_ptr<State> state_;
};

// Since the socket was opened.
struct UdpCounters {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t bytes_sent = 0;  // UDP payload
  std::uint64_t send_calls = 0;
  std::uint64_t send_blocked = 0;  // the send buffer was full
  std::uint64_t send_failed = 0;   // datagrams refused for any reason
  std::uint64_t send_too_big = 0;  // of these, with EMSGSIZE
  std::uint64_t gso_disabled = 0;  // 1 once GSO was found broken or was switched off
  std::uint64_t datagrams_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t receive_merged = 0;     // buffers that held more than one datagram
  std::uint64_t receive_failed = 0;     // calls that returned an error
  std::uint64_t receive_truncated = 0;  // buffers dropped because the kernel cut them
  std::uint64_t overflow_drops = 0;     // dropped by the kernel for want of receive buffer (SO_RXQ_OVFL)
};

struct UdpOptions {
  Address bind = Address::any(0);
  bool reuse_port = false;  // SO_REUSEPORT: the kernel spreads peers over all such sockets of the port
  bool gso = true;
  bool gro = true;
  std::size_t buffer_bytes = kWantedBufferBytes;  // wish, for each direction
  Syscalls* syscalls = nullptr;                   // the kernel when null; must outlive the socket
};

class UdpSocket {
 public:
  // Non-blocking. A socket bound to [::] serves IPv4 and IPv6, or IPv4 alone on a machine without IPv6.
  // EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE... What an old kernel lacks (GSO, GRO, ECN) is no error.
  [[nodiscard]] static Result<UdpSocket> open(const UdpOptions& options);

  UdpSocket(UdpSocket&&) noexcept;
  UdpSocket& operator=(UdpSocket&&) noexcept;
  ~UdpSocket();

  // Sends in order. Never blocks, never fails as a whole: what the network refuses is in `failures`.
  // When the kernel takes a run only in single datagrams GSO stays off from then on.
  [[nodiscard]] SendResult send(std::span<const OutgoingBatch> batches);

  // Takes what has arrived, with one recvmmsg, and calls `visit(const Datagram&)` for each datagram in
  // order of arrival. Never blocks. `visit` may send on this socket but not receive into `batch`.
  template <class Visitor>
  ReceiveResult receive(ReceiveBatch& batch, Visitor&& visit) {
    const ReceiveResult result = fill(batch);
    for (const ReceiveBatch::Run& run : batch.runs()) {
      std::span<std::byte> rest = run.bytes;
      do {  // an empty datagram is one, too
        const std::size_t size = rest.size() < run.segment_size ? rest.size() : run.segment_size;
        visit(Datagram{run.from, run.local, rest.first(size), run.ecn});
        rest = rest.subspan(size);
      } while (!rest.empty());
    }
    return result;
  }

  // Others may be bound to its port from now on (reuse_port), though it was bound for itself.
  [[nodiscard]] Result<void> share_port();
  // Which of the sockets that share its port gets a datagram: the program's answer is its index, in the order
  // in which they were bound; the program sees the payload (socket(7), SO_ATTACH_REUSEPORT_CBPF).
  [[nodiscard]] Result<void> steer(std::vector<sock_filter> program);

  // What the program refuses the kernel drops before anybody is woken; it sees the UDP header and the payload
  // (socket(7), SO_ATTACH_FILTER). Replaces an earlier one; an empty program lets everything through.
  [[nodiscard]] Result<void> filter(std::vector<sock_filter> program);
  // Datagrams that the kernel has dropped since the socket was opened, by a filter or for want of buffer.
  // Modulo 2^32; 0 where the kernel does not say.
  [[nodiscard]] std::uint32_t kernel_drops() const;

  [[nodiscard]] int fd() const;
  [[nodiscard]] const Address& local_address() const;  // as bound, with the port the kernel chose
  // What the kernel granted, in the unit of net.core.rmem_max and wmem_max.
  [[nodiscard]] std::size_t receive_buffer_bytes() const;
  [[nodiscard]] std::size_t send_buffer_bytes() const;

  [[nodiscard]] bool gso_enabled() const;
  [[nodiscard]] bool gro_enabled() const;
  // For an owner that sees bursts lose far more than single datagrams: some kernels corrupt them.
  void disable_gso();

  [[nodiscard]] const UdpCounters& counters() const;

 private:
  struct State;
  explicit UdpSocket(std::unique_ptr<State> state);
  [[nodiscard]] ReceiveResult fill(ReceiveBatch& batch);
  std::unique_ptr<State> state_;
};

}  // namespace tusk::io
