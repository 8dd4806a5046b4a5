// A client and a server with keys, and somebody between them who reads, changes, drops, repeats and
// invents datagrams, before and after the handshake. Nothing changed may authenticate, nothing may be
// believed twice, and neither end may crash or spin.
#include <algorithm>
#include <deque>

#include "proto/base/check.h"
#include "proto/rpc/secure_connection.h"
#include "tests/fuzz/targets/operations.h"
#include "tests/fuzz/targets/targets.h"
#include "tests/golden/samples/samples.h"

namespace tusk::fuzz {
namespace {

using rpc::SecureConnection;

constexpr int kOperationsMax = 120;
constexpr int kDatagramsAtOnceMax = 5'000;
constexpr int kTimersAtOnceMax = 50;
constexpr std::size_t kQueueMax = 500;
constexpr std::size_t kRecordedMax = 64;
constexpr int kExchangesMax = 20;

const crypto::Identity& identity() {
  static const crypto::Identity kIdentity = *crypto::Identity::generate();
  return kIdentity;
}

class Wire {
 public:
  explicit Wire(Operations& operations) : operations_(operations) {
    client_ = *SecureConnection::client({identity(), identity().fingerprint(), {}, {}}, now_);
    settle();
  }

  void run() {
    if (operations_.flag()) finish_handshake();
    for (int i = 0; i < kOperationsMax && !operations_.at_end(); ++i) {
      step();
      settle();
    }
  }

 private:
  struct Datagram {
    bool to_server;
    Bytes bytes;
  };

  // ------------------------------------------------ the ends
  [[nodiscard]] SecureConnection* end(bool server) { return server ? server_.get() : client_.get(); }

  bool deliver(const Datagram& datagram) {
    // As the endpoint does: the first handshake packet makes the connection, its ids lead to it.
    const auto header = wire::parse_long_header(datagram.bytes);
    if (datagram.to_server && !server_) {
      if (!header || header->header.type != wire::LongType::kHandshake) return false;
      server_ = *SecureConnection::server(
          {identity(), header->header.to, header->header.from, rpc::random_connection_id(), {}}, now_);
    }
    Bytes bytes = datagram.bytes;
    return end(datagram.to_server)->handle_datagram(now_, bytes, 0);
  }

  void settle() {
    for (int i = 0;; ++i) {
      TUSK_CHECK(i < kTimersAtOnceMax);
      bool quiet = true;
      for (const bool server : {false, true}) {
        SecureConnection* one = end(server);
        if (!one) continue;
        if (one->next_timeout() <= now_) one->handle_timeout(now_);
        send_all(*one, !server);
        look(*one);
        quiet &= one->closed() || one->next_timeout() > now_;
      }
      if (quiet) return;
    }
  }

  void send_all(SecureConnection& one, bool to_server) {
    Bytes out(wire::kDatagramSizeMax);
    for (int i = 0;; ++i) {
      TUSK_CHECK(i < kDatagramsAtOnceMax);
      const auto sent = one.poll_datagram(now_, out);
      if (!sent) return;
      TUSK_CHECK(sent->size <= wire::kDatagramSizeMax);
      if (queue_.size() < kQueueMax)
        queue_.push_back(
            {to_server, Bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(sent->size))});
    }
  }

  void look(SecureConnection& one) {
    while (const auto event = one.poll_event()) {
      const auto* transported = std::get_if<transport::Event>(&*event);
      if (!transported) continue;
      if (const auto* request = std::get_if<transport::RequestArrived>(transported))
        one.connection().reply(request->exchange, request->header, {});
      if (const auto* closed = std::get_if<transport::Closed>(transported)) {
        // Who has no keys cannot make an end accuse the other of breaking the protocol.
        TUSK_CHECK(closed->code != ErrorCode::kMalformed || !one.established());
      }
    }
  }

  void finish_handshake() {
    for (int i = 0; i < 200 && !(client_->established() && server_ && server_->established()); ++i) {
      pass();
      if (queue_.empty()) now_ += 1ms;
      settle();
    }
    TUSK_CHECK(client_->established() && server_->established());
  }

  // ------------------------------------------------ the one between them
  void step() {
    switch (operations_.below(12)) {
      case 0:
        return invent();
      case 1:
        return forge_handshake_packet();
      case 2:
        return forge_answer();
      case 3:
      case 4:
      case 5:
        return pass();
      case 6:
        return change();
      case 7:
        return drop();
      case 8:
        return repeat();
      case 9:
        now_ += std::chrono::microseconds(operations_.u16());
        return;
      case 10:
        now_ += std::chrono::milliseconds(operations_.u16() % 3000);
        return;
      default:
        return open();
    }
  }

