#include "proto/rpc/lanes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/io/clock.h"

namespace tusk::rpc {
namespace {

// Less is sent sooner than a choice matters.
constexpr ByteCount kBulkMin = 64 << 10;
constexpr Duration kConnectingTick = 50ms;
constexpr Duration kOutageTick = 1s;  // while there is no server: it may be gone for the night
// Ids of calls that this class has given. The main channel's own count up from 1.
constexpr std::uint64_t kCarriedId = std::uint64_t{1} << 63;

class ChannelWithLanes final : public Channel {
 public:
  ChannelWithLanes(std::unique_ptr<Channel> main, LaneOptions options, OutagePolicy outage)
      : options_(options), policy_(options.limits), outage_(outage), main_(std::make_shared<Lane>()) {
    main_->channel = std::move(main);
    main_->ready = true;
    if (connections_max() > 1) start_keeper();
  }
  ~ChannelWithLanes() override { close(); }

  CallId call(CallRequest request, Completion done) override;
  void cancel(CallId id) override;
  void hold_calls() override {
    held_ = true;
    main_->channel->hold_calls();
  }
  void release_calls(Renewal renew) override {
    main_->channel->release_calls(std::move(renew));
    held_ = false;
  }
  [[nodiscard]] schema::AttachReply attached() const override { return main_->channel->attached(); }
  [[nodiscard]] crypto::Fingerprint server_fingerprint() const override {
    return main_->channel->server_fingerprint();
  }
  [[nodiscard]] ChannelStats stats() const override;
  [[nodiscard]] bool connected() const override { return main_->channel->connected(); }
  [[nodiscard]] TimePoint confirmed() const override { return main_->channel->confirmed(); }
  void speak_often(bool often) override { main_->channel->speak_often(often); }
  void change_outage_policy(OutagePolicy policy) override;
  void share_with(std::uint64_t flows) override { main_->channel->share_with(flows); }
  [[nodiscard]] Result<std::unique_ptr<Channel>> open_lane() override { return main_->channel->open_lane(); }
  void observe(Events events) override { main_->channel->observe(std::move(events)); }
  void close() override;

 private:
  struct Lane {
    std::uint64_t number = 0;
    std::unique_ptr<Channel> channel;
    bool ready = false;   // it is connected. The keeper changes it, with mutex_ held.
    bool broken = false;  // it has lost a call: for the keeper to end. With mutex_ held.
    // Bulk bytes that were asked for, now and in all. With mutex_ held.
    ByteCount on_its_way = 0;
    ByteCount carried = 0;
    [[nodiscard]] auto load() const { return std::pair(on_its_way, carried); }
  };
  using SharedLane = std::shared_ptr<Lane>;

  // A call that may be carried by any of them, until it has ended.
  struct Carried {
    CallRequest request;  // for the main connection, should `by` be a lane and get lost
    Completion done;
    ByteCount size = 0;
    // With mutex_ held:
    SharedLane by;
    std::optional<CallId> id;  // there; not known yet while it is being made
    bool cancelled = false;
  };
  using SharedCall = std::shared_ptr<Carried>;

  void carry(std::uint64_t number, const SharedCall& call, SharedLane by, CallRequest request);
  void handle_ended(std::uint64_t number, const SharedCall& call, Result<CallReply> reply);
  [[nodiscard]] static bool is_lost(const Result<CallReply>& reply);
  void note_use(bool bulk);
  void wake();

  // The keeper's: opens lanes and ends them, since either may take a while.
  void start_keeper();
  void keep();
  [[nodiscard]] std::vector<SharedLane> lanes() const;
  [[nodiscard]] std::vector<SharedLane> ready_lanes() const;
  [[nodiscard]] Duration look_after(TimePoint now);
  [[nodiscard]] bool settle(TimePoint now);
  [[nodiscard]] bool end_idle(TimePoint now);
  void end(const std::vector<SharedLane>& ended);
  static void close_all(const std::vector<SharedLane>& all);
  void tell_all();
  [[nodiscard]] bool one_more(TimePoint now);
  void open(TimePoint now);
  [[nodiscard]] unsigned connections_max() const;

