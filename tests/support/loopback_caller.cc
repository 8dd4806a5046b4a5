#include "tests/support/loopback_caller.h"

#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <vector>

#include "proto/io/clock.h"

namespace tusk::test {
namespace {

rpc::ConnectionId next_connection() {
  static std::atomic<std::uint64_t> last{0};
  return rpc::ConnectionId(++last);
}

}  // namespace

// One call between call() and its completion.
struct LoopbackCaller::Flight {
  std::uint64_t id = 0;
  rpc::CallRequest request;
  rpc::Completion done;
  // Under the caller's mutex.
  bool ended = false;
  bool cancelled = false;
  std::move_only_function<void()> on_cancel;
};

class LoopbackCaller::Incoming final : public rpc::IncomingCall {
 public:
  Incoming(LoopbackCaller& caller, std::shared_ptr<Flight> flight)
      : caller_(caller), flight_(std::move(flight)) {
    const std::lock_guard lock(caller_.mutex_);
    ++caller_.incoming_;
  }
  ~Incoming() override {
    if (!replied_) reply_error(ErrorCode::kInternal, "dropped unanswered");
    const std::lock_guard lock(caller_.mutex_);
    --caller_.incoming_;
    caller_.changed_.notify_all();  // under the lock: the caller may be gone after it
  }

  const rpc::Peer& peer() const override { return caller_.peer_; }
  const schema::Request& message() const override { return flight_->request.message; }
  SharedBytes body() const override { return flight_->request.body; }
  ByteCount reply_body_capacity() const override { return flight_->request.reply_body.size(); }
  bool cancelled() const override {
    const std::lock_guard lock(caller_.mutex_);
    return flight_->cancelled;
  }
  void on_cancel(std::move_only_function<void()> notify) override {
    {
      const std::lock_guard lock(caller_.mutex_);
      if (!flight_->cancelled) {
        flight_->on_cancel = std::move(notify);
        return;
      }
    }
    notify();
  }
  void reply(schema::Reply message, SharedBytes body) override {
    replied_ = true;
    caller_.answered(flight_, std::move(message), body);
  }

 private:
  LoopbackCaller& caller_;
  const std::shared_ptr<Flight> flight_;
  bool replied_ = false;
};

LoopbackCaller::LoopbackCaller(rpc::Service& service, LoopbackOptions options)
    : service_(service),
      options_(options),
      peer_{.connection = next_connection(), .key = options.client_key, .address = "loopback"},
      random_(options.seed),
      thread_([this] { run(); }) {}

LoopbackCaller::~LoopbackCaller() { close(); }

// ---------------------------------------------------------------- calls

Result<rpc::CallReply> LoopbackCaller::wait(rpc::CallRequest request) {
  std::promise<Result<rpc::CallReply>> promise;
  auto future = promise.get_future();
  call(std::move(request), [&promise](Result<rpc::CallReply> reply) { promise.set_value(std::move(reply)); });
  return future.get();
}

Result<schema::AttachReply> LoopbackCaller::attach(schema::AttachRequest request) {
  rpc::CallRequest call;
  *call.message.mutable_attach() = std::move(request);
  TUSK_ASSIGN(rpc::CallReply reply, wait(std::move(call)));
  return std::move(*reply.message.mutable_attach());
}

rpc::CallId LoopbackCaller::call(rpc::CallRequest request, rpc::Completion done) {
  auto flight = std::make_shared<Flight>();
  flight->request = std::move(request);
  flight->done = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    flight->id = next_id_++;
    ++counts_[flight->request.message.operation_case()];
    flights_.emplace(flight->id, flight);
  }
  post(travel_time(), [this, flight] { deliver(flight); });
  return rpc::CallId(flight->id);
}

void LoopbackCaller::deliver(const std::shared_ptr<Flight>& flight) {
  Fault fault;
  {
    const std::lock_guard lock(mutex_);
    if (flight->ended || closed_) return;
    if (held_back_ && (!held_which_ || held_which_(flight->request.message))) {
      held_.push_back(flight);
      return;
    }
    fault = fault_;
  }
  if (fault)
    if (std::optional<Error> error = fault(flight->request.message))
      return finish(flight, std::unexpected(std::move(*error)));
  service_.handle_call(std::make_unique<Incoming>(*this, flight));
}

void LoopbackCaller::answered(const std::shared_ptr<Flight>& flight, schema::Reply message,
                              const SharedBytes& body) {
  std::move_only_function<void()> arrive = [this, flight, message = std::move(message), body]() mutable {
    {
      const std::lock_guard lock(mutex_);
      if (flight->ended) return;  // its memory is somebody else's again
    }
    if (message.error() != 0)
      return finish(flight, fail(static_cast<ErrorCode>(message.error()), message.message()));
    if (body.size() > flight->request.reply_body.size())
      return finish(flight, fail(ErrorCode::kMalformed, "more bytes than there is room for"));
    if (!body.empty()) std::memcpy(flight->request.reply_body.bytes.data(), body.bytes.data(), body.size());
    finish(flight, rpc::CallReply{std::move(message), body.size()});
  };
  {
    const std::lock_guard lock(mutex_);
    if (flight->request.message.operation_case() == kept_kind_) {
      kept_answers_.push_back(std::move(arrive));
      arrive = next_kept();
    }
  }
  if (arrive) post(travel_time(), std::move(arrive));
}

// With the mutex held.
std::move_only_function<void()> LoopbackCaller::next_kept() {
  if (let_through_ == 0 || kept_answers_.empty()) return nullptr;
  --let_through_;
  auto oldest = std::move(kept_answers_.front());
  kept_answers_.pop_front();
  return oldest;
}

