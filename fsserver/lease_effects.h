// Which nodes a request is going to change: what must be taken back from others before it runs.
#pragma once

#include <vector>

#include "fsserver/lease_table.h"
#include "fsserver/node_table.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::server {

// Nothing for requests that only look. `victims`: also the files behind names that are about to go or
// move, which costs a look at each. Acts as whom the calling thread acts as.
[[nodiscard]] std::vector<NodeChange> changes_of(const schema::Request& request, NodeTable& nodes,
                                                 bool victims);

}  // namespace tusk::server
