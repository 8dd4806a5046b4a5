#include "fsclient/reader.h"

#include <algorithm>
#include <cstring>

#include "proto/rpc/compression.h"

namespace tusk::client {

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

// Runs until the bytes are there: every round either ends the read or waits for fetches to end.
void Reader::advance(const Operation& op) {
  Deferred after;
  Inode& inode = *op->file->inode;
  const std::lock_guard lock(inode.mutex);
  if (op->ended) return;
  FileData& data = inode.file->data;
  inode.file->data_handed_out = true;
  const Interval range{op->range.begin, std::min(op->range.end, inode.size())};
  if (range.empty()) return end(*op, ReadPieces{}, after);
  const bool first_round = op->rounds++ == 0;
  if (first_round) {
    op->held = range;
    data.hold(op->held);
  }
  if (op->rounds > kRoundsMax) return end(*op, fail(from_errno(EIO), "the file keeps changing"), after);

  if (data.has(range)) {
    if (first_round) {
      read_ahead(op->file, range, after);
      core_.counters.read_from_cache += range.size();
    }
    return end(*op, data.lend(range), after);
  }
  const bool in_order = op->file->read_ahead.sequential();
  for (auto& fetch :
       data.begin_fetches(range, in_order ? kBlockSize : kRandomGrain, inode.size(), core_.call_max))
    start(op->file, std::move(fetch), after);
  for (const auto& fetch : data.fetches_of(range)) {
    fetch->waiters.push_back(op);
    ++op->waiting;
  }
  if (first_round) read_ahead(op->file, range, after);
}

void Reader::end(ReadOperation& op, Result<ReadPieces> result, Deferred& after) {
  op.ended = true;
  FileData& data = op.file->inode->file->data;
  if (op.file->read_ahead.sequential())
    data.make_coldest(op.held);
  else
    data.touch(op.held);
  data.release(op.held);
  if (result)
    for (const SharedBytes& piece : *result) core_.counters.read += piece.size();
  after.add([done = std::move(op.done), result = std::move(result)]() mutable { done(std::move(result)); });
}

// ---------------------------------------------------------------- reading ahead

ByteCount Reader::window_max() const {
  const rpc::PathStats path = core_.path.recent();
  const auto product = static_cast<ByteCount>(path.receive_bandwidth * to_seconds(path.rtt_smoothed));
  core_.cache.budget()->grow_for(product);
  const ByteCount memory_share =
      core_.cache.budget()->cap() / 2 / std::max<ByteCount>(1, streams_.load(std::memory_order_relaxed));
  const bool known = path.rtt_min > Duration::zero() && path.receive_bandwidth > 0;
  return std::min(known ? std::max(kWindowMin, 2 * product) : kWindowUnknown, memory_share);
}

void Reader::read_ahead(const std::shared_ptr<OpenFile>& file, Interval range, Deferred& after) {
  Inode& inode = *file->inode;
  const Interval ahead = file->read_ahead.observe(range.begin, range.size(), inode.size(), {window_max()});
  if (file->read_ahead.sequential() != file->reading_ahead) {
    file->reading_ahead = file->read_ahead.sequential();
    streams_ += file->reading_ahead ? 1u : -1u;
  }
  if (ahead.empty()) return;
  for (auto& fetch : inode.file->data.begin_fetches(ahead, kBlockSize, inode.size(), core_.call_max)) {
    fetch->read_ahead = true;
    core_.counters.fetched_ahead += fetch->range.size();
    start(file, std::move(fetch), after);
  }
}

void Reader::handle_close(const std::shared_ptr<OpenFile>& file) {
  Deferred after;
  const std::lock_guard lock(file->inode->mutex);
  if (file->reading_ahead) --streams_;
  file->reading_ahead = false;
  if (!file->inode->file || !file->inode->open_files.empty()) return;
  for (const auto& fetch : file->inode->file->data.fetches_of(kWholeFile)) {
    const rpc::CallId call(fetch->call.load());
    if (fetch->waiters.empty() && call != rpc::CallId())
      after.add([this, call] { core_.remote.cancel(call); });
  }
}

// ---------------------------------------------------------------- fetching

void Reader::start(const std::shared_ptr<OpenFile>& file, std::shared_ptr<Fetch> fetch, Deferred& after) {
  fetch->started = core_.scheduler.now();
  after.add([this, file, fetch = std::move(fetch)] { call(file, fetch); });
}

void Reader::call(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch) {
  rpc::CallRequest request;
  schema::ReadRequest& read = *request.message.mutable_read();
  read.set_handle(file->inode->handle);
  read.set_open_id(file->open_id);
  read.set_offset(fetch->range.begin);
  read.set_length(static_cast<std::uint32_t>(fetch->range.size()));
  read.set_compress(core_.path.slow());
  request.reply_body = fetch->target;
  const bool interactive = !fetch->read_ahead && fetch->range.size() <= kInteractiveMax;
  request.priority = interactive ? rpc::Priority::kInteractive : rpc::Priority::kBulk;
  const rpc::CallId id = core_.remote.transfer(
      std::move(request), schema::Reply::kRead, [this, file, fetch](Result<rpc::CallReply> reply) mutable {
        if (!reply || !reply->message.read().compressed()) return finish(file, fetch, std::move(reply));
        core_.scheduler.post([this, file, fetch, packed = std::move(*reply)]() mutable {
          finish(file, fetch, unpack(*fetch, std::move(packed)));
        });
      });
  fetch->call = id.value();
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
  const Result<void> outcome = take_in(inode, fetch, reply);
  after.add([this] { core_.cache.trim(); });  // the last answer may come when nobody reads any more
  for (const Operation& op : std::exchange(fetch->waiters, {})) {
    if (op->ended) continue;
    --op->waiting;
    // Given up because nobody waited, a moment before somebody did: it asks again.
    const bool again = outcome || outcome.error().code == ErrorCode::kCancelled;
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
    file.data.end_fetch(fetch, 0, 0);
    return std::unexpected(reply.error());
  }
  const schema::ReadReply& read = reply->message.read();
  const ByteCount filled = reply->body_size;
  if (read.compressed() || read.length() != filled || filled > fetch->range.size() ||
      (filled < fetch->range.size() && !read.end_of_file())) {
    file.data.end_fetch(fetch, 0, 0);
    return fail(ErrorCode::kMalformed, "a READ reply whose parts disagree");
  }
  core_.counters.fetched += filled;
  const bool ours = inode.written_since(fetch->started);
  // Past the server's end of file there can be bytes that programs have written and it has not got yet,
  // and a hole before them.
  file.data.end_fetch(fetch, filled, ours ? inode.size() : 0);
  if (ours || fetch->stale) return {};
  if (!file.version.is(read.change())) {
    file.version.mix();  // others change it while we read
    inode.attributes.expire(core_.scheduler.now());
  }
  if (filled < fetch->range.size()) {
    const ByteCount end = fetch->range.begin + filled;
    inode.attributes.adjust([end](Attributes& attr) { attr.size = std::min(attr.size, end); });
    inode.attributes.expire(core_.scheduler.now());
  }
  return {};
}

}  // namespace tusk::client
