// A channel of one connection or several: what one core, or one queue of a network card, carries is no limit
// for a mount. The first connection is the mount's main one, for everything that somebody waits for or that
// has an order; READs of bulk bytes go where least is on its way. All share what one connection would have
// beside others (docs/CONGESTION.md), so that they gain cores and nothing else.
//
// A lane that is lost is no outage: its calls go on over the main connection. While that one is not there
// no lane is chosen: the server answers none then, since the session's locks may be given away.
#pragma once

#include <memory>
#include <thread>

#include "proto/base/result.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/lane_policy.h"

namespace tusk::rpc {

struct LaneOptions {
  static constexpr unsigned kConnectionsMax = 8;
  // In all, 1 to kConnectionsMax, as far as the server allows it. 0: one, and more when it is at its limit,
  // up to one for two cores: what comes in has to be copied to programs, too.
  unsigned connections = 1;
  unsigned cores = std::thread::hardware_concurrency();
  LanePolicy::Limits limits = {};                   // of 0
  Duration idle = std::chrono::seconds(30);         // of 0: without bulk calls for so long there is one again
  Duration retry_after = std::chrono::seconds(10);  // when one was lost or did not come about
};

// Like Channel::connect(), which waits for the main connection only. Where there is to be one it is that and
// nothing else; so it is for a mount in the background. Without a thread to be had for it there are no lanes.
[[nodiscard]] Result<std::unique_ptr<Channel>> connect_with_lanes(ChannelOptions options, LaneOptions lanes);

// Asks for bulk bytes, and may be done before or after anything else, and twice. No WRITE: one that still
// waits at the server when its lane is lost, and is sent again over the main connection, would overwrite what
// was written there since.
[[nodiscard]] bool may_take_a_lane(const CallRequest& request);

}  // namespace tusk::rpc
