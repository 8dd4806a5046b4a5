// Calls that the peer makes over one connection: from the request to the answer, which comes from any
// thread and at any time, also after the connection or the endpoint is gone.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "proto/io/reactor.h"
#include "proto/rpc/service.h"
#include "proto/transport/connection.h"

namespace tusk::rpc {

// The way back to the network thread for answers; outlives it harmlessly. Thread-safe.
class ReplyRoute {
 public:
  explicit ReplyRoute(io::Reactor& reactor) : reactor_(&reactor) {}
  // False, and `task` is dropped, once the route is cut.
  bool post(io::Task task);
  // After this returns nothing is posted any more.
  void cut();

 private:
  std::mutex mutex_;
  io::Reactor* reactor_;
};

// What a call and its connection share, to tell each other of a cancellation. Thread-safe.
class CallFate {
 public:
  [[nodiscard]] bool cancelled() const;
  // Runs `notify` when cancelled, at once if it is already.
  void on_cancel(std::move_only_function<void()> notify);
  void cancel();
  // No notification after this.
  void settle();

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  bool settled_ = false;
  std::move_only_function<void()> notify_;
};

struct Answer {
  wire::ExchangeId exchange;
  SharedBytes header;
  SharedBytes body;
  // An ATTACH that succeeded: to which session of the peer's, and whether as a further connection of it.
  struct Entry {
    std::string session;
    bool lane = false;
    std::string right;  // the service's name for it; "": it has told none
  };
  std::optional<Entry> entry;
};

// Network thread only.
class IncomingCalls {
 public:
  // Runs on the network thread: puts the answer on the connection if it is still there.
  using Send = std::function<void(Answer)>;

  // Decodes a request and makes the call object for the service. kMalformed: the peer is broken, or sends
  // more than a stranger may.
  [[nodiscard]] Result<std::unique_ptr<IncomingCall>> accept(const Peer& peer,
                                                             const transport::RequestArrived& request,
                                                             std::shared_ptr<ReplyRoute> route, Send send);
  void handle_cancelled(wire::ExchangeId exchange);
  void handle_answered(const Answer& answer) {
    fates_.erase(answer.exchange);
    attached_ |= answer.entry.has_value();
  }
  // The connection is gone.
  void cancel_all();
  [[nodiscard]] std::size_t count() const { return fates_.size(); }
  // The service has let the peer in; until then it is a stranger.
  [[nodiscard]] bool attached() const { return attached_; }

 private:
  bool attached_ = false;
  std::unordered_map<wire::ExchangeId, std::shared_ptr<CallFate>> fates_;
};

}  // namespace tusk::rpc
