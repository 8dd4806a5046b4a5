#include "tests/system/wan/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <utility>

// After net/if.h: they share definitions.
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include "proto/base/check.h"

namespace tusk::wan {
namespace {

constexpr const char* kNamespaceFolder = "/run/netns";
constexpr const char* kControlFolder = "/run";
constexpr const char* kDevice = "wan0";
constexpr const char* kProgram = "tusk-wan";

// Of Linux 6.2, later than the headers of Debian 12: TUN_F_USO4, TUN_F_USO6, VIRTIO_NET_HDR_GSO_UDP_L4.
// (linux/virtio_net.h is no C++.)
constexpr unsigned long kTunOffloadUdp4 = 0x20;
constexpr unsigned long kTunOffloadUdp6 = 0x40;
constexpr std::uint8_t kOffloadUdp = 5;
constexpr std::uint8_t kChecksumLeftToCard = 1;

// In front of each packet (virtio 1.1, 5.1.6), in this machine's byte order.
struct CardHeader {
  std::uint8_t flags = 0;
  std::uint8_t offload = 0;
  std::uint16_t headers_size = 0;
  std::uint16_t segment_size = 0;
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(CardHeader) == 10);

constexpr int kTransmitQueuePackets = 20'000;  // the default of 500 drops bursts before we see them
// A path of 10 Gbit/s and 200 ms holds 250 MB.
constexpr const char* kTcpReadMemory = "4096 131072 536870912";
constexpr const char* kTcpWriteMemory = "4096 65536 536870912";

bool write_both(int fd, CardHeader& header, std::span<const std::byte> packet) {
  const iovec parts[] = {{&header, sizeof header},
                         {const_cast<std::byte*>(packet.data()), packet.size()}};  // only read
  return writev(fd, parts, std::size(parts)) == static_cast<ssize_t>(sizeof header + packet.size());
}

// Enters a namespace for as long as it lives. Threads have namespaces, so others are not disturbed.
class InNamespace {
 public:
  [[nodiscard]] static Result<InNamespace> enter(int fd) {
    Descriptor home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!home) return fail_errno("open /proc/thread-self/ns/net");
    if (setns(fd, CLONE_NEWNET) != 0) return fail_errno("enter the network namespace");
    return InNamespace(std::move(home));
  }
  ~InNamespace() {
    if (home_) TUSK_CHECK(setns(home_.number(), CLONE_NEWNET) == 0);
  }
  InNamespace(InNamespace&&) = default;
  InNamespace& operator=(InNamespace&&) = delete;

