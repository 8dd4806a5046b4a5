// A mounted file system before a hostile server, in virtual time: programs do anything, the server answers
// anything in any order, pushes, and loses the connection. Every operation ends once, with no more bytes than
// it asked for, and no memory grows without a bound.
//
// What it does not do: the disk cache, and the network below.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fsclient/filesystem.h"
#include "proto/base/check.h"
#include "tests/fuzz/targets/drawn.h"
#include "tests/fuzz/targets/targets.h"

namespace tusk::fuzz {
namespace {

using namespace client;  // NOLINT: this file is all about it

constexpr int kStepsMax = 200;
// Until everything has ended once the server answers nothing but errors.
constexpr int kRoundsMax = 20'000;
constexpr ByteCount kCacheBytes = 8 << 20;

class ForgetfulKernel final : public KernelCache {
 public:
  void invalidate_inode(NodeId) override {}
  void invalidate_from(NodeId, ByteCount) override {}
  void invalidate_range(NodeId, Interval) override {}
  bool invalidate_attributes(NodeId node) override { return node.value() % 2 == 0; }
  void invalidate_entry(NodeId, const std::string&) override {}
};

// One thread and virtual time. What is left is dropped before the file system goes, as
// ThreadScheduler::stop() does.
class VirtualScheduler final : public Scheduler {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void post(Task task) override { tasks_.push_back(std::move(task)); }
  void post_after(Duration delay, Task task) override { timed_.emplace(now_ + delay, std::move(task)); }
  void post_notification(Task task) override { post(std::move(task)); }

  void run() {
    for (int tasks = 0;; ++tasks) {
      TUSK_CHECK(tasks < kTasksMax);
      if (!tasks_.empty()) {
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        task();
      } else if (!timed_.empty() && timed_.begin()->first <= now_) {
        auto due = timed_.extract(timed_.begin());
        due.mapped()();
      } else {
        return;
      }
    }
  }
  void advance(Duration by) {
    now_ += by;
    run();
  }
  void drop() {
    tasks_.clear();
    timed_.clear();
  }

 private:
  static constexpr int kTasksMax = 100'000;  // that follow from one another without time going by

  TimePoint now_{std::chrono::hours(1)};
  std::deque<Task> tasks_;
  std::multimap<TimePoint, Task> timed_;
};

class HostileServer final : public rpc::Caller {
 public:
  rpc::CallId call(rpc::CallRequest request, rpc::Completion done) override {
    const rpc::CallId id(++last_);
    waiting_.emplace(id.value(), Waiting{std::move(request), std::move(done)});
    return id;
  }
  void cancel(rpc::CallId id) override {
    auto found = waiting_.extract(id.value());
    if (!found.empty()) cancelled_.push_back(std::move(found.mapped().done));
  }

  [[nodiscard]] std::size_t waiting() const { return waiting_.size() + cancelled_.size(); }
  // The oldest first.
  void answer(Drawn& drawn) {
    if (waiting_.empty()) return end_cancelled();
    auto found = waiting_.begin();
    std::advance(found, drawn.below(std::min<std::size_t>(waiting_.size(), 16)));
    auto taken = waiting_.extract(found);
    Waiting& its = taken.mapped();
    schema::Reply message = drawn_reply(drawn, its.request.message);
    if (message.error() != 0)
      return its.done(fail(static_cast<ErrorCode>(message.error()), message.message()));
    const ByteCount size = draw_body(drawn, message, its.request.reply_body);
    its.done(rpc::CallReply{std::move(message), size});
  }
  void fail_one(ErrorCode code) {
    if (waiting_.empty()) return end_cancelled();
    auto taken = waiting_.extract(waiting_.begin());
    taken.mapped().done(fail(code, "no more"));
  }
  void drop_calls() {
    waiting_.clear();
    cancelled_.clear();
  }

 private:
  struct Waiting {
    rpc::CallRequest request;
    rpc::Completion done;
  };

  void end_cancelled() {
    for (rpc::Completion& done : std::exchange(cancelled_, {}))
      done(fail(ErrorCode::kCancelled, "cancelled"));
  }
  // Of WALK sometimes what belongs there.
  static ByteCount draw_body(Drawn& drawn, schema::Reply& message, const MutableSharedBytes& room) {
    if (message.has_walk() && drawn.below(4) != 0) {
      const std::string listings = drawn_listings(drawn).SerializeAsString();
      if (listings.size() > room.bytes.size()) return 0;
      message.mutable_walk()->set_length(static_cast<std::uint32_t>(listings.size()));
      message.mutable_walk()->set_compressed(false);
      std::ranges::copy(as_byte_span(listings), room.bytes.begin());
      return listings.size();
    }
    const ByteCount named = message.has_read() ? message.read().length() : message.read_files().length();
    const ByteCount wanted = drawn.below(4) == 0 ? drawn.size(5000) : named;
    const ByteCount size = std::min<ByteCount>(wanted, room.bytes.size());
    std::ranges::fill(room.bytes.first(size), std::byte{'s'});
    return size;
  }

