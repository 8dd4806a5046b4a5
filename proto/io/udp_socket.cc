#include "proto/io/udp_socket.h"

#include <fcntl.h>
#include <linux/sock_diag.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "proto/base/check.h"
#include "proto/io/native_address.h"
#include "proto/io/syscalls.h"
#include "proto/io/udp_control.h"

namespace tusk::io {
namespace {

// One message of a sendmmsg: a piece of a batch.
struct Piece {
  std::size_t bytes = 0;
  std::size_t segments = 0;
};

// Errors the kernel reports once and then forgets, such as a pending ICMP error: more than this many in
// a row are no longer that, and the caller is told that nothing came.
constexpr int kMaxReceiveErrorsInARow = 4;

// The kernel doubles what it is asked for, in an int.
constexpr std::size_t kMaxBufferBytes = 1 << 29;

Piece next_piece(const OutgoingBatch& batch, std::size_t offset, bool gso) {
  const std::size_t left = batch.bytes.size() - offset;
  const std::size_t segment = batch.segment_size;
  if (!gso) return {std::min(left, segment), 1};
  const std::size_t most = std::max<std::size_t>(1, std::min(kMaxGsoSegments, kMaxGsoBytes / segment));
  const std::size_t bytes = std::min(left, most * segment);
  return {bytes, (bytes + segment - 1) / segment};
}

}  // namespace

struct UdpSocket::State {
  Syscalls* calls = nullptr;
  int fd = -1;
  sa_family_t family = AF_INET6;
  bool gso = false;
  bool gro = false;
  Address local;
  std::size_t receive_buffer_bytes = 0;
  std::size_t send_buffer_bytes = 0;
  std::uint32_t last_overflow = 0;
  UdpCounters counters;

  // Where the next message starts in the list given to send().
  struct Cursor {
    std::size_t batch = 0;
    std::size_t offset = 0;
  };

  // Scratch of send(), here so that no call allocates.
  struct Outgoing {
    NativeAddress to;
    iovec piece;
    alignas(cmsghdr) std::array<std::byte, kSendControlBytes> control;
  };
  std::array<mmsghdr, kMaxMessagesPerCall> headers;
  std::array<Outgoing, kMaxMessagesPerCall> outgoing;
  std::array<std::size_t, kMaxMessagesPerCall> segments;
  std::vector<SendFailure> failures;

  ~State() {
    if (fd >= 0) ::close(fd);
  }

  bool set(int level, int name, int value) {
    return calls->set_option(fd, level, name, &value, sizeof(value)) == 0;
  }

  Result<void> open_and_bind(const UdpOptions& options);
  void set_options(const UdpOptions& options);
  std::size_t set_buffer(int force_name, int name, std::size_t wanted_bytes);