  const LaneOptions options_;
  std::atomic<bool> held_{false};                // hold_calls()
  std::atomic<TimePoint> used_at_{TimePoint{}};  // by a bulk call
  std::atomic<TimePoint> woken_at_{TimePoint{}};
  std::once_flag closed_;

  // The keeper's alone.
  LanePolicy policy_;
  TimePoint retry_at_{};
  std::uint64_t lanes_opened_ = 0;

  mutable std::mutex mutex_;  // no call is made with it held
  std::condition_variable woken_;
  bool wanted_ = true;  // the keeper is
  bool closing_ = false;
  OutagePolicy outage_;
  const SharedLane main_;
  std::vector<SharedLane> lanes_;  // without the main one
  std::uint64_t next_number_ = 1;
  std::unordered_map<std::uint64_t, SharedCall> calls_;

  std::thread keeper_;
};

// ---------------------------------------------------------------- calls

CallId ChannelWithLanes::call(CallRequest request, Completion done) {
  const bool bulk = may_take_a_lane(request);
  note_use(bulk);
  if (!bulk) return main_->channel->call(std::move(request), std::move(done));
  const auto call = std::make_shared<Carried>();
  call->done = std::move(done);
  call->size = request.reply_body.size();
  const bool lanes_serve = main_->channel->connected() && !held_;
  std::uint64_t number = 0;
  SharedLane by = main_;
  {
    const std::lock_guard lock(mutex_);
    for (const SharedLane& lane : lanes_)
      if (lanes_serve && lane->ready && !lane->broken && lane->load() < by->load()) by = lane;
    by->on_its_way += call->size;
    by->carried += call->size;
    call->by = by;
    number = kCarriedId | next_number_++;
    calls_.emplace(number, call);
  }
  carry(number, call, std::move(by), std::move(request));
  return CallId(number);
}

// `by` is a copy: the call's own changes once it moves on.
void ChannelWithLanes::carry(std::uint64_t number, const SharedCall& call, SharedLane by,
                             CallRequest request) {
  if (by != main_) call->request = request;
  const CallId id = by->channel->call(std::move(request), [this, number, call](Result<CallReply> reply) {
    handle_ended(number, call, std::move(reply));
  });
  {
    const std::lock_guard lock(mutex_);
    if (call->by != by) return;  // it has moved on already
    call->id = id;
    if (!call->cancelled) return;
  }
  by->channel->cancel(id);
}

// A lane that ends, as the keeper or the server wishes, says kPeerClosed; one that is lost, or whose session
// has no main connection at the server, kConnectionLost.
bool ChannelWithLanes::is_lost(const Result<CallReply>& reply) {
  return !reply &&
         (reply.error().code == ErrorCode::kConnectionLost || reply.error().code == ErrorCode::kPeerClosed);
}

void ChannelWithLanes::handle_ended(std::uint64_t number, const SharedCall& call, Result<CallReply> reply) {
  bool lost = false;
  {
    const std::lock_guard lock(mutex_);
    lost = call->by != main_ && is_lost(reply);
    call->by->on_its_way -= call->size;
    if (lost) call->by->broken = true;
    if (lost && (call->cancelled || closing_)) {
      reply = call->cancelled ? fail(ErrorCode::kCancelled)
                              : fail(ErrorCode::kPeerClosed, "the mount is closing");
      lost = false;
    }
    if (lost) {
      call->by = main_;
      call->id.reset();
      main_->on_its_way += call->size;
    } else {
      calls_.erase(number);
    }
  }
  if (!lost) {
    call->request = {};  // whoever is told may use its memory again
    return call->done(std::move(reply));
  }
  wake();
  carry(number, call, main_, std::move(call->request));
}

void ChannelWithLanes::cancel(CallId id) {
  if ((id.value() & kCarriedId) == 0) return main_->channel->cancel(id);
  SharedLane by;
  std::optional<CallId> there;
  {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(id.value());
    if (found == calls_.end()) return;
    found->second->cancelled = true;
    by = found->second->by;
    there = found->second->id;
  }
  if (there) by->channel->cancel(*there);  // else by who is making it
}

// ---------------------------------------------------------------- the keeper

void ChannelWithLanes::note_use(bool bulk) {
  const TimePoint now = io::now();
  if (bulk) used_at_ = now;
  if (now - woken_at_.load() < options_.limits.interval) return;
  woken_at_ = now;
  wake();
}

void ChannelWithLanes::wake() {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
  woken_.notify_one();
}

// A mount that works over one connection is better than none.
void ChannelWithLanes::start_keeper() {
  try {
    keeper_ = std::thread([this] { keep(); });
  } catch (const std::system_error& error) {
    spdlog::warn("no further connections, for want of a thread: {}", error.what());
  }
}

void ChannelWithLanes::keep() {
  Duration pause{};
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto due = [this] { return wanted_ || closing_; };
      if (pause == Duration::max())
        woken_.wait(lock, due);
      else
        woken_.wait_for(lock, pause, due);
      if (closing_) return;
      wanted_ = false;
    }
    pause = look_after(io::now());
  }
}