void LoopbackCaller::keep_answers(schema::Request::OperationCase kind) {
  std::deque<std::move_only_function<void()>> kept;
  {
    const std::lock_guard lock(mutex_);
    kept_kind_ = kind;
    let_through_ = 0;
    kept.swap(kept_answers_);
  }
  for (auto& answer : kept) post(travel_time(), std::move(answer));
}

std::size_t LoopbackCaller::answers_kept() const {
  const std::lock_guard lock(mutex_);
  return kept_answers_.size();
}

void LoopbackCaller::let_answer_through() {
  std::move_only_function<void()> answer;
  {
    const std::lock_guard lock(mutex_);
    ++let_through_;
    answer = next_kept();
  }
  if (answer) post(travel_time(), std::move(answer));
}

void LoopbackCaller::finish(const std::shared_ptr<Flight>& flight, Result<rpc::CallReply> reply) {
  {
    const std::lock_guard lock(mutex_);
    if (flight->ended) return;
    flight->ended = true;
    flights_.erase(flight->id);
  }
  flight->done(std::move(reply));
  flight->done = nullptr;
}

void LoopbackCaller::cancel(rpc::CallId id) {
  post({}, [this, id] {
    std::shared_ptr<Flight> flight;
    std::move_only_function<void()> notify;
    {
      const std::lock_guard lock(mutex_);
      const auto found = flights_.find(id.value());
      if (found == flights_.end()) return;
      flight = found->second;
      flight->cancelled = true;
      notify = std::exchange(flight->on_cancel, nullptr);
    }
    if (notify) notify();
    finish(flight, fail(ErrorCode::kCancelled, "cancelled"));
  });
}

// ---------------------------------------------------------------- the way there and back

Duration LoopbackCaller::travel_time() {
  const std::lock_guard lock(mutex_);
  return options_.delay + from_seconds(random_.uniform() * to_seconds(options_.jitter));
}

void LoopbackCaller::post(Duration delay, std::move_only_function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.emplace(io::now() + delay, std::move(task));
  changed_.notify_all();
}

void LoopbackCaller::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const TimePoint due = tasks_.begin()->first;
    const TimePoint now = io::now();
    if (due > now) {
      changed_.wait_for(lock, due - now);
      continue;
    }
    auto task = std::move(tasks_.extract(tasks_.begin()).mapped());
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void LoopbackCaller::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    changed_.notify_all();
  }
  thread_.join();
  service_.handle_disconnect(peer_, false);
  // As an endpoint does: who waits for something else, as a LOG for the one before it, would wait for ever.
  std::vector<std::move_only_function<void()>> notices;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, flight] : flights_) {
      flight->cancelled = true;
      if (flight->on_cancel) notices.push_back(std::exchange(flight->on_cancel, nullptr));
    }
  }
  for (auto& notify : notices) notify();
  std::map<std::uint64_t, std::shared_ptr<Flight>> left;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return incoming_ == 0; });
    left = flights_;
    held_.clear();
  }
  for (const auto& [id, flight] : left) finish(flight, fail(ErrorCode::kPeerClosed, "closed"));
}

// ---------------------------------------------------------------- what tests do to it

void LoopbackCaller::inject(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

void LoopbackCaller::hold_back() {
  const std::lock_guard lock(mutex_);
  held_back_ = true;
  held_which_ = nullptr;
}

void LoopbackCaller::hold_back(std::function<bool(const schema::Request&)> which) {
  const std::lock_guard lock(mutex_);
  held_back_ = true;
  held_which_ = std::move(which);
}

std::size_t LoopbackCaller::calls_held() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

void LoopbackCaller::go_on() {
  std::vector<std::shared_ptr<Flight>> held;
  {
    const std::lock_guard lock(mutex_);
    held_back_ = false;
    held_which_ = nullptr;
    held.swap(held_);
  }
  for (auto& flight : held) post({}, [this, flight] { deliver(flight); });
}

void LoopbackCaller::on_push(Pushed pushed) {
  const std::lock_guard lock(mutex_);
  pushed_ = std::move(pushed);
}

void LoopbackCaller::push(schema::Request request, rpc::Completion done) {
  post(travel_time(), [this, request = std::move(request), done = std::move(done)]() mutable {
    Pushed pushed;
    {
      const std::lock_guard lock(mutex_);
      pushed = pushed_;
    }
    auto answer = [this, done = std::move(done)]() mutable {
      post(travel_time(), [done = std::move(done)]() mutable {
        rpc::CallReply reply;
        reply.message.mutable_empty();
        done(std::move(reply));
      });
    };
    if (pushed) return pushed(request, std::move(answer));
    answer();
  });
}

void LoopbackClients::add(LoopbackCaller& caller) {
  const std::lock_guard lock(mutex_);
  callers_.emplace(caller.connection(), &caller);
}

void LoopbackClients::remove(LoopbackCaller& caller) {
  const std::lock_guard lock(mutex_);
  callers_.erase(caller.connection());
}

void LoopbackClients::call(rpc::ConnectionId connection, rpc::CallRequest request, rpc::Completion done) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = callers_.find(connection); found != callers_.end())
      return found->second->push(std::move(request.message), std::move(done));
  }
  done(fail(ErrorCode::kConnectionLost, "the client is gone"));
}

std::uint64_t LoopbackCaller::calls(schema::Request::OperationCase kind) const {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(kind);
  return found == counts_.end() ? 0 : found->second;
}

std::uint64_t LoopbackCaller::calls() const {
  const std::lock_guard lock(mutex_);
  return next_id_ - 1;
}

}  // namespace tusk::test
