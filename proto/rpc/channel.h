// A client's lasting relation to one export: connects, attaches, keeps alive, reconnects, replays.
//
// Owns one network thread (reactor, socket, engine). What it does not do: anything about files.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proto/base/result.h"
#include "proto/crypto/identity.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/path_stats.h"
#include "proto/rpc/push_listener.h"
#include "proto/schema/tusk.pb.h"
#include "proto/transport/remembered_path.h"

namespace tusk::rpc {

// What calls do while the server is out of reach. Can be changed on a live channel.
struct OutagePolicy {
  // Calls fail with kTimedOut after the server has been out of reach this long; nullopt: they wait
  // (and can always be cancelled).
  std::optional<std::chrono::seconds> fail_after;
};

struct ChannelOptions {
  std::string host;  // name or address
  std::uint16_t port = 8875;
  const crypto::Identity* identity = nullptr;  // must outlive the channel
  std::optional<crypto::Fingerprint>
      server_fingerprint;        // nullopt: accept any at first; see Channel::server_fingerprint()
  schema::AttachRequest attach;  // sent on every (re)connect, before anything else
  OutagePolicy outage;
  std::chrono::seconds connect_timeout{10};
  // For how long another key than the server had must be shown before calls fail with EACCES: whoever sees
  // our first flight can answer it with a key of his own, and a laptop may pass through a foreign network.
  std::chrono::milliseconds other_key_believed = std::chrono::seconds(20);
  bool background = false;                                   // both sides send only what the line has left
  std::optional<transport::RememberedPath> remembered = {};  // of the path to this server
};

// The path, and how things stand with the server at its end.
struct ChannelStats : PathStats {
  std::string down_because;  // while not connected: what the last try came to
  // The server answers and does not let us in any more, for a reason that waiting does not mend. Calls
  // fail; now and then the channel asks again.
  bool refused = false;
  // That reason is that it is not the server that let us in, by its key.
  bool key_changed = false;
  crypto::Fingerprint own_key;  // by which the server knows us
  unsigned connections = 1;     // lanes.h; what is counted of them is their sum
  Duration network_cpu{};       // what the network thread has computed so far
  bool over = false;            // a lane that is lost, or never came about
};

class Channel : public Caller {
 public:
  // Blocks until the export is attached or it is clear that it cannot be: kUnreachable,
  // kFingerprintMismatch, kTokenRefused, kNoSuchExport, kVersionMismatch, kBadConfig (host name).
  // Once attached, the same words of the server, or another key than it had, end calls with EACCES until it
  // takes them back.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> connect(ChannelOptions options);

  // All thread-safe.
  [[nodiscard]] virtual schema::AttachReply attached() const = 0;  // of the newest attach
  [[nodiscard]] virtual crypto::Fingerprint server_fingerprint() const = 0;
  [[nodiscard]] virtual ChannelStats stats() const = 0;
  // Attached, for all that is known: as in stats(), without their price.
  [[nodiscard]] virtual bool connected() const = 0;
  // When the newest packet left that is known to have arrived at the server; what left before it may still be
  // lost. TimePoint::min(): nothing is known.
  [[nodiscard]] virtual TimePoint confirmed() const = 0;
  // The server hears from us as often as exclusiveness needs, which lasts for less time than leases; or only
  // as often as these need.
  virtual void speak_often(bool often) = 0;
  virtual void change_outage_policy(OutagePolicy policy) = 0;
  // It is one of `flows` connections that have together what one would have beside others (lanes.h).
  virtual void share_with(std::uint64_t flows) = 0;
  // A further connection of the session, with a thread of its own; does not wait until it is connected. It is
  // tried once: when it is lost its calls end with kConnectionLost, and it is over. Where calls fail after an
  // outage it is lost after one: what its calls come to is for another connection to say. Errors: of the
  // system; kLimitExceeded, no thread was to be had.
  [[nodiscard]] virtual Result<std::unique_ptr<Channel>> open_lane() = 0;

  // Runs on the network thread, must not block: before and after every re-attach (session resumed or not),
  // and for calls that the server makes (invalidate).
  struct Events {
    // Before a re-attach: what the server should be told with it.
    std::move_only_function<void(schema::AttachRequest&)> reattaching;
    std::move_only_function<void(const schema::AttachReply&)> reattached;
    // Calls have failed with this, for want of a server or of the right to use it; those that outlive outages
    // still wait. Again and again as long as it is so.
    std::move_only_function<void(const Error&)> gave_up;
    PushListener::Listen pushed;
  };
  // What came before is told now: who takes his time does not miss a push or a re-attach.
  virtual void observe(Events events) = 0;

  // Says goodbye, ends calls in flight with kPeerClosed, joins the thread. Idempotent; at most 1 s.
  virtual void close() = 0;
};

}  // namespace tusk::rpc