  void pass() {
    if (queue_.empty()) return;
    const Datagram datagram = queue_.front();
    queue_.pop_front();
    // What came before its keys was not taken: coming again, it is the first.
    const bool taken = deliver(datagram);
    if (taken && recorded_.size() < kRecordedMax) recorded_.push_back(datagram);
  }

  void drop() {
    if (!queue_.empty()) queue_.pop_front();
  }

  void invent() {
    const bool to_server = operations_.flag();
    const auto bytes = operations_.bytes(1500);
    (void)deliver({to_server, Bytes(bytes.begin(), bytes.end())});
  }

  void change() {
    if (queue_.empty()) return;
    Datagram datagram = queue_[operations_.below(queue_.size())];
    const std::size_t at = operations_.u16() % datagram.bytes.size();
    const std::byte change{operations_.u8()};
    const bool cut = operations_.flag();
    if (cut) {
      datagram.bytes.resize(at);
    } else {
      datagram.bytes[at] ^= change;
    }
    const bool authenticated = deliver(datagram);
    // The one thing that is not authenticated is the receiver's id of retries and their like.
    const bool changed = cut || change != std::byte{0};
    if (changed && wire::is_long_packet(datagram.bytes) == false) TUSK_CHECK(!authenticated);
  }

  void repeat() {
    if (recorded_.empty()) return;
    const Datagram& datagram = recorded_[operations_.below(recorded_.size())];
    SecureConnection* one = end(datagram.to_server);
    const auto before = one->established() ? one->connection().stats().packets_received : 0;
    (void)deliver(datagram);
    if (wire::is_long_packet(datagram.bytes) == false && one->established())
      TUSK_CHECK(one->connection().stats().packets_received == before);
  }

  // Handshake packets are sealed with keys that anybody can compute.
  void forge_handshake_packet() {
    const bool to_server = operations_.flag();
    wire::LongHeader header;
    header.to = to_server && server_ ? server_->own_id() : client_->own_id();
    header.from = to_server ? client_->own_id() : server_ ? server_->own_id() : client_->original_id();
    header.packet_number_low = operations_.u16();
    Bytes packet = golden::encode(header);
    const std::size_t header_size = packet.size();
    const auto payload = operations_.bytes(1200);
    packet.insert(packet.end(), payload.begin(), payload.end());
    packet.resize(packet.size() + wire::kTagSize);
    crypto::PacketProtector::for_handshake(client_->original_id().bytes, to_server)
        .seal(header.packet_number_low, std::span(packet).first(header_size),
              std::span(packet).subspan(header_size));
    if (to_server && !server_) return;
    (void)deliver({to_server, packet});
  }

  void forge_answer() {
    wire::LongHeader header;
    header.type = static_cast<wire::LongType>(1 + operations_.below(3));
    header.to = operations_.flag() ? client_->own_id() : wire::ConnectionIdBytes{};
    header.from = client_->original_id();
    const Bytes token = golden::counting_bytes(operations_.below(wire::kTokenMax + 1));
    header.token = token;
    const bool was_established = client_->established();
    const bool was_closed = client_->closed();
    (void)deliver({false, golden::encode(header)});
    if (was_established && !was_closed) TUSK_CHECK(!client_->closed());
  }

  void open() {
    SecureConnection* one = end(operations_.flag());
    const std::size_t body = operations_.below(20'000);
    if (!one || !one->established() || one->closed() || ++opened_ > kExchangesMax) return;
    (void)one->connection().open_exchange(copy_bytes(golden::counting_bytes(20)),
                                          allocate_bytes(body).first(body), {}, wire::Priority::kBulk);
  }

  Operations& operations_;
  TimePoint now_ = TimePoint() + 1s;
  std::unique_ptr<SecureConnection> client_;
  std::unique_ptr<SecureConnection> server_;
  std::deque<Datagram> queue_;
  std::vector<Datagram> recorded_;
  int opened_ = 0;
};

}  // namespace

void run_secure_connection(std::span<const std::byte> input) {
  Operations operations(input);
  Wire(operations).run();
}

std::vector<Bytes> secure_connection_seeds() {
  std::vector<Bytes> seeds;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    seeds.push_back(random_operations(seed, 150 * seed));
    seeds.back()[0] = static_cast<std::byte>(seed & 1);  // half of them after the handshake
  }
  return seeds;
}

}  // namespace tusk::fuzz
