// Calls that this side makes: from the caller's request to its completion, over one connection after
// another. What is not answered when a connection ends is kept, and sent again on the next.
//
// Network thread only.
#pragma once

#include <map>
#include <unordered_map>

#include "proto/rpc/caller.h"
#include "proto/transport/connection.h"

namespace tusk::rpc {

class OutgoingCalls {
 public:
  struct Call {
    SharedBytes header;  // the encoded message
    SharedBytes body;
    MutableSharedBytes reply_body;
    Priority priority = Priority::kInteractive;
    Completion done;
    bool adds_up = false;           // done twice it would have twice the effect (O_APPEND)
    bool outlives_outages = false;  // CallRequest's
    Renewal renew;                  // the same
    bool ahead = false;             // the same
  };

  // Keeps a call; it goes out with start() or start_all().
  void add(CallId id, Call call) { calls_.emplace(id, Entry{std::move(call), std::nullopt, false}); }
  void start(CallId id, transport::Connection& connection);
  // For a server that does not remember the session that the message was made in.
  void renew(CallId id);
  void renew(CallId id, const Renewal& by);
  // In the order in which they were made. Unless the session was `resumed` the server does not remember
  // what it has done: calls that were sent before and add up end with EIO instead, and messages are renewed.
  // kAhead: others wait for start_rest().
  enum class Which : std::uint8_t { kAll, kAhead };
  void start_all(transport::Connection& connection, bool resumed, Which which = Which::kAll);
  // All that have not begun, each renewed by `by` before, if that is not null. `connection`: null: there is
  // none now.
  void start_rest(transport::Connection* connection, const Renewal& by);

  // Ends with kCancelled; `connection` may be null while there is none.
  void cancel(CallId id, transport::Connection* connection);
  // The call this reply belongs to ends.
  void handle_reply(const transport::ReplyArrived& reply);
  // The connection is gone: everything waits to be started again.
  void detach();
  // Everything ends with this error.
  void fail_all(const Error& error);
  // All but what outlives outages, which goes on waiting: for the caller to fail.
  [[nodiscard]] std::vector<Completion> take_in_outage();

  [[nodiscard]] std::size_t count() const { return calls_.size(); }

 private:
  struct Entry {
    Call call;
    std::optional<wire::ExchangeId> exchange;
    bool sent_before = false;  // on a connection that is gone
  };

  using Calls = std::map<CallId, Entry>;  // ordered: ids rise with time
  static void renew(Call& call, const Renewal& by);
  // Taken out: its completion.
  [[nodiscard]] Completion take(Calls::iterator place);

  Calls calls_;
  std::unordered_map<wire::ExchangeId, CallId> by_exchange_;
};

}  // namespace tusk::rpc
