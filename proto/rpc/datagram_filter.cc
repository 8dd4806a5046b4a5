#include "proto/rpc/datagram_filter.h"

#include <linux/if_ether.h>

#include "proto/base/check.h"
#include "proto/crypto/address_token.h"
#include "proto/wire/types.h"

namespace tusk::rpc {
namespace {

// A socket's filter sees the UDP header, too (unlike a program that chooses among sockets).
constexpr std::uint32_t kPayload = 8;
// proto/wire/packet_header.h.
constexpr std::uint32_t kFirstByte = kPayload;
constexpr std::uint32_t kIdInShort = kPayload + 1;
constexpr std::uint32_t kVersionAt = kPayload + 1;
constexpr std::uint32_t kIdInLong = kPayload + 5;
constexpr std::uint32_t kTokenSizeAt = kPayload + 21;
constexpr std::uint32_t kTokenKindAt = kPayload + 22;
constexpr std::uint32_t kLongBit = 0x80;
constexpr std::uint32_t kKeyPhaseBit = 0x04;
constexpr std::uint32_t kShortFirst = 0x40;
constexpr std::uint32_t kHandshakeFirst = 0xc0;
constexpr std::uint32_t kShortMin = kPayload + wire::kShortHeaderSize + 1 + wire::kTagSize;
// Where the headers of IPv4 and IPv6 have the source's address.
constexpr std::uint32_t kIpv4Source = 12;
constexpr std::uint32_t kIpv6Source = 8;
constexpr std::uint32_t kPass = 0xffffffff;
constexpr std::uint32_t kDrop = 0;

constexpr std::uint32_t network(std::uint32_t offset) {
  return static_cast<std::uint32_t>(SKF_NET_OFF) + offset;
}
constexpr std::uint32_t ancillary(std::uint32_t which) {
  return static_cast<std::uint32_t>(SKF_AD_OFF) + which;
}

sock_filter load_byte(std::uint32_t at) { return BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at); }
sock_filter load_half(std::uint32_t at) { return BPF_STMT(BPF_LD | BPF_H | BPF_ABS, at); }
sock_filter load_word(std::uint32_t at) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at); }
sock_filter load_size() { return BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0); }
sock_filter keep_bits(std::uint32_t bits) { return BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits); }
sock_filter answer(std::uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }
sock_filter test(std::uint16_t how, std::uint32_t value, std::size_t if_so, std::size_t if_not) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | how | BPF_K), value, static_cast<std::uint8_t>(if_so),
                  static_cast<std::uint8_t>(if_not));
}
sock_filter unless_equal(std::uint32_t value, std::size_t skip) { return test(BPF_JEQ, value, 0, skip); }
sock_filter unless_at_least(std::uint32_t value, std::size_t skip) { return test(BPF_JGE, value, 0, skip); }

using Program = std::vector<sock_filter>;

void append(Program& program, const Program& more) {
  program.insert(program.end(), more.begin(), more.end());
}

std::uint32_t word_of(const Source& source, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < sizeof word; ++i) word = word << 8 | source.ip[at + i];
  return word;
}

std::uint32_t token_kind_of(Proof proof) {
  switch (proof) {
    case Proof::kRetry:
      return static_cast<std::uint32_t>(crypto::AddressTokenKind::kRetry);
    case Proof::kEarlier:
      return static_cast<std::uint32_t>(crypto::AddressTokenKind::kFuture);
    default:
      return static_cast<std::uint32_t>(crypto::AddressTokenKind::kAdmitted);
  }
}

// Goes on behind it unless the flight is one of these.
Program thin(const Thinned& which) {
  // Its end: one of so many passes.
  const Program draw = {load_word(ancillary(SKF_AD_RANDOM)), keep_bits(kThinnedTo - 1), unless_equal(0, 1),
                        answer(kPass), answer(kDrop)};
  Program proof;
  if (which.proof == Proof::kNone) {
    proof = {load_byte(kTokenSizeAt), unless_equal(crypto::kAddressTokenBytes, 2), load_byte(kTokenKindAt),
             test(BPF_JGT, token_kind_of(Proof::kAdmitted), 0, draw.size())};
  } else {
    proof = {load_byte(kTokenSizeAt), unless_equal(crypto::kAddressTokenBytes, 2 + draw.size()),
             load_byte(kTokenKindAt), unless_equal(token_kind_of(which.proof), draw.size())};
  }
  append(proof, draw);
  const bool v4 =
      which.source ==
      Source(io::Address::v4(
          {which.source.ip[12], which.source.ip[13], which.source.ip[14], which.source.ip[15]}, 0));
  Program whole = {load_word(ancillary(SKF_AD_PROTOCOL))};
  if (v4) {
    append(whole, {unless_equal(ETH_P_IP, 2 + proof.size()), load_word(network(kIpv4Source)),
                   unless_equal(word_of(which.source, 12), proof.size())});
  } else {
    append(whole,
           {unless_equal(ETH_P_IPV6, 4 + proof.size()), load_word(network(kIpv6Source)),
            unless_equal(word_of(which.source, 0), 2 + proof.size()), load_word(network(kIpv6Source + 4)),
            unless_equal(word_of(which.source, 4), proof.size())});
  }
  append(whole, proof);
  return whole;
}

}  // namespace

std::vector<sock_filter> datagram_filter(ServerTag tag, const std::vector<Thinned>& thinned) {
  TUSK_CHECK(thinned.size() <= kThinnedMax);
  const Program of_short = {
      keep_bits(0xff & ~kKeyPhaseBit),
      unless_equal(kShortFirst, 5),
      load_size(),
      unless_at_least(kShortMin, 3),
      load_half(kIdInShort + ServerTag::kOffset),
      unless_equal(tag.value, 1),
      answer(kPass),
      answer(kDrop),
  };
  Program program = {load_byte(kFirstByte), test(BPF_JSET, kLongBit, of_short.size(), 0)};
  append(program, of_short);
  append(program, {
                      unless_equal(kHandshakeFirst, 2),
                      load_word(kVersionAt),
                      test(BPF_JEQ, wire::kVersion, 1, 0),
                      answer(kDrop),
                      load_half(kIdInLong + ServerTag::kOffset),
                      unless_equal(tag.value, 1),
                      answer(kPass),
                      load_size(),
                      test(BPF_JGE, kPayload + wire::kDatagramSizeMin, 1, 0),
                      answer(kDrop),
                  });
  for (const Thinned& which : thinned) append(program, thin(which));
  program.push_back(answer(kPass));
  return program;
}

}  // namespace tusk::rpc