std::vector<ChannelWithLanes::SharedLane> ChannelWithLanes::lanes() const {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

std::vector<ChannelWithLanes::SharedLane> ChannelWithLanes::ready_lanes() const {
  const std::lock_guard lock(mutex_);
  std::vector<SharedLane> ready = lanes_;
  std::erase_if(ready, [](const SharedLane& lane) { return !lane->ready; });
  return ready;
}

// The result: for how long nothing has to be looked at if nobody calls.
Duration ChannelWithLanes::look_after(TimePoint now) {
  if (settle(now) || end_idle(now)) tell_all();
  while (one_more(now)) open(now);
  const auto all = lanes();
  if (std::ranges::any_of(all, [](const SharedLane& lane) { return !lane->ready; })) return kConnectingTick;
  // Not yet, or not again: the main connection may not have said yet that it is there.
  if (options_.connections != 0 && all.size() + 1 < connections_max())
    return std::max<Duration>(main_->channel->connected() ? kConnectingTick : kOutageTick, retry_at_ - now);
  return all.empty() || options_.connections != 0 ? Duration::max() : options_.idle;
}

// Takes in what has become of lanes. True: there are more or fewer that carry something.
bool ChannelWithLanes::settle(TimePoint now) {
  bool changed = false;
  std::vector<SharedLane> ended;
  for (const SharedLane& lane : lanes()) {
    const ChannelStats stats = lane->channel->stats();
    const std::lock_guard lock(mutex_);
    if (stats.over || lane->broken) {
      changed |= lane->ready;
      lane->ready = false;
      ended.push_back(lane);
    } else if (stats.connected && !lane->ready) {
      changed = lane->ready = true;
    }
  }
  if (!ended.empty()) retry_at_ = now + options_.retry_after;
  end(ended);
  return changed;
}

bool ChannelWithLanes::end_idle(TimePoint now) {
  if (options_.connections != 0 || now - used_at_.load() < options_.idle) return false;
  std::vector<SharedLane> ended;
  {
    const std::lock_guard lock(mutex_);
    // From here on nobody chooses them.
    for (const SharedLane& lane : lanes_)
      if (lane->ready && lane->on_its_way == 0) ended.push_back(lane);
    for (const SharedLane& lane : ended) lane->ready = false;
  }
  end(ended);
  return !ended.empty();
}

// Whatever they still carry goes on over the main connection first.
void ChannelWithLanes::end(const std::vector<SharedLane>& ended) {
  close_all(ended);
  const std::lock_guard lock(mutex_);
  for (const SharedLane& lane : ended) std::erase(lanes_, lane);
}

// At the same time: each waits until its goodbye is out.
void ChannelWithLanes::close_all(const std::vector<SharedLane>& all) {
  std::vector<std::jthread> ends;
  for (const SharedLane& lane : all) {
    try {
      ends.emplace_back([lane] { lane->channel->close(); });
    } catch (const std::system_error&) {  // no thread: then one after the other
      lane->channel->close();
    }
  }
}

void ChannelWithLanes::tell_all() {
  auto all = ready_lanes();
  all.push_back(main_);
  for (const SharedLane& lane : all) lane->channel->share_with(all.size());
  spdlog::info("{} connections to the server", all.size());
}

bool ChannelWithLanes::one_more(TimePoint now) {
  const auto all = lanes();
  const ChannelStats main = main_->channel->stats();
  if (options_.connections == 0) {
    std::vector<LanePolicy::Load> loads{{0, main.network_cpu, main.bytes_sent + main.bytes_received}};
    for (const SharedLane& lane : all) {
      const ChannelStats stats = lane->channel->stats();
      loads.push_back({lane->number, stats.network_cpu, stats.bytes_sent + stats.bytes_received});
    }
    if (!policy_.note(now, loads)) return false;
  }
  return main.connected && now >= retry_at_ && all.size() + 1 < connections_max();
}

void ChannelWithLanes::open(TimePoint now) {
  auto channel = main_->channel->open_lane();
  if (!channel) {
    spdlog::warn("no further connection: {}", channel.error().message());
    retry_at_ = now + options_.retry_after;
    return;
  }
  auto lane = std::make_shared<Lane>();
  lane->number = ++lanes_opened_;
  lane->channel = std::move(*channel);
  const std::lock_guard lock(mutex_);
  lane->channel->change_outage_policy(outage_);
  lanes_.push_back(std::move(lane));
}

unsigned ChannelWithLanes::connections_max() const {
  const unsigned wished = options_.connections != 0 ? options_.connections : (options_.cores + 1) / 2;
  const unsigned allowed = std::max(1U, attached().connections_max());
  return std::min({std::max(1U, wished), LaneOptions::kConnectionsMax, allowed});
}

// ---------------------------------------------------------------- the rest

void ChannelWithLanes::change_outage_policy(OutagePolicy policy) {
  const std::lock_guard lock(mutex_);
  outage_ = policy;
  main_->channel->change_outage_policy(policy);
  for (const SharedLane& lane : lanes_) lane->channel->change_outage_policy(policy);
}

ChannelStats ChannelWithLanes::stats() const {
  ChannelStats sum = main_->channel->stats();
  for (const SharedLane& lane : ready_lanes()) {
    const ChannelStats stats = lane->channel->stats();
    ++sum.connections;
    sum.send_bandwidth += stats.send_bandwidth;
    sum.receive_bandwidth += stats.receive_bandwidth;
    sum.bytes_sent += stats.bytes_sent;
    sum.bytes_received += stats.bytes_received;
    sum.packets_sent += stats.packets_sent;
    sum.packets_received += stats.packets_received;
    sum.packets_lost += stats.packets_lost;
    sum.calls_in_flight += stats.calls_in_flight;
    sum.network_cpu += stats.network_cpu;
  }
  return sum;
}

void ChannelWithLanes::close() {
  std::call_once(closed_, [this] {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      woken_.notify_one();
    }
    if (keeper_.joinable()) keeper_.join();
    // A call that moves on from a lane must find the main connection's thread.
    close_all(lanes());
    main_->channel->close();
  });
}

}  // namespace

bool may_take_a_lane(const CallRequest& request) {
  const schema::Request& message = request.message;
  if (request.priority == Priority::kInteractive || message.sequence() != 0 || request.renew) return false;
  return message.has_read() && request.reply_body.size() >= kBulkMin;
}

Result<std::unique_ptr<Channel>> connect_with_lanes(ChannelOptions options, LaneOptions lanes) {
  // What yields to everybody is not in need of more cores.
  if (options.background || lanes.connections == 1) return Channel::connect(std::move(options));
  const OutagePolicy outage = options.outage;
  TUSK_ASSIGN(auto main, Channel::connect(std::move(options)));
  return std::make_unique<ChannelWithLanes>(std::move(main), lanes, outage);
}

}  // namespace tusk::rpc
