#include "fsclient/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "proto/rpc/compression.h"

namespace tusk::client {

static_assert(ReadAhead::kGrainInOrder == kBlockSize);

void Reader::read(const Asker& asker, std::shared_ptr<OpenFile> file, Interval range, ReadDone done) {
  auto op = std::make_shared<ReadOperation>();
  op->file = std::move(file);
  op->range = range;
  op->done = std::move(done);
  if (asker.interrupt) {
    asker.interrupt->on_fire([this, weak = std::weak_ptr(op)] {
      core_.scheduler.post_after(core_.path.interrupt_grace(), [this, weak] {
        const Operation stuck = weak.lock();
        if (!stuck) return;
        Deferred after;
        const std::lock_guard lock(stuck->file->inode->mutex);
        if (!stuck->ended) end(*stuck, fail(ErrorCode::kCancelled, "read"), after);
      });
    });
  }
  proceed(op);
}

void Reader::proceed(const Operation& op) {
  advance(op);
  core_.cache.trim();  // a read that has ended no longer holds its blocks
}

// Runs until the bytes have come: every round either ends the read or waits for fetches that bring some of
// it.
void Reader::advance(const Operation& op) {
  Deferred after;
  Inode& inode = *op->file->inode;
  const std::lock_guard lock(inode.mutex);
  if (op->ended) return;
  FileData& data = inode.file->data;
  const Interval range{op->range.begin, std::min({op->range.end, inode.size(), op->end_of_file})};
  if (comes_ahead(*inode.file, range) && !std::exchange(op->waited_ahead, true))
    return inode.file->ahead_waiters.push_back([this, op] { proceed(op); });
  // Also when it is nothing: the kernel fills a page with zeros.
  if (!op->file->direct()) {
    inode.file->data_handed_out = true;
    if (!std::exchange(op->into_pages, true)) {
      inode.file->kernel_reads.ranges.push_back(op->range);
      op->drops = inode.file->kernel_reads.drops;
    }
  }
  if (range.empty()) return end(*op, ReadPieces{}, after);
  if (op->held.empty()) {
    op->held = range;
    data.hold(op->held);
  }
  if (needs_check(*op, range)) return check(op, after);
  const bool first_round = !std::exchange(op->begun, true);
  const bool there = all_brought(*op, data, range);
  ReadAheadAdvice advice;
  if (first_round) advice = observe(*op->file, range, !there);
  for (const Interval& left : advice.give_up) give_up(data, left, after);
  const bool waits = !there && may_wait(op, range);
  if (waits) {
    fetch_missing(op->file, range, after);
    for (const auto& fetch : data.fetches_of(range)) {
      fetch->waiters.push_back(op);
      ++op->waiting;
    }
  }
  fetch_ahead(op->file, advice.fetch, after);
  if (!there) return;
  if (first_round) {
    core_.counters.read_from_cache += range.size();
    kept_.keep(inode, range);
  }
  end(*op, compose(*op, data, range), after);
}

// ---------------------------------------------------------------- what a read is made of

// Once, before anything is asked for: what comes later is of the call's own time.
bool Reader::needs_check(ReadOperation& op, Interval range) {
  if (std::exchange(op.checked, true)) return false;
  Inode& inode = *op.file->inode;
  return !facts_.bytes_fresh_locked(inode) && inode.file->data.has_settled(range);
}

// Reads that come meanwhile wait for the same answer.
void Reader::check(const Operation& op, Deferred& after) {
  auto& waiting = op->file->inode->file->waiting_for_check;
  waiting.push_back(op);
  if (waiting.size() > 1) return;
  after.add([this, inode = op->file->inode] {
    ask_(inode, [this, inode](const Result<bool>& asked) { checked(inode, asked); });
  });
}

void Reader::checked(const std::shared_ptr<Inode>& inode, const Result<bool>& asked) {
  bool changed = false;
  std::vector<Operation> waiting;
  {
    Deferred after;
    const std::lock_guard lock(inode->mutex);
    FileState& file = *inode->file;
    waiting.swap(file.waiting_for_check);
    if (!asked) {
      for (const Operation& op : waiting)
        if (!op->ended) end(*op, std::unexpected(asked.error()), after);
      return;
    }
    if (!facts_.bytes_fresh_locked(*inode)) {
      const bool leased = core_.trust.covered(inode->attributes.learnt(), core_.scheduler.now());
      changed = !facts_.check_bytes_locked(*inode, leased) && std::exchange(file.data_handed_out, false);
    }
  }
  if (changed) {
    facts_.drop_pages_beside_reads(*inode);
    const std::lock_guard lock(inode->mutex);
    for (const Operation& op : waiting) op->drops = inode->file->kernel_reads.drops;
  }
  for (const Operation& op : waiting) core_.scheduler.post([this, op] { proceed(op); });
}

bool Reader::all_brought(const ReadOperation& op, const FileData& data, Interval range) {
  if (data.has(range)) return true;
  if (op.brought.empty()) return false;
  IntervalSet known;
  for (const Interval& part : data.parts(range)) known.add(part.begin, part.end);
  for (const auto& [part, bytes] : op.brought) known.add(part.begin, part.end);
  return known.covers(range.begin, range.end);
}

// What is in the cache goes first: programs here may have written over what was brought.
ReadPieces Reader::compose(const ReadOperation& op, FileData& data, Interval range) {
  if (data.has(range)) return data.lend(range);
  ReadPieces pieces;
  const auto fill_gap = [&](Interval gap) {
    while (!gap.empty()) {
      const auto found = std::ranges::find_if(op.brought, [&](const auto& brought) {
        return brought.first.begin <= gap.begin && gap.begin < brought.first.end;
      });
      const auto& [part, bytes] = *found;
      const ByteCount size = std::min(part.end, gap.end) - gap.begin;
      pieces.push_back(bytes.subspan(gap.begin - part.begin, size));
      gap.begin += size;
    }
  };
  for (const Interval& here : data.parts(range)) {
    fill_gap({range.begin, here.begin});
    std::ranges::move(data.lend(here), std::back_inserter(pieces));
    range.begin = here.end;
  }
  fill_gap(range);
  return pieces;
}

// A fetch of the read's has ended: its bytes, now, since they may be forgotten before the read goes on.
void Reader::bring_to(ReadOperation& op, FileData& data, const Fetch& fetch) {
  const ByteCount end = fetch.range.begin + fetch.filled;
  const auto part = [&](ByteCount from, ByteCount to) {
    return Interval{std::max(from, op.range.begin), std::min({to, op.range.end, fetch.range.end})};
  };
  if (!fetch.stale) {
    const Interval all = part(fetch.range.begin, std::max(end, fetch.zero_end));
    if (!all.empty() && data.has(all)) op.brought.emplace_back(all, data.lend(all).front());
    return;
  }
  op.once = true;
  if (const Interval bytes = part(fetch.range.begin, end); !bytes.empty())
    op.brought.emplace_back(
        bytes, fetch.target.first(fetch.filled).subspan(bytes.begin - fetch.range.begin, bytes.size()));
  if (const Interval zeros = part(end, fetch.zero_end); !zeros.empty())
    op.brought.emplace_back(zeros, copy_bytes(std::vector<std::byte>(zeros.size())));
  if (end < fetch.range.end && fetch.zero_end == 0) op.end_of_file = std::min(op.end_of_file, end);
}

// Asking for it as well would take longer. What waits for a drop of pages would wait for ever, since the
// kernel drops none that it is reading; and bytes for a file of which others were handed out are not taken
// in.
bool Reader::comes_ahead(const FileState& file, Interval range) {
  return file.asked_ahead == AskedAhead::kOnItsWay && !file.data_handed_out && !range.empty() &&
         !file.data.has(range);
}

// A program that wants a page, say of a file that it has just opened, does not wait for the whole block that
// is worth fetching: that follows in a call of its own, which is given up if the file is closed meanwhile.
void Reader::fetch_missing(const std::shared_ptr<OpenFile>& file, Interval range, Deferred& after) {
  Inode& inode = *file->inode;
  const auto fetch = [&](Interval wanted, ByteCount grain) {
    for (auto& begun : inode.file->data.begin_fetches(wanted, grain, inode.size(), core_.call_max))
      start(file, std::move(begun), after);
  };
  const ByteCount grain = grain_of(*file, range);
  const bool first = range.size() <= ReadAhead::kGrainNearby && !kept_.has_some_of(inode, range);
  const Interval blocks{range.begin / grain * grain,
                        std::min(inode.size(), (range.end + grain - 1) / grain * grain)};
  if (!first || grain <= ReadAhead::kGrainNearby) return fetch(range, grain);
  fetch(range, ReadAhead::kGrainNearby);
  if (room_ahead() >= blocks.size()) fetch_ahead(file, {blocks}, after, true);
}

// The disk reads and checks whole blocks.
ByteCount Reader::grain_of(const OpenFile& file, Interval range) const {
  return kept_.has_some_of(*file.inode, range) ? kBlockSize : file.read_ahead.grain();
}

// One that has little to fetch should not stand behind the kernel's read-ahead of other files: a quarter of
// the room is for such. One whose bytes are on their way takes no room.
bool Reader::may_wait(const Operation& op, Interval range) {
  const ByteCount missing = op->file->inode->file->data.missing(range);
  if (missing == 0 || op->entered > 0) return true;
  const ByteCount blocks = (range.end - 1) / kBlockSize - range.begin / kBlockSize + 1;
  const bool little = missing <= kInteractiveMax;
  op->queued = blocks * kBlockSize;
  if (!waiting_reads_.enter(op, op->queued, little ? in_flight_max() : waiting_bulk_max(), little))
    return false;
  op->entered = op->queued;
  return true;
}

void Reader::leave(ByteCount size) {
  for (const Operation& next : waiting_reads_.leave(size, waiting_bulk_max()))
    core_.scheduler.post([this, next] { take_turn(next); });
}

void Reader::take_turn(const Operation& op) {
  {
    Deferred after;
    const std::lock_guard lock(op->file->inode->mutex);
    if (op->ended) return after.add([this, size = op->queued] { leave(size); });  // interrupted meanwhile
    op->entered = op->queued;
  }
  proceed(op);
}

void Reader::end(ReadOperation& op, Result<ReadPieces> result, Deferred& after) {
  op.ended = true;
  if (op.entered > 0) after.add([this, size = op.entered] { leave(size); });
  FileData& data = op.file->inode->file->data;
  if (op.file->read_ahead.sequential())
    data.note_spent(op.held);
  else
    data.touch(op.held);
  data.release(op.held);
  if (op.into_pages) {
    FileState::KernelReads& reads = op.file->inode->file->kernel_reads;
    if (result)
      pages_.given_locked(*op.file->inode, op.range, op.once || op.drops != reads.drops, after);
    else
      reads.end(op.range);
  }
  if (result)
    for (const SharedBytes& piece : *result) {
      core_.counters.read += piece.size();
      op.file->read_bytes += piece.size();
    }
  after.add([done = std::move(op.done), result = std::move(result)]() mutable { done(std::move(result)); });
}

// ---------------------------------------------------------------- reading ahead

ByteCount Reader::window_max() const {
  const rpc::PathStats path = core_.path.recent();
  const ByteCount product = path_holds(path, path.receive_bandwidth);
  core_.cache.budget()->grow_for(product);
  const bool known = path.rtt_min > Duration::zero() && path.receive_bandwidth > 0;
  const ByteCount line = known ? std::max(kWindowMin, kWindowProducts * product) : kWindowUnknown;
  return std::min(line, ahead_max()) / census_.count();
}

ByteCount Reader::bet_max(ByteCount window_max) const {
  if (!bets_ || core_.path.receives_slowly()) return 0;
  return std::max(window_max, std::min(kBet, ahead_max()) / census_.count());
}

ByteCount Reader::room_ahead() const {
  const ByteCount taken = ahead_in_flight_.load(std::memory_order_relaxed);
  return ahead_max() - std::min(ahead_max(), taken);
}

ReadAheadAdvice Reader::observe(OpenFile& file, Interval range, bool waited) {
  const std::uint64_t period = census_.period(core_.scheduler.now());
  const ByteCount most = window_max();
  const bool won_before = file.read_ahead.bet() == ReadAhead::Bet::kWon;
  ReadAheadAdvice advice = file.read_ahead.observe(
      range, waited, file.inode->size(),
      {.window_max = most, .period = period, .burst = bet_max(most), .room = room_ahead()});
  if (!won_before && file.read_ahead.bet() == ReadAhead::Bet::kWon) bets_ = true;
  if (advice.hungry) census_.add();
  return advice;
}

void Reader::fetch_ahead(const std::shared_ptr<OpenFile>& file, const std::vector<Interval>& ranges,
                         Deferred& after, bool follows_page) {
  Inode& inode = *file->inode;
  for (const Interval& range : ranges) {
    for (auto& fetch :
         inode.file->data.begin_fetches(range, grain_of(*file, range), inode.size(), core_.call_max)) {
      fetch->read_ahead = true;
      fetch->follows_page = follows_page;
      ahead_in_flight_ += fetch->range.size();
      start(file, std::move(fetch), after);
    }
  }
}

void Reader::fetch_whole(const std::shared_ptr<Inode>& inode, std::move_only_function<void()> done) {
  // As if it were open: READ by handle needs no open at the server.
  const auto file = std::make_shared<OpenFile>(inode, 0, O_RDONLY, [](std::uint64_t) {});
  const auto whole = std::make_shared<WholeFetch>();
  Deferred after;
  const std::lock_guard lock(inode->mutex);
  const Interval all{0, inode->size()};
  fetch_ahead(file, {all}, after);
  for (const auto& fetch : inode->file->data.fetches_of(all)) {
    fetch->whole = whole;
    ++whole->parts;
  }
  if (whole->parts == 0) return after.add(std::move(done));
  whole->done = std::move(done);
}

// Fetches ahead that nobody waits for.
void Reader::give_up(FileData& data, Interval range, Deferred& after) {
  for (const auto& fetch : data.fetches_of(range)) {
    if (!fetch->read_ahead || !fetch->waiters.empty()) continue;
    fetch->given_up = true;
    if (const rpc::CallId call(fetch->call.load()); call != rpc::CallId())
      after.add([this, call] { core_.remote.cancel(call); });
  }
}

void Reader::handle_close(const std::shared_ptr<OpenFile>& file) {
  Deferred after;
  const std::lock_guard lock(file->inode->mutex);
  if (file->read_ahead.bet() == ReadAhead::Bet::kOpen) bets_ = false;
  if (!file->inode->file) return;
  FileData& data = file->inode->file->data;
  if (file->inode->open_files.empty()) return give_up(data, kWholeFile, after);
  for (const Interval& pending : file->read_ahead.pending()) give_up(data, pending, after);
}

// ---------------------------------------------------------------- fetching

void Reader::start(const std::shared_ptr<OpenFile>& file, std::shared_ptr<Fetch> fetch, Deferred& after) {
  fetch->started = core_.scheduler.now();
  if (!kept_.has_some_of(*file->inode, fetch->range)) return ask(file, fetch, after);
  after.add([this, file, fetch = std::move(fetch)] { bring(file, fetch); });
}

// Once all is asked for, and while the answer is on its way, the memory for what somebody waits for is
// provided: else the thread that receives it would wait for the system.
void Reader::ask(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch,
                 Deferred& after) {
  if (is_interactive(*fetch)) after.add_last([target = fetch->target] { provide_memory(target.bytes); });
  after.add([this, file, fetch] { call(file, fetch); });
}

bool Reader::is_interactive(const Fetch& fetch) const {
  const bool head = fetch.range.end <= kHeadMax && !core_.path.receives_slowly();
  const bool urgent = head || fetch.range.size() <= kInteractiveMax;
  return urgent && (!fetch.read_ahead || fetch.follows_page);
}

// From the disk of this machine, else from the server.
void Reader::bring(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch) {
  kept_.bring(file->inode, fetch->range, fetch->target, [this, file, fetch](std::uint64_t change) {
    Deferred after;
    Inode& inode = *file->inode;
    const std::lock_guard lock(inode.mutex);
    const bool right = change != 0 && inode.file->version.is(change) && !inode.written_since(fetch->started);
    if (fetch->stale || !right) return ask(file, fetch, after);
    if (fetch->read_ahead) ahead_in_flight_ -= fetch->range.size();
    fetch->filled = fetch->range.size();
    inode.file->data.end_fetch(fetch, fetch->filled, 0, change);
    after.add([this] { core_.cache.trim(); });
    go_on(fetch, {}, after);
  });
}

void Reader::call(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch) {
  rpc::CallRequest request;
  schema::ReadRequest& read = *request.message.mutable_read();
  read.set_handle(file->inode->handle());
  read.set_open_id(file->open_id);
  read.set_offset(fetch->range.begin);
  read.set_length(static_cast<std::uint32_t>(fetch->range.size()));
  read.set_compress(core_.path.receives_slowly());
  request.reply_body = fetch->target;
  request.priority = is_interactive(*fetch) ? rpc::Priority::kInteractive : rpc::Priority::kBulk;
  const rpc::CallId id = core_.remote.transfer(
      std::move(request), schema::Reply::kRead, [this, file, fetch](Result<rpc::CallReply> reply) mutable {
        if (!reply || !reply->message.read().compressed()) return finish(file, fetch, std::move(reply));
        core_.scheduler.post([this, file, fetch, packed = std::move(*reply)]() mutable {
          finish(file, fetch, unpack(*fetch, std::move(packed)));
        });
      });
  fetch->call = id.value();
  if (fetch->given_up) core_.remote.cancel(id);  // meanwhile, by somebody who could not know the call yet
}

// On a worker. The target is the fetch's alone until it ends.
Result<rpc::CallReply> Reader::unpack(const Fetch& fetch, rpc::CallReply reply) {
  schema::ReadReply& read = *reply.message.mutable_read();
  if (read.length() > fetch.range.size())
    return fail(ErrorCode::kMalformed, "a READ reply longer than asked for");
  TUSK_ASSIGN(const SharedBytes plain,
              rpc::decompress(fetch.target.bytes.first(reply.body_size), read.length()));
  if (!plain.empty()) std::memcpy(fetch.target.bytes.data(), plain.bytes.data(), plain.size());
  reply.body_size = plain.size();
  read.set_compressed(false);
  return reply;
}

void Reader::finish(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch,
                    Result<rpc::CallReply> reply) {
  Deferred after;
  Inode& inode = *file->inode;
  const std::lock_guard lock(inode.mutex);
  if (fetch->read_ahead) ahead_in_flight_ -= fetch->range.size();
  const Result<void> outcome = take_in(inode, fetch, reply);
  after.add([this] { core_.cache.trim(); });  // the last answer may come when nobody reads any more
  go_on(fetch, outcome, after);
}

// With the inode's mutex held.
void Reader::go_on(const std::shared_ptr<Fetch>& fetch, const Result<void>& outcome, Deferred& after) {
  const auto whole = std::exchange(fetch->whole, nullptr);
  if (whole && --whole->parts == 0) after.add(std::move(whole->done));
  for (const Operation& op : std::exchange(fetch->waiters, {})) {
    if (op->ended) continue;
    --op->waiting;
    if (outcome) bring_to(*op, op->file->inode->file->data, *fetch);
    // Given up because nobody waited, a moment before somebody did, or read without the open file that it
    // has: it asks again.
    const bool again = outcome || outcome.error().code == ErrorCode::kCancelled || whole != nullptr;
    if (!again)
      end(*op, std::unexpected(outcome.error()), after);
    else if (op->waiting == 0)
      after.add([this, op] { core_.scheduler.post([this, op] { proceed(op); }); });
  }
}

Result<void> Reader::take_in(Inode& inode, const std::shared_ptr<Fetch>& fetch,
                             const Result<rpc::CallReply>& reply) {
  FileState& file = *inode.file;
  if (!reply) {
    file.data.end_fetch(fetch, 0, 0, 0);
    return std::unexpected(reply.error());
  }
  const schema::ReadReply& read = reply->message.read();
  const ByteCount filled = reply->body_size;
  if (read.compressed() || read.length() != filled || filled > fetch->range.size() ||
      (filled < fetch->range.size() && !read.end_of_file())) {
    file.data.end_fetch(fetch, 0, 0, 0);
    return fail(ErrorCode::kMalformed, "a READ reply whose parts disagree");
  }
  core_.counters.fetched += filled;
  if (fetch->read_ahead) core_.counters.fetched_ahead += filled;
  const bool ours = inode.written_since(fetch->started);
  fetch->filled = filled;
  fetch->zero_end = ours ? inode.size() : 0;
  const Told told(fetch->started, reply->message, read.cover());
  // Read while somebody was changing them, or under a lease that has been taken back since.
  if (!fetch->stale && (told.cover == schema::COVER_ONCE || fetch->started < file.pushed_at))
    file.data.forget(fetch->range);
  // Past the server's end of file there can be bytes that programs have written and it has not got yet,
  // and a hole before them.
  file.data.end_fetch(fetch, filled, fetch->zero_end, ours ? 0 : read.change());
  if (!fetch->stale) facts_.note_bytes_locked(inode, told.learnt(core_.scheduler.now()));
  if (ours) return {};
  if (fetch->stale) {
    if (filled < fetch->range.size()) {
      inode.attributes.expire(core_.scheduler.now());
      core_.loans.withdraw_locked(inode);
    }
    return {};
  }
  if (!file.version.is(read.change())) {
    // Others change it while we read; or they did before, and the attributes tell of it by now.
    const bool already_told = file.version.mixed() && inode.attributes.value().change == read.change();
    file.version.mix();
    if (!already_told) {
      inode.attributes.expire(core_.scheduler.now());
      core_.loans.withdraw_locked(inode);
    }
  }
  if (filled < fetch->range.size()) {
    const ByteCount end = fetch->range.begin + filled;
    inode.attributes.adjust([end](Attributes& attr) { attr.size = std::min(attr.size, end); });
    inode.attributes.expire(core_.scheduler.now());
    core_.loans.withdraw_locked(inode);
  }
  kept_.keep(inode, fetch->range);
  return {};
}

}  // namespace tusk::client
