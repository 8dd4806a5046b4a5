// A connection without a network: an rpc::Caller whose calls an rpc::Service in the same process answers.
//
// It can delay calls, let answers overtake each other, hold calls back and make them fail, so that what
// the far side of a WAN does to a client can be tested with real threads and no packets.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "proto/base/random.h"
#include "proto/base/time.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/service.h"

namespace tusk::test {

struct LoopbackOptions {
  Duration delay{};   // one way
  Duration jitter{};  // added at random per direction: messages overtake each other
  std::uint64_t seed = 1;
  crypto::Fingerprint client_key;  // who we are to the service
};

class LoopbackCaller final : public rpc::Caller {
 public:
  // What becomes of a call on its way to the service: nullopt lets it pass.
  using Fault = std::function<std::optional<Error>(const schema::Request&)>;

  // `service` must outlive it.
  LoopbackCaller(rpc::Service& service, LoopbackOptions options = {});
  ~LoopbackCaller() override;
  LoopbackCaller(const LoopbackCaller&) = delete;
  LoopbackCaller& operator=(const LoopbackCaller&) = delete;

  // Sends one call and waits for its answer; not from a completion.
  [[nodiscard]] Result<rpc::CallReply> wait(rpc::CallRequest request);
  [[nodiscard]] Result<schema::AttachReply> attach(schema::AttachRequest request);

  rpc::CallId call(rpc::CallRequest request, rpc::Completion done) override;
  void cancel(rpc::CallId id) override;

  // From now on; thread-safe. Faults are asked on the network thread.
  void inject(Fault fault);
  // Calls stay where they are until go_on(): the server is out of reach.
  void hold_back();
  // The same of those that `which` names; it is asked on the network thread.
  void hold_back(std::function<bool(const schema::Request&)> which);
  void go_on();
  [[nodiscard]] std::size_t calls_held() const;
  // Answers to calls of this kind wait on their way back until they are let through, one by one; the rest of
  // them once none is kept any more (OPERATION_NOT_SET).
  void keep_answers(schema::Request::OperationCase kind);
  void let_answer_through();  // the oldest, once there is one
  [[nodiscard]] std::size_t answers_kept() const;
  // Calls sent so far, of one kind of operation or of all.
  [[nodiscard]] std::uint64_t calls(schema::Request::OperationCase kind) const;
  [[nodiscard]] std::uint64_t calls() const;

  // What the service pushes (through LoopbackClients) arrives there, on the network thread, after its time
  // on the way; so does the answer.
  using Pushed = std::function<void(const schema::Request&, std::move_only_function<void()> answer)>;
  void on_push(Pushed pushed);
  void push(schema::Request request, rpc::Completion done);
  [[nodiscard]] rpc::ConnectionId connection() const { return peer_.connection; }

  // Waits for the service to let go of its calls, ends those in flight with kPeerClosed and joins the
  // thread. Idempotent.
  void close();

 private:
  struct Flight;
  class Incoming;

  void post(Duration delay, std::move_only_function<void()> task);
  void run();
  void deliver(const std::shared_ptr<Flight>& flight);
  void finish(const std::shared_ptr<Flight>& flight, Result<rpc::CallReply> reply);
  void answered(const std::shared_ptr<Flight>& flight, schema::Reply message, const SharedBytes& body);
  [[nodiscard]] std::move_only_function<void()> next_kept();
  [[nodiscard]] Duration travel_time();

  rpc::Service& service_;
  const LoopbackOptions options_;
  const rpc::Peer peer_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Random random_;
  std::multimap<TimePoint, std::move_only_function<void()>> tasks_;
  std::map<std::uint64_t, std::shared_ptr<Flight>> flights_;
  std::map<int, std::uint64_t> counts_;
  std::uint64_t next_id_ = 1;
  Fault fault_;
  Pushed pushed_;
  bool held_back_ = false;
  std::function<bool(const schema::Request&)> held_which_;  // null: all
  schema::Request::OperationCase kept_kind_ = schema::Request::OPERATION_NOT_SET;
  std::deque<std::move_only_function<void()>> kept_answers_;
  std::size_t let_through_ = 0;
  std::vector<std::shared_ptr<Flight>> held_;
  std::size_t incoming_ = 0;  // calls that the service has not let go of
  bool closed_ = false;
  std::thread thread_;
};

// A service's way to the loopback callers of one process. Thread-safe.
class LoopbackClients final : public rpc::Outbound {
 public:
  void add(LoopbackCaller& caller);
  void call(rpc::ConnectionId connection, rpc::CallRequest request, rpc::Completion done) override;
  void disconnect(rpc::ConnectionId, std::string) override {}
  // No more pushes to it.
  void remove(LoopbackCaller& caller);

 private:
  std::mutex mutex_;
  std::map<rpc::ConnectionId, LoopbackCaller*> callers_;
};

}  // namespace tusk::test