  std::map<std::uint64_t, Waiting> waiting_;
  std::vector<rpc::Completion> cancelled_;
  std::uint64_t last_ = 0;
};

class HostileMount {
 public:
  explicit HostileMount(std::span<const std::byte> input) : operations_(input), drawn_(operations_) {
    Filesystem::Options options;
    options.cache_bytes = kCacheBytes;
    options.log = drawn_.flag();
    options.confirmed = [this] { return scheduler_.now(); };
    options.path = [] { return rpc::PathStats{.connected = true}; };
    filesystem_ = std::make_unique<Filesystem>(server_, scheduler_, kernel_,
                                               drawn_attach_reply(drawn_, "root"), std::move(options));
    nodes_.push_back(kRootNode);
  }
  ~HostileMount() {
    server_.drop_calls();
    scheduler_.drop();
  }

  void run() {
    for (int steps = 0; steps < kStepsMax && !operations_.at_end(); ++steps) {
      step(drawn_.below(32));
      if (drawn_.below(4) != 0) scheduler_.run();
    }
    drain();
    for (const Handle handle : std::exchange(files_, {})) filesystem_->release(handle, false);
    for (const Handle handle : std::exchange(directories_, {})) filesystem_->close_directory(handle);
    drain();
    TUSK_CHECK(filesystem_->cache_used() <= filesystem_->cache_cap());
  }

 private:
  void drain() {
    int rounds = 0;
    do {
      TUSK_CHECK(rounds < kRoundsMax);
      while (server_.waiting() > 0) {
        TUSK_CHECK(++rounds < kRoundsMax);
        server_.fail_one(from_errno(EIO));
        scheduler_.run();
      }
      scheduler_.advance(1s);
    } while (++rounds, outstanding_ > 0 || server_.waiting() > 0);
  }

  template <class T, class Then>
  Done<T> ends(Then then) {
    ++outstanding_;
    return [this, then = std::move(then), ended = false](Result<T> result) mutable {
      TUSK_CHECK(!std::exchange(ended, true));
      --outstanding_;
      if constexpr (std::is_void_v<T>) {
        if (result) then();
      } else {
        if (result) then(*result);
      }
    };
  }
  template <class T>
  Done<T> ends() {
    if constexpr (std::is_void_v<T>) {
      return ends<T>([] {});
    } else {
      return ends<T>([](const T&) {});
    }
  }
  auto learn_entry() {
    return [this](const EntryReply& entry) {
      if (entry.node.value() != 0) nodes_.push_back(entry.node);
    };
  }
  NodeId node() { return nodes_[drawn_.below(nodes_.size())]; }
  std::optional<Handle> file() {
    if (files_.empty()) return std::nullopt;
    return files_[drawn_.below(files_.size())];
  }
  // As the kernel lets them through.
  std::string program_name() { return std::string(1, static_cast<char>('a' + drawn_.below(6))); }

