// What a path does to the bytes of an IP packet: damage and ECN marks. Anything that is not a packet it
// understands passes unchanged.
#pragma once

#include <cstddef>
#include <span>

#include "proto/base/random.h"

namespace tusk::wan {

// Changes one byte of the transport payload so that the change reaches a UDP program: over IPv4 the UDP
// checksum is cleared, over IPv6 (where zero is not allowed, RFC 8200 §8.1) it is made right again.
// A damaged TCP segment keeps its checksum and dies in the receiving kernel, as it would on a real path.
// False when there is no payload to change.
bool corrupt(std::span<std::byte> packet, Random& random);

// Sets Congestion Experienced (RFC 3168) if the packet says it is ECN-capable. False when it is not.
bool mark_congestion(std::span<std::byte> packet);

}  // namespace tusk::wan
