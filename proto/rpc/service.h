// What the network sees of a server: calls come in, each is answered once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/base/result.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"
#include "proto/base/time.h"
#include "proto/crypto/identity.h"
#include "proto/rpc/caller.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::rpc {

// A connection for as long as the process lives; never reused.
using ConnectionId = StrongInt<struct ConnectionIdTag>;

// Who is on the other end: proven by the handshake, the same for a connection's whole life.
struct Peer {
  ConnectionId connection;
  crypto::Fingerprint key;  // of the client's identity
  std::string address;      // at the time of the handshake, for logs: "192.0.2.7:40112"
  // When the newest authenticated packet came; the network thread writes it before it acknowledges the
  // packet. It is final once handle_disconnect() runs. nullptr: nobody measures it.
  std::shared_ptr<const std::atomic<TimePoint>> heard = {};

  // `otherwise`: where nobody measures it.
  [[nodiscard]] TimePoint last_heard(TimePoint otherwise) const { return heard ? heard->load() : otherwise; }
};

// One call to be answered. Answer from any thread, exactly once; dropping it unanswered answers
// kInternal. All methods are thread-safe.
class IncomingCall {
 public:
  virtual ~IncomingCall() = default;

  [[nodiscard]] virtual const Peer& peer() const = 0;
  [[nodiscard]] virtual const schema::Request& message() const = 0;
  // The bulk bytes sent along with a WRITE; they stay valid as long as a copy of the SharedBytes does, and
  // count against the client's credit until the call is answered.
  [[nodiscard]] virtual SharedBytes body() const = 0;
  // The client takes at most this many bytes of bulk reply.
  [[nodiscard]] virtual ByteCount reply_body_capacity() const = 0;
  // The client gave up or is gone: no answer is needed, work may stop. `reply` is still allowed.
  [[nodiscard]] virtual bool cancelled() const = 0;
  // Runs once if the call is cancelled before its answer (at once if it already is), on the connection's
  // network thread; must not block. For waits without end, such as a lock.
  virtual void on_cancel(std::move_only_function<void()> notify) = 0;

  // Of an ATTACH that is going to succeed: all connections by the same right share what requests may hold.
  virtual void note_right(std::string /*right*/) {}

  // `body` must not be written to any more; it is released when the client has it.
  virtual void reply(schema::Reply message, SharedBytes body = {}) = 0;

  void reply_error(ErrorCode code, std::string context = {}) {
    schema::Reply message;
    message.set_error(static_cast<std::uint32_t>(code));
    message.set_message(std::move(context));
    reply(std::move(message));
  }
};

// The way from a service to the clients it serves. All methods are thread-safe and do not block.
class Outbound {
 public:
  virtual ~Outbound() = default;
  // A call from the server to a client. kConnectionLost when that connection is gone. `done` runs on a
  // network thread, or on the one that ends the endpoint.
  virtual void call(ConnectionId connection, CallRequest request, Completion done) = 0;
  // Ends a connection; its client is told `reason`.
  virtual void disconnect(ConnectionId connection, std::string reason) = 0;
};

// Implemented by the file server. Called on network threads, of which there may be several at once: must not
// block. Those of one connection come one after the other, handle_disconnect last; nothing is ordered between
// connections, not even those of one mount, whose old one may still be heard when the new one has attached.
class Service {
 public:
  virtual ~Service() = default;
  virtual void handle_call(std::unique_ptr<IncomingCall> call) = 0;
  // No more calls will come from this peer; calls in flight may still be answered, into the void. `for_good`:
  // it said goodbye, so it will not come back under another connection.
  virtual void handle_disconnect(const Peer& peer, bool for_good) = 0;
};

}  // namespace tusk::rpc
