// Network namespaces and the TUN devices in them. Linux only, needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/base/result.h"
#include "tests/system/wan/direction.h"
#include "tests/system/wan/udp_offload.h"

namespace tusk::wan {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;

  [[nodiscard]] int number() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A network namespace under /run/netns, where `nsenter --net=` and `ip netns` find it. Gone with the object.
class Namespace {
 public:
  // The calling thread is back in its own namespace when this returns.
  [[nodiscard]] static Result<Namespace> create(const std::string& name);

  ~Namespace();
  Namespace(Namespace&& other) noexcept;
  Namespace& operator=(Namespace&&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int number() const { return fd_.number(); }

 private:
  Namespace(std::string name, Descriptor fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  std::string name_;
  Descriptor fd_;
};

// Names of one run's namespaces: "<topology>-wan<pid>-a" and "-b".
[[nodiscard]] std::string namespace_name(const std::string& topology, int pid, char end);

// Removes namespaces and control sockets of runs that ended without cleaning up.
void remove_stale_runs();

// How one end of the path is set up.
struct EndConfig {
  std::uint8_t subnet_high = 0;  // the x and y of 10.x.y.0/24 and fd00:x:y::/64
  std::uint8_t subnet_low = 0;
  std::uint8_t host = 1;
  std::size_t mtu = 1500;
  std::string tcp_congestion_control;  // the namespace's default; empty: leave it

  [[nodiscard]] std::string ipv4() const;
  [[nodiscard]] std::string ipv6() const;
};

// The network device through which all packets of a namespace leave and enter, with UDP's offloads where the
// kernel has them for TUN devices (Linux 6.2). Reading and writing may be done by two threads.
class TunDevice : public PacketSource, public PacketSink {
 public:
  // Creates the device in `where`, with addresses, MTU and long queues, and raises TCP's buffers there.
  [[nodiscard]] static Result<TunDevice> create(const Namespace& where, const EndConfig& config);

  [[nodiscard]] std::size_t receive(std::span<std::byte> buffer) override;
  [[nodiscard]] bool send(std::span<const std::byte> packet) override;
  [[nodiscard]] Refused flush() override;

  [[nodiscard]] int number() const { return fd_.number(); }

 private:
  explicit TunDevice(Descriptor fd);
  void write_merged();

  Descriptor fd_;
  // Of the reading thread.
  std::vector<std::byte> incoming_;
  UdpCutter cutter_;
  // Of the writing thread.
  UdpMerger merger_;
  Refused refused_;
};

// /run/tusk-wan<pid>.sock
[[nodiscard]] std::string default_control_path(int pid);

}  // namespace tusk::wan
