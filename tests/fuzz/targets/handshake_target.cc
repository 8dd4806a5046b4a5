// The TLS handshake: fed with anything it neither crashes nor completes; fed with a real peer's bytes,
// changed or not, both sides that complete agree.
#include "proto/base/check.h"
#include "proto/crypto/handshake.h"
#include "tests/fuzz/targets/operations.h"
#include "tests/fuzz/targets/targets.h"

namespace tusk::fuzz {
namespace {

using crypto::Handshake;
using crypto::Identity;

constexpr int kTurnsMax = 16;
constexpr int kPiecesMax = 64;

const Identity& identity() {
  static const Identity kIdentity = *Identity::generate();
  return kIdentity;
}

void feed_anything(Handshake handshake, Operations& operations) {
  (void)handshake.take_output();
  for (int i = 0; i < kPiecesMax && !operations.at_end(); ++i) {
    const auto first = handshake.handle_bytes(operations.bytes(2000));
    (void)handshake.take_output();
    TUSK_CHECK(!handshake.complete());
    if (first) continue;
    const auto second = handshake.handle_bytes({});
    TUSK_CHECK(!second && second.error().code == first.error().code);
  }
}

// Two peers; each flight may have a byte changed or its end missing.
void join_with_faults(Operations& operations) {
  Handshake client = *Handshake::client(identity());
  Handshake server = *Handshake::server(identity());
  bool changed = false;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    Handshake& from = turn % 2 == 0 ? client : server;
    Handshake& to = turn % 2 == 0 ? server : client;
    Bytes flight = from.take_output();
    if (!flight.empty() && operations.u8() < 64) {
      const std::size_t at = operations.u16() % flight.size();
      if (operations.flag()) {
        flight.resize(at);
      } else {
        flight[at] ^= static_cast<std::byte>(operations.u8());
      }
      changed = true;
    }
    const auto handled = to.handle_bytes(flight);
    TUSK_CHECK(handled || changed);
  }
  TUSK_CHECK(changed || (client.complete() && server.complete()));
  if (!client.complete() || !server.complete()) return;
  const auto a = client.export_secrets();
  const auto b = server.export_secrets();
  TUSK_CHECK(a && b && a->client_to_server == b->client_to_server &&
             a->server_to_client == b->server_to_client);
}

}  // namespace

void run_handshake(std::span<const std::byte> input) {
  Operations operations(input);
  switch (operations.below(3)) {
    case 0:
      return feed_anything(*Handshake::client(identity()), operations);
    case 1:
      return feed_anything(*Handshake::server(identity()), operations);
    default:
      return join_with_faults(operations);
  }
}

std::vector<Bytes> handshake_seeds() {
  // A ClientHello for the server, as one piece.
  const Bytes hello = Handshake::client(identity())->take_output();
  Bytes to_server{std::byte{1}, static_cast<std::byte>(hello.size() >> 8),
                  static_cast<std::byte>(hello.size())};
  to_server.insert(to_server.end(), hello.begin(), hello.end());
  Bytes to_client = to_server;
  to_client[0] = std::byte{0};
  Bytes clean(40, std::byte{0xff});
  clean[0] = std::byte{2};
  Bytes faulty = random_operations(3, 40);
  faulty[0] = std::byte{2};
  return {to_server, to_client, clean, faulty};
}

}  // namespace tusk::fuzz
