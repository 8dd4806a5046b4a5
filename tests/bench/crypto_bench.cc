// What a packet's protection and a handshake cost. Compare with
//   openssl speed -evp aes-256-gcm -bytes 1443
// Packets that fill an MTU of 1500 or 9000 bytes carry 1434 or 8934 bytes of a body: with IPv4 and UDP, our
// header, a frame's and the tag.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <span>
#include <vector>

#include "proto/crypto/address_token.h"
#include "proto/crypto/handshake.h"
#include "proto/crypto/packet_keys.h"
#include "proto/crypto/packet_protection.h"
#include "proto/wire/types.h"

namespace tusk::crypto {
namespace {

constexpr std::size_t kHeaderBytes = wire::kShortHeaderSize;
constexpr std::size_t kFrameHeaderBytes = 9;
// What is sealed, with the tag.
constexpr std::int64_t kUsual = 1500 - 28 - std::int64_t{kHeaderBytes};
constexpr std::int64_t kJumbo = 9000 - 28 - std::int64_t{kHeaderBytes};
static_assert(kUsual - std::int64_t{kFrameHeaderBytes + kTagBytes} == 1434);
static_assert(kJumbo - std::int64_t{kFrameHeaderBytes + kTagBytes} == 8934);

void count_bytes(benchmark::State& state, std::size_t packet_bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * packet_bytes));
}

void seal(benchmark::State& state, PacketCipher cipher) {
  PacketProtector protector(cipher, Secret::random());
  std::vector<std::byte> header(kHeaderBytes);
  std::vector<std::byte> packet(static_cast<std::size_t>(state.range(0)));
  std::uint64_t number = 0;
  for (auto _ : state) protector.seal(number++, header, packet);
  count_bytes(state, packet.size());
}

void seal_tail(benchmark::State& state, PacketCipher cipher) {
  PacketProtector protector(cipher, Secret::random());
  std::vector<std::byte> header(kHeaderBytes);
  std::vector<std::byte> packet(static_cast<std::size_t>(state.range(0)));
  std::vector<std::byte> block(packet.size() - kFrameHeaderBytes - kTagBytes);
  std::uint64_t number = 0;
  for (auto _ : state) protector.seal(number++, header, packet, block);
  count_bytes(state, packet.size());
}

// The cost of an open does not depend on whether the tag is right, but that of a failure's error
// queue does: so each packet is opened as it was sealed, and the copy back is part of the figure.
void open(benchmark::State& state, PacketCipher cipher) {
  PacketProtector protector(cipher, Secret::random());
  std::vector<std::byte> header(kHeaderBytes);
  std::vector<std::byte> sealed(static_cast<std::size_t>(state.range(0)));
  protector.seal(1, header, sealed);
  std::vector<std::byte> packet(sealed.size());
  for (auto _ : state) {
    packet = sealed;
    if (!protector.open(1, header, packet)) state.SkipWithError("did not open");
  }
  count_bytes(state, packet.size());
}

void handshake(benchmark::State& state) {
  const Identity client_identity = *Identity::generate();
  const Identity server_identity = *Identity::generate();
  for (auto _ : state) {
    Handshake client =
        *Handshake::client(client_identity, {.expected_server = server_identity.fingerprint()});
    Handshake server = *Handshake::server(server_identity);
    if (!server.handle_bytes(client.take_output()) || !client.handle_bytes(server.take_output()) ||
        !server.handle_bytes(client.take_output()) || !server.complete())
      state.SkipWithError("did not complete");
  }
}

// What a server spends before it has looked at the first byte.
void handshake_setup(benchmark::State& state) {
  const Identity identity = *Identity::generate();
  for (auto _ : state) {
    Handshake server = *Handshake::server(identity);
    benchmark::DoNotOptimize(server);
  }
}

void key_update(benchmark::State& state) {
  Secret secret = Secret::random();
  for (auto _ : state) {
    secret = next_traffic_secret(secret);
    PacketProtector protector(PacketCipher::kAes256Gcm, secret);
    benchmark::DoNotOptimize(protector);
  }
}

void address_token(benchmark::State& state) {
  const AddressTokens tokens(Secret::random());
  const std::vector<std::byte> address(18);
  const std::vector<std::byte> id(8);
  for (auto _ : state) {
    const auto token = tokens.mint(AddressTokenKind::kRetry, address, id, UnixSeconds{1});
    if (!tokens.check(token, address, id, UnixSeconds{2})) state.SkipWithError("did not check");
  }
}

BENCHMARK_CAPTURE(seal, aes256gcm, PacketCipher::kAes256Gcm)->Arg(kUsual)->Arg(kJumbo);
BENCHMARK_CAPTURE(seal_tail, aes256gcm, PacketCipher::kAes256Gcm)->Arg(kUsual)->Arg(kJumbo);
BENCHMARK_CAPTURE(open, aes256gcm, PacketCipher::kAes256Gcm)->Arg(kUsual)->Arg(kJumbo);
BENCHMARK_CAPTURE(seal, chacha20poly1305, PacketCipher::kChaCha20Poly1305)->Arg(kUsual)->Arg(kJumbo);
BENCHMARK_CAPTURE(open, chacha20poly1305, PacketCipher::kChaCha20Poly1305)->Arg(kUsual)->Arg(kJumbo);
BENCHMARK(handshake)->Unit(benchmark::kMicrosecond);
BENCHMARK(handshake_setup)->Unit(benchmark::kMicrosecond);
BENCHMARK(key_update)->Unit(benchmark::kMicrosecond);
BENCHMARK(address_token)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tusk::crypto