 private:
  explicit InNamespace(Descriptor home) : home_(std::move(home)) {}
  Descriptor home_;
};

Result<void> write_setting(const std::string& path, const std::string& value) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return fail_errno("open " + path);
  if (write(file.number(), value.data(), value.size()) < 0)
    return fail_errno("write " + value + " to " + path);
  return {};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Namespaces are mounts; a shared folder carries them, and their removal, into other mount namespaces.
Result<void> prepare_namespace_folder() {
  if (mkdir(kNamespaceFolder, 0755) != 0 && errno != EEXIST) {
    return fail_errno(std::string("create ") + kNamespaceFolder);
  }
  if (mount("", kNamespaceFolder, "none", MS_SHARED | MS_REC, nullptr) == 0) return {};
  if (errno != EINVAL) return fail_errno(std::string("share ") + kNamespaceFolder);
  if (mount(kNamespaceFolder, kNamespaceFolder, "none", MS_BIND | MS_REC, nullptr) != 0 ||
      mount("", kNamespaceFolder, "none", MS_SHARED | MS_REC, nullptr) != 0) {
    return fail_errno(std::string("bind and share ") + kNamespaceFolder);
  }
  return {};
}

void remove_namespace(const std::string& path) {
  umount2(path.c_str(), MNT_DETACH);
  unlink(path.c_str());
}

bool run_is_alive(const std::string& pid) { return first_line("/proc/" + pid + "/comm") == kProgram; }

ifreq request_for(const char* device) {
  ifreq request{};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  return request;
}

Result<void> control(int fd, unsigned long operation, void* argument, const char* what) {
  if (ioctl(fd, operation, argument) != 0) return fail_errno(what);
  return {};
}

Result<void> bring_up(int socket, const char* device) {
  ifreq request = request_for(device);
  TUSK_TRY(control(socket, SIOCGIFFLAGS, &request, "read device flags"));
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  return control(socket, SIOCSIFFLAGS, &request, "bring the device up");
}

Result<void> set_ipv4(int socket, const EndConfig& config) {
  const auto put = [&](unsigned long operation, const std::string& address, const char* what) {
    ifreq request = request_for(kDevice);
    sockaddr_in value{.sin_family = AF_INET};
    inet_pton(AF_INET, address.c_str(), &value.sin_addr);
    std::memcpy(&request.ifr_addr, &value, sizeof value);
    return control(socket, operation, &request, what);
  };
  TUSK_TRY(put(SIOCSIFADDR, config.ipv4(), "set the IPv4 address"));
  return put(SIOCSIFNETMASK, "255.255.255.0", "set the IPv4 netmask");
}

// Where the kernel has no IPv6 the path is IPv4 only.
Result<void> set_ipv6(const EndConfig& config) {
  const Descriptor socket6(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket6 || access("/proc/sys/net/ipv6/conf/wan0", F_OK) != 0) return {};
  in6_ifreq request{.ifr6_prefixlen = 64, .ifr6_ifindex = static_cast<int>(if_nametoindex(kDevice))};
  inet_pton(AF_INET6, config.ipv6().c_str(), &request.ifr6_addr);
  return control(socket6.number(), SIOCSIFADDR, &request, "set the IPv6 address");
}

// The device must not talk by itself: its packets would be in every statistic.
void silence_ipv6() {
  (void)write_setting("/proc/sys/net/ipv6/conf/wan0/router_solicitations", "0");
  (void)write_setting("/proc/sys/net/ipv6/conf/wan0/addr_gen_mode", "1");
}

Result<void> raise_tcp_buffers() {
  TUSK_TRY(write_setting("/proc/sys/net/ipv4/tcp_rmem", kTcpReadMemory));
  return write_setting("/proc/sys/net/ipv4/tcp_wmem", kTcpWriteMemory);
}

// A namespace may only choose an algorithm as its default that the first namespace allows to all. That list
// is widened for the moment of choosing, so nothing is left changed outside.
Result<void> choose_congestion_control(const Namespace& where, const std::string& name) {
  if (name.empty()) return {};
  const std::string allowed_path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
  const std::string allowed = first_line(allowed_path);
  (void)write_setting(allowed_path, allowed + " " + name);
  const Result<void> chosen = [&]() -> Result<void> {
    TUSK_ASSIGN(const InNamespace inside, InNamespace::enter(where.number()));
    return write_setting("/proc/sys/net/ipv4/tcp_congestion_control", name);
  }();
  (void)write_setting(allowed_path, allowed);
  return chosen;
}

Result<void> configure_device(int tun, const EndConfig& config) {
  const Descriptor socket4(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket4) return fail_errno("open a socket");
  int send_buffer = INT_MAX;
  TUSK_TRY(control(tun, TUNSETSNDBUF, &send_buffer, "raise the TUN send buffer"));
  ifreq request = request_for(kDevice);
  request.ifr_mtu = static_cast<int>(config.mtu);
  TUSK_TRY(control(socket4.number(), SIOCSIFMTU, &request, "set the MTU"));
  request = request_for(kDevice);
  request.ifr_qlen = kTransmitQueuePackets;
  TUSK_TRY(control(socket4.number(), SIOCSIFTXQLEN, &request, "set the transmit queue's length"));
  TUSK_TRY(bring_up(socket4.number(), "lo"));
  silence_ipv6();
  TUSK_TRY(set_ipv4(socket4.number(), config));
  TUSK_TRY(bring_up(socket4.number(), kDevice));
  return set_ipv6(config);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Result<Namespace> Namespace::create(const std::string& name) {
  TUSK_TRY(prepare_namespace_folder());
  const std::string path = std::string(kNamespaceFolder) + "/" + name;
  if (!Descriptor(open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0))) {
    return fail_errno("create " + path);
  }
  const Descriptor home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!home) return fail_errno("open /proc/thread-self/ns/net");
  if (unshare(CLONE_NEWNET) != 0) {
    unlink(path.c_str());
    return fail_errno("create a network namespace");
  }
  const int mounted = mount("/proc/thread-self/ns/net", path.c_str(), "none", MS_BIND, nullptr);
  const auto failure = fail_errno("mount " + path);
  TUSK_CHECK(setns(home.number(), CLONE_NEWNET) == 0);
  if (mounted != 0) {
    unlink(path.c_str());
    return failure;
  }
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return Namespace(name, std::move(fd));
}

Namespace::Namespace(Namespace&& other) noexcept : name_(std::move(other.name_)), fd_(std::move(other.fd_)) {
  other.name_.clear();
}

Namespace::~Namespace() {
  if (!name_.empty()) remove_namespace(std::string(kNamespaceFolder) + "/" + name_);
}

