// Frames: what the sealed part of a packet is made of (docs/PROTOCOL.md, "Frames").
//
// Each frame is a struct with its encoder and decoder side by side in frame.cc. Decoding hostile bytes
// gives a frame, or nullopt for anything a correct peer would not send; spans point into the packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "proto/base/bytes.h"
#include "proto/base/erasure.h"
#include "proto/wire/types.h"

namespace tusk::wire {

// The one list of frame types.
enum class FrameType : std::uint8_t {
  kPadding = 0x00,
  kPing = 0x01,
  kAck = 0x02,
  kSettings = 0x03,
  kCredit = 0x04,
  kFloor = 0x05,
  kMessageHeader = 0x08,
  kCancel = 0x0a,
  kPathChallenge = 0x0b,
  kPathResponse = 0x0c,
  kClose = 0x0d,
  kAddressToken = 0x0e,
  kResetToken = 0x0f,
  kBody = 0x10,       // data to the end of the packet
  kSizedBody = 0x11,  // data with a length
  kParity = 0x12,     // to who announced kFeatureParity
  kFlowNews = 0x13,   // to who announced kFeatureFlowNews
  kOtherFlows = 0x14,
  kCrypto = 0x20,     // handshake packets only
  kCryptoAck = 0x21,  // handshake packets only
};

// Fills a packet up to a size; a run of zero bytes is one padding frame.
struct PaddingFrame {
  std::size_t size = 1;
};

// Asks for an acknowledgement.
struct PingFrame {};

// What arrived. Ranges are inclusive, descending, at most kAckRangesMax, the first ends in `largest`.
struct AckRange {
  PacketNumber first;
  PacketNumber last;
};
struct AckFrame {
  std::uint64_t delay_us = 0;          // from the arrival of the largest to the sending of this frame
  std::uint64_t received_at_us = 0;    // when the largest arrived, by the receiver's clock
  std::uint64_t congestion_marks = 0;  // packets that came with ECN CE, so far
  std::vector<AckRange> ranges;        // never empty
};

// What a side can do, sent first. Unknown keys are ignored.
enum class SettingKey : std::uint8_t {
  kReceiveSizeMax = 1,  // largest UDP payload it can receive
  kIdleTimeoutMs = 2,   // it forgets the connection after this silence
  kFeatures = 3,        // bits, below
  kPriority = 4,        // 1: background; the peer, too, sends only what the line has left
  kFlows = 5,           // so many connections have together what one would have beside others
  kReceived = 6,        // kbit/s that have reached it over this path before, at best
};
constexpr std::uint64_t kFeatureParity = 1;    // it understands PARITY
constexpr std::uint64_t kFeatureFlowNews = 2;  // a server takes FLOW_NEWS, a client OTHER_FLOWS
constexpr std::uint64_t kPriorityBackground = 1;
constexpr std::uint64_t kFlowsMax = 8;
struct Setting {
  std::uint64_t key = 0;
  std::uint64_t value = 0;
};
struct SettingsFrame {
  std::vector<Setting> settings;
};
constexpr std::size_t kSettingsMax = 32;

// The peer may open exchanges until so many bytes of requests (headers and bodies) and so many
// exchanges have been opened, both counted from the start of the connection.
struct CreditFrame {
  ByteCount request_bytes = 0;
  std::uint64_t exchanges = 0;
};

// No packet below this number will be asked about again: the receiver may forget them.
struct FloorFrame {
  PacketNumber floor;
};

// A piece of a message's header. Every piece repeats the sizes, so any of them can come first.
struct MessageHeaderFrame {
  ExchangeId exchange;
  Priority priority = Priority::kInteractive;
  ByteCount header_size = 0;
  ByteCount body_size = 0;
  ByteCount reply_capacity = 0;  // requests: largest reply body; replies: 0
  ByteCount offset = 0;
  std::span<const std::byte> data;
};

// A piece of a message's body.
struct BodyFrame {
  ExchangeId exchange;
  ByteCount offset = 0;
  std::span<const std::byte> data;
};

// A row of parity of a part of a message's body, from which what is lost of it comes back: of the bytes from
// `offset` on, in rows as long as `data` (proto/base/erasure.h).
struct ParityFrame {
  ExchangeId exchange;
  ByteCount offset = 0;
  ByteCount length = 0;    // of the part: at most erasure::kRowsMax rows
  std::uint8_t index = 0;  // of the row, below erasure::kParityMax
  std::span<const std::byte> data;
};

// What who sends much knows of the path, for others that send from the same host (transport/siblings.h).
// Rates are bytes/s, at most kRateMax, times at most kFlowTimeMax.
struct FlowNewsFrame {
  std::uint64_t flows = 1;       // connections that have together what one would have: 1 to kFlowsMax
  std::uint64_t rate = 0;        // 0: it starts
  ByteCount delivered = 0;       // ever
  std::uint64_t capacity = 0;    // of the bottleneck; 0: unknown
  std::uint64_t base_us = 0;     // round trip without a queue
  std::uint64_t queue_us = 0;    // that it sees
  std::uint64_t emptied_us = 0;  // since it last began to let that run empty, and 1; 0: never
};

// The answer: what those have together that share the path with it. Also without a question: of who has told
// nothing only how many there are.
struct OtherFlowsFrame {
  std::uint64_t around = 1;  // connections from its host, itself with them; most may be idle
  bool answers = false;      // else it is all that is said
  std::uint64_t flows = 0;
  std::uint64_t parts = 0;        // of what one flow would have, in units of 1 / kPartUnits
  std::uint64_t rate = 0;         // of them
  std::uint64_t rate_of_all = 0;  // also of those that see another queue
  std::uint64_t capacity = 0;     // what they take the line for, on average; 0: unknown
  std::uint64_t emptied_us = 0;   // since one of them last began to let the queue run empty, and 1; 0: never
  ByteCount ahead = 0;            // what it had more than its part of what all had
  ByteCount behind = 0;           // or less: one of the two is 0
};
constexpr std::uint64_t kRateMax = 1ull << 40;
constexpr std::uint64_t kOtherFlowsMax = 1 << 20;
constexpr std::uint64_t kFlowTimeMax = 3'600'000'000;  // us
constexpr std::uint64_t kPartUnits = 840;              // divided by all numbers up to kFlowsMax

// The requester does not want the reply any more. The size of the request lets the responder account
// for it even when no piece of it arrived.
struct CancelFrame {
  ExchangeId exchange;
  ByteCount request_bytes = 0;
};

struct PathChallengeFrame {
  std::uint64_t data = 0;
};
struct PathResponseFrame {
  std::uint64_t data = 0;
};

// The connection is over. `code` is an ErrorCode.
struct CloseFrame {
  std::uint16_t code = 0;
  std::span<const std::byte> reason;
};

// Lets the client skip the retry when it comes again.
struct AddressTokenFrame {
  std::span<const std::byte> token;
};

// Given by the server: a reset packet that shows it comes from this server, which forgot the connection.
struct ResetTokenFrame {
  std::span<const std::byte> token;  // kResetTokenSize bytes
};

// A piece of the TLS handshake's bytes.
struct CryptoFrame {
  ByteCount offset = 0;
  std::span<const std::byte> data;
};

// All handshake bytes below `received` have arrived.
struct CryptoAckFrame {
  ByteCount received = 0;
};

using Frame = std::variant<PaddingFrame, PingFrame, AckFrame, SettingsFrame, CreditFrame, FloorFrame,
                           MessageHeaderFrame, BodyFrame, ParityFrame, FlowNewsFrame, OtherFlowsFrame,
                           CancelFrame, PathChallengeFrame, PathResponseFrame, CloseFrame, AddressTokenFrame,
                           ResetTokenFrame, CryptoFrame, CryptoAckFrame>;

// The next frame of a packet's payload; nullopt when it is malformed. Not to be called at the end.
[[nodiscard]] std::optional<Frame> read_frame(ByteReader& reader);

// Encoders write into room that the caller made sure of with the sizes below.
void write_frame(const PaddingFrame& frame, ByteWriter& writer);
void write_frame(const PingFrame& frame, ByteWriter& writer);
void write_frame(const AckFrame& frame, ByteWriter& writer);
void write_frame(const SettingsFrame& frame, ByteWriter& writer);
void write_frame(const CreditFrame& frame, ByteWriter& writer);
void write_frame(const FloorFrame& frame, ByteWriter& writer);
void write_frame(const MessageHeaderFrame& frame, ByteWriter& writer);
void write_frame(const ParityFrame& frame, ByteWriter& writer);
void write_frame(const FlowNewsFrame& frame, ByteWriter& writer);
void write_frame(const OtherFlowsFrame& frame, ByteWriter& writer);
void write_frame(const CancelFrame& frame, ByteWriter& writer);
void write_frame(const PathChallengeFrame& frame, ByteWriter& writer);
void write_frame(const PathResponseFrame& frame, ByteWriter& writer);
void write_frame(const CloseFrame& frame, ByteWriter& writer);
void write_frame(const AddressTokenFrame& frame, ByteWriter& writer);
void write_frame(const ResetTokenFrame& frame, ByteWriter& writer);
void write_frame(const CryptoFrame& frame, ByteWriter& writer);
void write_frame(const CryptoAckFrame& frame, ByteWriter& writer);
// A body frame without a length must be the packet's last.
void write_frame(const BodyFrame& frame, bool last_in_packet, ByteWriter& writer);

// Bytes before the data, with the longest length field: what a piece costs.
[[nodiscard]] std::size_t body_frame_overhead(ExchangeId exchange, ByteCount offset, bool last_in_packet);
[[nodiscard]] std::size_t message_header_frame_overhead(const MessageHeaderFrame& frame);
[[nodiscard]] std::size_t parity_frame_overhead(const ParityFrame& frame);
[[nodiscard]] std::size_t ack_frame_size(const AckFrame& frame);

constexpr std::size_t kCryptoFrameOverhead = 1 + 8 + 4;
// Every frame without variable data fits in this, but for the two below.
constexpr std::size_t kSmallFrameMax = 1 + 8 + 8;
constexpr std::size_t kFlowNewsFrameMax = 1 + 7 * 8;
constexpr std::size_t kOtherFlowsFrameMax = 2 + 9 * 8;
constexpr std::size_t kSettingsFrameMax = 2 + kSettingsMax * 16;

}  // namespace tusk::wire
