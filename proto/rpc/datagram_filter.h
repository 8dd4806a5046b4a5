// What a server's socket lets through while it is flooded, as a program for the kernel (socket(7),
// SO_ATTACH_FILTER; classic BPF, which needs no privilege). The kernel drops the rest before it wakes
// anybody.
//
// A packet for a connection passes if it is for an id with the server's tag (steering.h), a first flight if
// it has the size of one. Of first flights from a source that sends too many one in kThinnedTo passes.
//
// Packets that the kernel has merged (UDP_GRO) pass or fail by the first of them.
//
// Pure; any thread.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "proto/rpc/source.h"
#include "proto/rpc/steering.h"

namespace tusk::rpc {

// First flights from there with a token of this kind, or what claims to be one, are too many. kNone: with
// none.
struct Thinned {
  Source source;
  Proof proof = Proof::kNone;

  friend auto operator<=>(const Thinned&, const Thinned&) = default;
};

constexpr std::size_t kThinnedMax = 8;
constexpr unsigned kThinnedTo = 16;  // a power of two

// `thinned`: at most kThinnedMax.
[[nodiscard]] std::vector<sock_filter> datagram_filter(ServerTag tag, const std::vector<Thinned>& thinned);

}  // namespace tusk::rpc
