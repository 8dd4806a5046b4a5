// What a network card does for UDP: cuts what the kernel sends as one into datagrams, and puts datagrams that
// arrive together into one (UDP segmentation and receive offload). A path of TUN devices without it costs
// each packet a system call and a way through the kernel at both ends, which is most of two cores at 1
// Gbit/s.
//
// Pure: bytes of IP packets in, bytes of IP packets out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tusk::wan {

// As UDP_MAX_SEGMENTS of Linux, and what an IPv4 packet can be long.
constexpr std::size_t kMergedPacketsMax = 64;
constexpr std::size_t kMergedBytesMax = 65'535;

// A whole UDP datagram over IPv4 or IPv6.
struct UdpLayout {
  bool ipv6 = false;
  std::size_t udp = 0;      // where its header begins
  std::size_t payload = 0;  // and its data
};

// nullopt: something else, a fragment, or one without a checksum.
[[nodiscard]] std::optional<UdpLayout> udp_layout_of(std::span<const std::byte> packet);

// Fills in a checksum that the kernel has left to the card: the one's complement sum from `start` to the end,
// at `start` + `offset`. False: they lie outside of the packet.
bool complete_checksum(std::span<std::byte> packet, std::size_t start, std::size_t offset);

// The sum of the addresses, the protocol and the length, where the checksum will be: what a card expects of
// the kernel, and the kernel of a card that has checked the rest.
void leave_checksum_to_card(std::span<std::byte> packet, const UdpLayout& layout);

// Not thread-safe.
class UdpCutter {
 public:
  // `packet` is UDP and holds data of several datagrams of `segment_size` bytes, the last one maybe shorter.
  // It must stay as it is until empty(). False: it is not such a packet.
  bool begin(std::span<const std::byte> packet, std::size_t segment_size);
  [[nodiscard]] bool empty() const { return next_ >= packet_.size(); }
  // The next datagram as a packet, its checksum left to the card; not empty(). Its size, at most out's: what
  // is longer is 0, and gone.
  std::size_t next(std::span<std::byte> out);

 private:
  std::span<const std::byte> packet_;
  UdpLayout layout_;
  std::size_t segment_size_ = 0;
  std::size_t next_ = 0;  // where the next one's data begins
  std::uint16_t number_ = 0;
};

// Not thread-safe.
class UdpMerger {
 public:
  UdpMerger() { merged_.reserve(kMergedBytesMax); }

  // False: it is no UDP, or does not go on where the others end; nothing was taken.
  bool add(std::span<const std::byte> packet);
  [[nodiscard]] std::size_t packets() const { return packets_; }
  // All of them as one, its checksum left to the card; of the last begin to clear(). packets() > 0.
  [[nodiscard]] std::span<std::byte> merged();
  [[nodiscard]] const UdpLayout& layout() const { return layout_; }
  [[nodiscard]] std::size_t segment_size() const { return segment_size_; }
  void clear();

 private:
  [[nodiscard]] bool goes_on(std::span<const std::byte> packet, const UdpLayout& layout) const;

  std::vector<std::byte> merged_;
  UdpLayout layout_;
  std::size_t segment_size_ = 0;
  std::size_t packets_ = 0;
  bool ended_ = false;  // by one that was shorter
};

}  // namespace tusk::wan
