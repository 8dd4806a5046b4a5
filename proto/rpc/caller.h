// What a file system sees of the network: calls with a message, bulk bytes beside it, and a reply.
//
// Caller is implemented over the transport by rpc::Channel, and in memory by tests. A call survives a
// lost connection: it is sent again after the reconnect (docs/PROTOCOL.md, "Sessions"), so it ends in
// exactly one of: a reply, a failure named below, or cancel().
#pragma once

#include <cstdint>
#include <functional>

#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::rpc {

// Order on the wire. Interactive calls overtake bulk; background yields to everything, also to other
// programs on the line.
enum class Priority : std::uint8_t { kInteractive = 0, kBulk = 1, kBackground = 2 };

// Names a call in flight; never reused by one Caller.
using CallId = StrongInt<struct CallIdTag>;

// Makes a message one that a server process understands which does not remember the session; it may see the
// same message several times. On the network thread, or within call().
using Renewal = std::function<void(schema::Request&)>;

struct CallRequest {
  schema::Request message;
  SharedBytes body;               // sent along (WRITE); nobody may write to it until the call ended
  MutableSharedBytes reply_body;  // where the reply's bulk bytes land (READ); its size is what the
                                  // server may send. Undefined content until the call ended well.
  Priority priority = Priority::kInteractive;
  // It waits through outages and refusals however long they last, and fails only when the caller is closed:
  // what has been answered to a program already must not be lost because the server was away.
  bool outlives_outages = false;
  Renewal renew;       // may be null: the message is as good for any server
  bool ahead = false;  // it goes also while others are held (Caller::hold_calls)
};

struct CallReply {
  schema::Reply message;    // message.error() == 0: other codes arrive as the Result's Error
  ByteCount body_size = 0;  // bytes of reply_body that were filled, from its start
};

// Runs on the caller's network thread: must not block, and may start further calls. Errors: what the
// server answered (errno or Tusk's codes), kConnectionLost/kUnreachable/kTimedOut by the outage
// policy, kCancelled after cancel(), kPeerClosed after shutdown.
using Completion = std::move_only_function<void(Result<CallReply>)>;

class Caller {
 public:
  virtual ~Caller() = default;

  // Thread-safe; never blocks; `done` runs exactly once, and never inside this call while the caller is
  // open (a closed one refuses at once).
  virtual CallId call(CallRequest request, Completion done) = 0;

  // Thread-safe. The call ends with kCancelled unless it ended before; the server is told, but its
  // effect may have happened. Unknown ids are ignored.
  virtual void cancel(CallId id) = 0;

  // From here on no call goes to the server but those `ahead`, until release_calls(): those that have no
  // answer yet, too. Only while a re-attach is told (Channel::Events::reattached).
  virtual void hold_calls() {}
  // Thread-safe. All messages that were made before are renewed by `renew` then, which may be null.
  virtual void release_calls(Renewal) {}
};

}  // namespace tusk::rpc
