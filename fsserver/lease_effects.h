// Which nodes a request is going to change: what must be taken back from others before it runs.
#pragma once

#include <string_view>
#include <vector>

#include "fsserver/lease_table.h"
#include "fsserver/node_table.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

// Nothing for requests that only look. `victims`: also the files behind names that are about to go or
// move, which costs a look at each. Acts as whom the calling thread acts as.
[[nodiscard]] std::vector<NodeChange> changes_of(const schema::Request& request, NodeTable& nodes,
                                                 bool victims);

// The directories that a request names to look at them or at what is in them: what others have of them
// exclusively must be taken back before.
[[nodiscard]] std::vector<std::string_view> looked_at(const schema::Request& request);

}  // namespace tusk::server