  void describe(std::size_t index, const OutgoingBatch& batch, std::size_t offset, const Piece& piece);
  std::size_t describe_from(std::span<const OutgoingBatch> batches, Cursor at);
  void advance(std::span<const OutgoingBatch> batches, Cursor& at, std::size_t bytes);
  bool send_one_segment(std::span<const OutgoingBatch> batches, Cursor& at, int& error);
  void skip_refused(std::span<const OutgoingBatch> batches, Cursor& at, const Piece& piece, int error);
};

Result<void> UdpSocket::State::open_and_bind(const UdpOptions& options) {
  constexpr int kType = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  family = options.bind.is_v4() ? AF_INET : AF_INET6;
  fd = calls->open_socket(family, kType, IPPROTO_UDP);
  if (fd < 0 && errno == EAFNOSUPPORT && options.bind == Address::any(options.bind.port())) {
    family = AF_INET;
    fd = calls->open_socket(family, kType, IPPROTO_UDP);
  }
  if (fd < 0) return fail_errno("open a UDP socket");
  if (family == AF_INET6 && !set(IPPROTO_IPV6, IPV6_V6ONLY, 0))
    return fail_errno("make the UDP socket dual-stack");
  if (options.reuse_port && !set(SOL_SOCKET, SO_REUSEPORT, 1)) return fail_errno("share the UDP port");

  NativeAddress native;
  const socklen_t size = to_native(options.bind, family, native);
  if (::bind(fd, &native.generic, size) != 0) return fail_errno("bind UDP " + options.bind.to_string());
  socklen_t bound_size = sizeof(native);
  if (::getsockname(fd, &native.generic, &bound_size) != 0)
    return fail_errno("read the UDP socket's address");
  local = from_native(native);
  return {};
}

void UdpSocket::State::set_options(const UdpOptions& options) {
  // On a dual-stack socket the IPv4 options govern IPv4 peers. None is vital: without ECN there is no
  // ECN signal, without the packet information the kernel chooses the source.
  set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  set(IPPROTO_IP, IP_RECVTOS, 1);
  if (family == AF_INET6) {
    set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set(IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  } else {
    set(IPPROTO_IP, IP_PKTINFO, 1);
  }
  set(SOL_SOCKET, SO_RXQ_OVFL, 1);
  // Zero asks whether the kernel knows the option; the size goes with each message.
  gso = options.gso && set(IPPROTO_UDP, UDP_SEGMENT, 0);
  gro = options.gro && set(IPPROTO_UDP, UDP_GRO, 1);
  receive_buffer_bytes = set_buffer(SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
  send_buffer_bytes = set_buffer(SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
}

std::size_t UdpSocket::State::set_buffer(int force_name, int name, std::size_t wanted_bytes) {
  const int wanted = static_cast<int>(std::min(wanted_bytes, kMaxBufferBytes));
  if (!set(SOL_SOCKET, force_name, wanted)) set(SOL_SOCKET, name, wanted);
  int got = 0;
  socklen_t size = sizeof(got);
  if (::getsockopt(fd, SOL_SOCKET, name, &got, &size) != 0) return 0;
  return static_cast<std::size_t>(got) / 2;  // the kernel doubles it for its own bookkeeping (socket(7))
}

void UdpSocket::State::describe(std::size_t index, const OutgoingBatch& batch, std::size_t offset,
                                const Piece& piece) {
  Outgoing& out = outgoing[index];
  msghdr& header = headers[index].msg_hdr;
  header = {};
  header.msg_name = &out.to;
  header.msg_namelen = to_native(batch.to, family, out.to);
  if (header.msg_namelen == 0) header.msg_name = nullptr;  // fails with EDESTADDRREQ, for this message alone
  out.piece.iov_base = const_cast<std::byte*>(batch.bytes.data() + offset);
  out.piece.iov_len = piece.bytes;
  header.msg_iov = &out.piece;
  header.msg_iovlen = 1;

  ControlWriter control(out.control.data());
  control.add_source(batch.local);
  control.add_ecn(batch.to, batch.ecn);
  if (piece.segments > 1) control.add_segment_size(batch.segment_size);
  header.msg_control = control.size() > 0 ? out.control.data() : nullptr;
  header.msg_controllen = control.size();
  segments[index] = piece.segments;
}

std::size_t UdpSocket::State::describe_from(std::span<const OutgoingBatch> batches, Cursor at) {
  std::size_t count = 0;
  while (count < kMaxMessagesPerCall && at.batch < batches.size()) {
    const OutgoingBatch& batch = batches[at.batch];
    TUSK_CHECK(!batch.bytes.empty() && batch.segment_size > 0);
    const Piece piece = next_piece(batch, at.offset, gso);
    describe(count++, batch, at.offset, piece);
    advance(batches, at, piece.bytes);
  }
  return count;
}

void UdpSocket::State::advance(std::span<const OutgoingBatch> batches, Cursor& at, std::size_t bytes) {
  at.offset += bytes;
  if (at.offset < batches[at.batch].bytes.size()) return;
  ++at.batch;
  at.offset = 0;
}

// Whether the next piece goes out when it is not a GSO run: then GSO is what failed.
bool UdpSocket::State::send_one_segment(std::span<const OutgoingBatch> batches, Cursor& at, int& error) {
  const OutgoingBatch& batch = batches[at.batch];
  const Piece piece = next_piece(batch, at.offset, false);
  describe(0, batch, at.offset, piece);
  ++counters.send_calls;
  if (calls->send_many(fd, headers.data(), 1, MSG_DONTWAIT) != 1) {
    error = errno;
    return false;
  }
  ++counters.datagrams_sent;
  counters.bytes_sent += piece.bytes;
  advance(batches, at, piece.bytes);
  return true;
}

void UdpSocket::State::skip_refused(std::span<const OutgoingBatch> batches, Cursor& at, const Piece& piece,
                                    int error) {
  const OutgoingBatch& batch = batches[at.batch];
  const ErrorCode code = from_errno(error);
  counters.send_failed += piece.segments;
  if (error == EMSGSIZE) counters.send_too_big += piece.segments;
  if (!failures.empty() && failures.back().batch == at.batch && failures.back().code == code) {
    failures.back().datagrams += piece.segments;
  } else {
    const std::size_t datagram_bytes = std::min<std::size_t>(piece.bytes, batch.segment_size);
    failures.push_back({at.batch, code, datagram_bytes, piece.segments});
  }
  advance(batches, at, piece.bytes);
}

Result<UdpSocket> UdpSocket::open(const UdpOptions& options) {
  auto state = std::make_unique<State>();
  state->calls = options.syscalls ? options.syscalls : &Syscalls::kernel();
  TUSK_TRY(state->open_and_bind(options));
  state->set_options(options);
  return UdpSocket(std::move(state));
}

UdpSocket::UdpSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}
UdpSocket::UdpSocket(UdpSocket&&) noexcept = default;
UdpSocket& UdpSocket::operator=(UdpSocket&&) noexcept = default;
UdpSocket::~UdpSocket() = default;

SendResult UdpSocket::send(std::span<const OutgoingBatch> batches) {
  State& s = *state_;
  s.failures.clear();
  State::Cursor at;
  while (at.batch < batches.size()) {
    const std::size_t count = s.describe_from(batches, at);
    ++s.counters.send_calls;
    const int sent = s.calls->send_many(s.fd, s.headers.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) {
      const std::size_t bytes = s.outgoing[i].piece.iov_len;
      s.counters.datagrams_sent += s.segments[i];
      s.counters.bytes_sent += bytes;
      s.advance(batches, at, bytes);
    }
    if (sent > 0) continue;  // an error behind the first message shows up in the next call

    int error = sent == 0 ? EAGAIN : errno;
    if (error == EINTR) continue;
    const Piece piece = next_piece(batches[at.batch], at.offset, s.gso);
    if (piece.segments > 1 && (error == EIO || error == EINVAL)) {
      // EIO: the device cannot checksum. EINVAL: any reason, and before Linux 6.14 also a segment above
      // the MTU. What a single datagram meets tells them apart.
      if (s.send_one_segment(batches, at, error)) {
        disable_gso();
        continue;
      }
    }
    if (error == EAGAIN) {
      ++s.counters.send_blocked;
      break;
    }
    s.skip_refused(batches, at, piece, error);
  }
  return {at.batch, at.offset, s.failures};
}

Result<void> UdpSocket::share_port() {
  if (!state_->set(SOL_SOCKET, SO_REUSEPORT, 1)) return fail_errno("share the UDP port");
  return {};
}

Result<void> UdpSocket::steer(std::vector<sock_filter> program) {
  const sock_fprog described{static_cast<unsigned short>(program.size()), program.data()};
  if (state_->calls->set_option(state_->fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &described,
                                sizeof(described)) != 0)
    return fail_errno("steer the datagrams of a shared UDP port");
  return {};
}

Result<void> UdpSocket::filter(std::vector<sock_filter> program) {
  const sock_fprog described{static_cast<unsigned short>(program.size()), program.data()};
  const int ignored = 0;
  const int done = program.empty() ? state_->calls->set_option(state_->fd, SOL_SOCKET, SO_DETACH_FILTER,
                                                               &ignored, sizeof(ignored))
                                   : state_->calls->set_option(state_->fd, SOL_SOCKET, SO_ATTACH_FILTER,
                                                               &described, sizeof(described));
  if (done != 0 && !(program.empty() && errno == ENOENT)) return fail_errno("filter a UDP socket");
  return {};
}

std::uint32_t UdpSocket::kernel_drops() const {
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t size = sizeof(memory);
  if (::getsockopt(state_->fd, SOL_SOCKET, SO_MEMINFO, memory.data(), &size) != 0) return 0;
  return memory[SK_MEMINFO_DROPS];
}

int UdpSocket::fd() const { return state_->fd; }
const Address& UdpSocket::local_address() const { return state_->local; }
std::size_t UdpSocket::receive_buffer_bytes() const { return state_->receive_buffer_bytes; }
std::size_t UdpSocket::send_buffer_bytes() const { return state_->send_buffer_bytes; }
bool UdpSocket::gso_enabled() const { return state_->gso; }
bool UdpSocket::gro_enabled() const { return state_->gro; }
const UdpCounters& UdpSocket::counters() const { return state_->counters; }

void UdpSocket::disable_gso() {
  state_->gso = false;
  state_->counters.gso_disabled = 1;
}

// --- Receiving.

struct ReceiveBatch::State {
  struct Incoming {
    NativeAddress from;
    iovec buffer;
    alignas(cmsghdr) std::array<std::byte, kReceiveControlBytes> control;
  };

  explicit State(std::size_t buffers)
      : memory(std::make_unique_for_overwrite<std::byte[]>(buffers * kReceiveBufferBytes)),
        headers(buffers),
        incoming(buffers) {
    for (std::size_t i = 0; i < buffers; ++i) {
      incoming[i].buffer = {memory.get() + i * kReceiveBufferBytes, kReceiveBufferBytes};
      msghdr& header = headers[i].msg_hdr;
      header.msg_name = &incoming[i].from;
      header.msg_iov = &incoming[i].buffer;
      header.msg_iovlen = 1;
      header.msg_control = incoming[i].control.data();
    }
    runs.reserve(buffers);
  }

  // The kernel overwrote these with what it filled in.
  void reset_lengths() {
    for (mmsghdr& header : headers) {
      header.msg_hdr.msg_namelen = sizeof(NativeAddress);
      header.msg_hdr.msg_controllen = kReceiveControlBytes;
      header.msg_hdr.msg_flags = 0;
    }
  }

  std::unique_ptr<std::byte[]> memory;
  std::vector<mmsghdr> headers;
  std::vector<Incoming> incoming;
  std::vector<Run> runs;
};

ReceiveBatch::ReceiveBatch(std::size_t buffers) {
  TUSK_CHECK(buffers >= 1 && buffers <= kMaxReceiveBuffers);
  state_ = std::make_unique<State>(buffers);
}
ReceiveBatch::ReceiveBatch(ReceiveBatch&&) noexcept = default;
ReceiveBatch& ReceiveBatch::operator=(ReceiveBatch&&) noexcept = default;
ReceiveBatch::~ReceiveBatch() = default;

std::span<const ReceiveBatch::Run> ReceiveBatch::runs() const { return state_->runs; }

ReceiveResult UdpSocket::fill(ReceiveBatch& batch) {
  State& s = *state_;
  ReceiveBatch::State& b = *batch.state_;
  b.runs.clear();
  int count = -1;
  for (int errors = 0; count < 0; ++errors) {
    b.reset_lengths();
    count =
        s.calls->receive_many(s.fd, b.headers.data(), static_cast<unsigned>(b.headers.size()), MSG_DONTWAIT);
    if (count >= 0) break;
    if (errno == EAGAIN || errors == kMaxReceiveErrorsInARow) return {};
    if (errno != EINTR) ++s.counters.receive_failed;
  }

  ReceiveResult result{.more = static_cast<std::size_t>(count) == b.headers.size()};
  for (int i = 0; i < count; ++i) {
    msghdr& header = b.headers[i].msg_hdr;
    const std::size_t bytes = b.headers[i].msg_len;
    const ReceivedControl control = read_control(header);
    if (control.overflow_drops) {
      s.counters.overflow_drops += *control.overflow_drops - s.last_overflow;  // modulo 2^32
      s.last_overflow = *control.overflow_drops;
    }
    // Without all of its control messages the bounds between merged datagrams are unknown.
    if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
      ++s.counters.receive_truncated;
      continue;
    }
    const bool merged = control.segment_size > 0 && control.segment_size < bytes;
    const std::size_t segment_size = merged ? control.segment_size : bytes;
    const std::size_t datagrams = merged ? (bytes + segment_size - 1) / segment_size : 1;
    const Address local = control.local.is_wildcard() ? s.local : control.local.with_port(s.local.port());
    b.runs.push_back({from_native(b.incoming[i].from),
                      local,
                      {static_cast<std::byte*>(b.incoming[i].buffer.iov_base), bytes},
                      segment_size,
                      control.ecn});
    s.counters.receive_merged += merged ? 1 : 0;
    s.counters.datagrams_received += datagrams;
    s.counters.bytes_received += bytes;
    result.datagrams += datagrams;
  }
  return result;
}

}  // namespace tusk::io