std::string namespace_name(const std::string& topology, int pid, char end) {
  return topology + "-wan" + std::to_string(pid) + "-" + end;
}

std::string default_control_path(int pid) {
  return std::string(kControlFolder) + "/tusk-wan" + std::to_string(pid) + ".sock";
}

void remove_stale_runs() {
  const std::regex namespace_pattern(".*-wan([0-9]+)-[ab]");
  const std::regex socket_pattern("tusk-wan([0-9]+)\\.sock");
  std::error_code ignored;
  std::smatch match;
  for (const auto& entry : std::filesystem::directory_iterator(kNamespaceFolder, ignored)) {
    const std::string name = entry.path().filename();
    if (std::regex_match(name, match, namespace_pattern) && !run_is_alive(match[1])) {
      remove_namespace(entry.path());
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(kControlFolder, ignored)) {
    const std::string name = entry.path().filename();
    if (std::regex_match(name, match, socket_pattern) && !run_is_alive(match[1]))
      unlink(entry.path().c_str());
  }
}

std::string EndConfig::ipv4() const {
  return "10." + std::to_string(subnet_high) + "." + std::to_string(subnet_low) + "." + std::to_string(host);
}

std::string EndConfig::ipv6() const {
  // Decimal digits read as hexadecimal ones: the address looks like the IPv4 one.
  return "fd00:" + std::to_string(subnet_high) + ":" + std::to_string(subnet_low) +
         "::" + std::to_string(host);
}

Result<TunDevice> TunDevice::create(const Namespace& where, const EndConfig& config) {
  TUSK_TRY(choose_congestion_control(where, config.tcp_congestion_control));
  TUSK_ASSIGN(const InNamespace inside, InNamespace::enter(where.number()));
  Descriptor tun(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tun) return fail_errno("open /dev/net/tun");
  ifreq request = request_for(kDevice);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  TUSK_TRY(control(tun.number(), TUNSETIFF, &request, "create a TUN device"));
  // Without it the kernel cuts by itself.
  (void)ioctl(tun.number(), TUNSETOFFLOAD, TUN_F_CSUM | kTunOffloadUdp4 | kTunOffloadUdp6);
  TUSK_TRY(configure_device(tun.number(), config));
  TUSK_TRY(raise_tcp_buffers());
  return TunDevice(std::move(tun));
}

TunDevice::TunDevice(Descriptor fd) : fd_(std::move(fd)), incoming_(sizeof(CardHeader) + kMergedBytesMax) {}

std::size_t TunDevice::receive(std::span<std::byte> buffer) {
  if (!cutter_.empty()) return cutter_.next(buffer);
  const ssize_t size = read(fd_.number(), incoming_.data(), incoming_.size());
  CardHeader header;
  if (size <= static_cast<ssize_t>(sizeof header)) return 0;
  std::memcpy(&header, incoming_.data(), sizeof header);
  const auto packet =
      std::span(incoming_).subspan(sizeof header, static_cast<std::size_t>(size) - sizeof header);
  if (header.offload == kOffloadUdp && cutter_.begin(packet, header.segment_size))
    return cutter_.next(buffer);
  // Of UDP it is left to the card again when it goes on (send).
  if ((header.flags & kChecksumLeftToCard) != 0 && !udp_layout_of(packet))
    complete_checksum(packet, header.checksum_start, header.checksum_offset);
  if (packet.size() > buffer.size()) return 0;
  std::memcpy(buffer.data(), packet.data(), packet.size());
  return packet.size();
}

bool TunDevice::send(std::span<const std::byte> packet) {
  if (merger_.add(packet)) return true;
  write_merged();
  if (merger_.add(packet)) return true;
  CardHeader header;
  return write_both(fd_.number(), header, packet);
}

void TunDevice::write_merged() {
  if (merger_.packets() == 0) return;
  const std::span<const std::byte> packet = merger_.merged();
  CardHeader header;
  header.flags = kChecksumLeftToCard;
  header.checksum_start = static_cast<std::uint16_t>(merger_.layout().udp);
  header.checksum_offset = offsetof(udphdr, check);
  if (merger_.packets() > 1) {
    header.offload = kOffloadUdp;
    header.segment_size = static_cast<std::uint16_t>(merger_.segment_size());
    header.headers_size = static_cast<std::uint16_t>(merger_.layout().payload);
  }
  if (!write_both(fd_.number(), header, packet)) {
    refused_.packets += merger_.packets();
    refused_.bytes += packet.size() + (merger_.packets() - 1) * merger_.layout().payload;
  }
  merger_.clear();
}

PacketSink::Refused TunDevice::flush() {
  write_merged();
  return std::exchange(refused_, {});
}

}  // namespace tusk::wan