  void step(std::uint64_t what) {
    if (what < 12) return server_.answer(drawn_);
    switch (what) {
      case 12:
        return filesystem_->handle_pushed(drawn_push(drawn_), [] {});
      case 13:
        return scheduler_.advance(std::chrono::milliseconds(drawn_.below(20'000)));
      case 14: {
        if (drawn_.flag()) filesystem_->handle_outage({ErrorCode::kUnreachable, "away"});
        schema::AttachRequest request;
        filesystem_->handle_attaching(request);
        return filesystem_->handle_attached(
            drawn_attach_reply(drawn_, drawn_.below(8) == 0 ? "other" : "root"));
      }
      case 15:
        return server_.fail_one(ErrorCode::kConnectionLost);
      default:
        return what < 24 ? use_names(what - 16) : use_files(what - 24);
    }
  }

  void use_names(std::uint64_t what) {
    switch (what) {
      case 0:
      case 1:
        return filesystem_->lookup({}, node(), program_name(), ends<EntryReply>(learn_entry()));
      case 2:
        return list();
      case 3:
        if (drawn_.flag())
          return filesystem_->remove({}, node(), program_name(), drawn_.flag(), ends<void>());
        return filesystem_->make_node({}, node(), program_name(), drawn_.mode(), 0, "target",
                                      ends<EntryReply>(learn_entry()));
      case 4:
        if (drawn_.flag())
          return filesystem_->rename({}, node(), program_name(), node(), program_name(),
                                     static_cast<std::uint32_t>(drawn_.below(3)), ends<void>());
        return filesystem_->link({}, node(), node(), program_name(), ends<EntryReply>(learn_entry()));
      case 5:
        return filesystem_->attributes({}, node(), ends<AttributesReply>());
      case 6: {
        NewAttributes changes;
        if (drawn_.flag()) changes.mode = drawn_.mode() & 07777;
        if (drawn_.flag()) changes.size = drawn_.size(9000);
        if (drawn_.flag()) changes.mtime = TimeNow{};
        return filesystem_->set_attributes({}, node(), drawn_.flag() ? file() : std::nullopt, changes,
                                           ends<AttributesReply>());
      }
      default:
        return use_rarely(drawn_.below(6));
    }
  }
  void use_rarely(std::uint64_t what) {
    switch (what) {
      case 0:
        return filesystem_->read_link({}, node(), ends<std::string>());
      case 1:
        return filesystem_->statistics({}, node(), ends<schema::StatFsReply>());
      case 2:
        return filesystem_->xattr({}, node(), "user.x", ends<std::string>());
      case 3:
        return filesystem_->list_xattrs({}, node(), ends<std::string>());
      case 4:
        return filesystem_->acquire_root([] {});
      default:
        return filesystem_->flush_all(ends<void>());
    }
  }
  void list() {
    if (const auto opened = filesystem_->open_directory({}, node())) directories_.push_back(opened->handle);
    if (directories_.empty()) return;
    const std::uint64_t entries = 1 + drawn_.below(20);
    auto left = std::make_shared<std::uint64_t>(entries);
    filesystem_->read_directory(
        {}, directories_[drawn_.below(directories_.size())], drawn_.size(5), drawn_.flag(),
        [this, left](const DirectoryEntryOut& out) {
          if (*left == 0) return false;
          --*left;
          if (out.attributes && out.attributes->node.value() != 0) nodes_.push_back(out.attributes->node);
          return true;
        },
        ends<void>());
  }

  void use_files(std::uint64_t what) {
    const auto learn_open = [this](const OpenReply& opened) { files_.push_back(opened.handle); };
    if (what < 2 || files_.empty()) {
      if (drawn_.flag())
        return filesystem_->open({}, node(), drawn_.flag() ? O_RDWR : O_RDONLY, ends<OpenReply>(learn_open));
      return filesystem_->create({}, node(), program_name(), 0644, drawn_.flag() ? O_RDWR | O_EXCL : O_RDWR,
                                 ends<CreateReply>([this, learn_open](const CreateReply& made) {
                                   learn_entry()(made.entry);
                                   learn_open(made.open);
                                 }));
    }
    const Handle handle = *file();
    switch (what) {
      case 2:
      case 3: {
        const ByteCount length = 1 + drawn_.below(20'000);
        return filesystem_->read({}, handle, drawn_.size(9000), length,
                                 ends<ReadPieces>([length](const ReadPieces& pieces) {
                                   ByteCount got = 0;
                                   for (const SharedBytes& piece : pieces) got += piece.size();
                                   TUSK_CHECK(got <= length);
                                 }));
      }
      case 4: {
        const std::string bytes(1 + drawn_.below(5000), 'w');
        return filesystem_->write({}, handle, drawn_.below(9000), as_byte_span(bytes), drawn_.below(4) == 0,
                                  ends<std::uint32_t>());
      }
      case 5:
        if (drawn_.flag()) return filesystem_->flush({}, handle, 0, ends<void>());
        return filesystem_->sync({}, handle, drawn_.flag(), ends<void>());
      case 6:
        if (drawn_.flag())
          return filesystem_->allocate({}, handle, drawn_.size(9000), 1 + drawn_.size(5000), 0, ends<void>());
        if (drawn_.flag()) return seek(handle, drawn_.size(9000));
        return copy(handle, 1 + drawn_.size(5000));
      default:
        return use_locks(handle);
    }
  }
  void seek(Handle handle, ByteCount from) {
    filesystem_->seek({}, handle, from, 3,
                      ends<ByteCount>([from](ByteCount found) { TUSK_CHECK(found >= from); }));
  }
  void copy(Handle handle, ByteCount length) {
    filesystem_->copy_range({}, handle, drawn_.size(5000), *file(), drawn_.size(5000), length,
                            ends<ByteCount>([length](ByteCount copied) { TUSK_CHECK(copied <= length); }));
  }
  void use_locks(Handle handle) {
    // The kernel lets no file go that somebody uses.
    if (drawn_.flag() && outstanding_ == 0) {
      std::erase(files_, handle);
      return filesystem_->release(handle, false);
    }
    NewLock lock{.owner = drawn_.below(3),
                 .type = static_cast<std::uint32_t>(drawn_.below(3)),
                 .end = drawn_.size(90)};
    if (drawn_.flag()) return filesystem_->test_lock({}, handle, lock, ends<schema::LockReply>());
    filesystem_->set_lock({}, handle, lock, ends<void>());
  }

  Operations operations_;
  Drawn drawn_;
  VirtualScheduler scheduler_;
  ForgetfulKernel kernel_;
  HostileServer server_;
  std::unique_ptr<Filesystem> filesystem_;
  std::vector<NodeId> nodes_;
  std::vector<Handle> files_;
  std::vector<Handle> directories_;
  int outstanding_ = 0;
};

}  // namespace

void run_replies(std::span<const std::byte> input) { HostileMount(input).run(); }

std::vector<Bytes> replies_seeds() {
  std::vector<Bytes> seeds;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) seeds.push_back(random_operations(seed, 4000));
  return seeds;
}

}  // namespace tusk::fuzz
