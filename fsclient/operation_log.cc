#include "fsclient/operation_log.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

// In an ATTACH (PROTOCOL.md): 1,024 LOGs, more than are ever on their way.
constexpr std::size_t kBeyondBytesMax = 128;

SharedBytes joined(const std::vector<SharedBytes>& pieces) {
  if (pieces.empty()) return {};
  if (pieces.size() == 1) return pieces.front();
  ByteCount size = 0;
  for (const SharedBytes& piece : pieces) size += piece.size();
  const MutableSharedBytes all = allocate_bytes(size);
  auto place = all.bytes.begin();
  for (const SharedBytes& piece : pieces) place = std::ranges::copy(piece.bytes, place).out;
  return all.first(size);
}

}  // namespace

std::map<std::uint64_t, OperationLog::Batch> OperationLog::first_batch() {
  std::map<std::uint64_t, Batch> batches;
  batches.try_emplace(1);
  return batches;
}

// ---------------------------------------------------------------- exclusiveness

void OperationLog::grant(std::uint64_t exclusive) {
  const std::lock_guard lock(mutex_);
  granted_ = std::max(granted_, exclusive);
}

bool OperationLog::stands(std::uint64_t exclusive) const {
  const std::lock_guard lock(mutex_);
  return exclusive > over_;
}

void OperationLog::take_back(std::uint64_t exclusive, Task answered) {
  {
    const std::lock_guard lock(mutex_);
    over_ = std::max(over_, exclusive);
  }
  when_answered(std::move(answered));
}

void OperationLog::take_back_all() {
  const std::lock_guard lock(mutex_);
  over_ = std::max(over_, granted_);
}

// ---------------------------------------------------------------- entries

OperationLog::Naming OperationLog::naming() {
  const std::lock_guard lock(mutex_);
  return {*this, namings_.insert(answered_locked())};
}

OperationLog::Naming::~Naming() {
  if (log_ == nullptr) return;
  const std::lock_guard lock(log_->mutex_);
  log_->namings_.erase(since_);
}

bool OperationLog::append(const Naming&, std::uint64_t exclusive, const Asker& asker, schema::Request entry,
                          SharedBytes bytes, Answer done) {
  remote_.identify(asker, entry);
  std::optional<std::uint64_t> full;
  bool first = false;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (exclusive <= over_) return false;
    number = batches_.rbegin()->first;
    Batch& batch = batches_.rbegin()->second;
    first = batch.entries.empty();
    if (first) {
      batch.answered = tellable_locked();
      batch.call.message.mutable_log()->set_answered(batch.answered);
    }
    const ByteCount size = bytes.size() + entry.ByteSizeLong();
    const std::uint64_t alias = entry.alias();
    const bool elsewhere = entry.has_write() || entry.has_close();
    auto kept = elsewhere ? nullptr : std::make_unique<schema::Request>(entry);
    batch.size += size;
    *batch.call.message.mutable_log()->add_entries() = std::move(entry);
    if (bytes.size() > 0) batch.bytes.push_back(std::move(bytes));
    batch.entries.push_back({size, alias, std::move(kept), std::move(done)});
    ++entries_;
    bytes_ += size;
    if (batch.entries.size() >= kBatchEntries || batch.size >= kBatchBytes) full = seal();
  }
  if (full) {
    send(*full);
  } else if (first) {
    scheduler_.post_after(kBatchAge, [this, number] {
      std::optional<std::uint64_t> aged;
      {
        const std::lock_guard lock(mutex_);
        if (batches_.rbegin()->first == number) aged = seal();
      }
      if (aged) send(*aged);
    });
  }
  return true;
}

void OperationLog::send_gathered() {
  std::optional<std::uint64_t> gathered;
  {
    const std::lock_guard lock(mutex_);
    gathered = seal();
  }
  if (gathered) send(*gathered);
}

std::optional<std::uint64_t> OperationLog::seal() {
  auto& [number, batch] = *batches_.rbegin();
  if (batch.entries.empty()) return std::nullopt;
  batch.call.message.mutable_log()->set_number(number);
  batches_.try_emplace(number + 1);
  return number;
}

void OperationLog::send(std::uint64_t number) {
  rpc::CallRequest call;
  std::vector<SharedBytes> bytes;
  {
    const std::lock_guard lock(mutex_);
    Batch& batch = batches_.at(number);
    call = std::move(batch.call);
    bytes = std::move(batch.bytes);
  }
  call.body = joined(bytes);
  call.priority = rpc::Priority::kBulk;
  call.outlives_outages = true;
  call.renew = [this](schema::Request& request) { name_by_handles(*request.mutable_log()); };
  remote_.transfer(std::move(call), schema::Reply::kLog,
                   [this, number](Result<rpc::CallReply> reply) { arrived(number, std::move(reply)); });
}

// ---------------------------------------------------------------- answers

void OperationLog::arrived(std::uint64_t number, Result<rpc::CallReply> reply) {
  {
    const std::lock_guard lock(mutex_);
    Batch& batch = batches_.at(number);
    batch.ended = true;
    if (!reply) {
      batch.reply = std::unexpected(reply.error());
    } else if (static_cast<std::size_t>(reply->message.log().replies_size()) != batch.entries.size()) {
      batch.reply = fail(ErrorCode::kMalformed, "a LOG's reply that answers another number of entries");
    } else {
      const std::uint64_t verifier = remote_.verifier_of(reply->message);
      batch.reply = std::move(reply->message);
      for (schema::Reply& answer : *(*batch.reply)->mutable_log()->mutable_replies())
        answer.set_write_verifier(verifier);
      note_handles(number, batch);
    }
    if (std::exchange(handing_on_, true)) return;
  }
  hand_on();
}

void OperationLog::hand_on() {
  for (;;) {
    Batch batch;
    {
      const std::lock_guard lock(mutex_);
      Batch& oldest = batches_.begin()->second;
      if (!oldest.reply) {
        handing_on_ = false;
        return;
      }
      batch = std::move(oldest);
      oldest.reply.reset();  // stays until its entries know: nobody who waits for them goes on before
      for (Entry& entry : batch.entries)
        if (entry.kept) name_by_handles(*entry.kept);
    }
    answer(batch);
    {
      const std::lock_guard lock(mutex_);
      batches_.erase(batches_.begin());
      entries_ -= batch.entries.size();
      for (const Entry& entry : batch.entries) bytes_ -= entry.bytes;
      forget_handles();
    }
    wake();
  }
}

void OperationLog::answer(Batch& batch) {
  for (std::size_t i = 0; i < batch.entries.size(); ++i) {
    // What it holds goes with it: an inode's count of entries must not outlast them.
    Answer done = std::move(batch.entries[i].done);
    if (!*batch.reply) {
      done(std::unexpected(batch.reply->error()));
      continue;
    }
    schema::Reply& reply = *(*batch.reply)->mutable_log()->mutable_replies(static_cast<int>(i));
    if (reply.error() != 0) {
      done(fail(static_cast<ErrorCode>(reply.error()), reply.message()));
      continue;
    }
    if (batch.entries[i].kept) remote_.keep(std::move(*batch.entries[i].kept), reply, {});
    done(std::move(reply));
  }
}

// ---------------------------------------------------------------- names

void OperationLog::note_handles(std::uint64_t number, const Batch& batch) {
  for (std::size_t i = 0; i < batch.entries.size(); ++i) {
    const std::uint64_t alias = batch.entries[i].alias;
    const schema::Reply& reply = (*batch.reply)->log().replies(static_cast<int>(i));
    if (alias == 0 || !(reply.has_open() || reply.has_node())) continue;
    handles_[alias] = reply.has_open() ? reply.open().node().handle() : reply.node().node().handle();
    named_[number].push_back(alias);
  }
}

// As the server does: entries of the oldest LOG, and of all after it, name no node by an alias of a LOG that
// it tells as answered.
void OperationLog::forget_handles() {
  const Batch& oldest = batches_.begin()->second;
  const auto end = named_.upper_bound(oldest.entries.empty() ? tellable_locked() : oldest.answered);
  for (auto made = named_.begin(); made != end; ++made)
    for (const std::uint64_t alias : made->second) handles_.erase(alias);
  named_.erase(named_.begin(), end);
}

void OperationLog::name_by_handles(schema::LogRequest& log) const {
  const std::lock_guard lock(mutex_);
  if (handles_.empty()) return;
  for (schema::Request& entry : *log.mutable_entries()) name_by_handles(entry);
}

void OperationLog::name_by_handles(schema::Request& entry) const {
  rpc::for_each_handle(entry, [this](std::string& handle) {
    const auto alias = rpc::alias_of(handle);
    if (!alias) return;
    if (const auto known = handles_.find(*alias); known != handles_.end()) handle = known->second;
  });
}

// ---------------------------------------------------------------- waiting

void OperationLog::when_answered(Task then, GaveUp gave_up) {
  std::optional<std::uint64_t> waited_for;
  {
    const std::lock_guard lock(mutex_);
    waited_for = seal();
    if (batches_.size() > 1) {
      waiters_.push_back({batches_.rbegin()->first - 1, std::move(then), std::move(gave_up), 0});
      then = nullptr;
    }
  }
  if (waited_for) send(*waited_for);
  if (then) scheduler_.post(std::move(then));
}

bool OperationLog::has_room() const {
  const std::lock_guard lock(mutex_);
  return has_room_locked(kBytesMax);
}

void OperationLog::when_room(Task then, GaveUp gave_up, ByteCount below) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_room_locked(below)) {
      waiting_for_room_.push_back({0, std::move(then), std::move(gave_up), below});
      return;
    }
  }
  scheduler_.post(std::move(then));
}

void OperationLog::wake() {
  std::vector<Task> ready;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t answered = answered_locked();
    std::erase_if(waiters_, [&](Waiter& waiter) {
      if (waiter.number > answered) return false;
      ready.push_back(std::move(waiter.then));
      return true;
    });
    std::erase_if(waiting_for_room_, [&](Waiter& waiter) {
      if (!has_room_locked(waiter.below)) return false;
      ready.push_back(std::move(waiter.then));
      return true;
    });
  }
  for (Task& task : ready) scheduler_.post(std::move(task));
}

void OperationLog::give_up(const Error& error) {
  std::vector<Waiter> given_up;
  {
    const std::lock_guard lock(mutex_);
    for (std::vector<Waiter>* const waiting : {&waiters_, &waiting_for_room_})
      std::erase_if(*waiting, [&](Waiter& waiter) {
        if (!waiter.gave_up) return false;
        given_up.push_back(std::move(waiter));
        return true;
      });
  }
  for (Waiter& waiter : given_up)
    scheduler_.post([gave_up = std::move(waiter.gave_up), error]() mutable { gave_up(error); });
}

void OperationLog::drop() {
  auto batches = first_batch();
  std::vector<Waiter> waiters;
  std::vector<Waiter> waiting_for_room;
  const std::lock_guard lock(mutex_);  // let go before those are
  batches_.swap(batches);
  handles_.clear();
  named_.clear();
  waiters_.swap(waiters);
  waiting_for_room_.swap(waiting_for_room);
}

std::size_t OperationLog::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

ByteCount OperationLog::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void OperationLog::tell(schema::AttachRequest& request) const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t first = batches_.begin()->first;
  request.set_log_answered(first - 1);
  request.set_log_sent(batches_.rbegin()->first - 1);
  std::string beyond;
  for (const auto& [number, batch] : batches_) {
    if (!batch.ended) continue;
    const std::size_t bit = number - first;
    if (bit / 8 >= kBeyondBytesMax) break;
    if (bit / 8 >= beyond.size()) beyond.resize(bit / 8 + 1);
    beyond[bit / 8] = static_cast<char>(beyond[bit / 8] | 1 << (bit % 8));
  }
  request.set_log_answered_beyond(std::move(beyond));
}

std::uint64_t OperationLog::answered() const {
  const std::lock_guard lock(mutex_);
  return answered_locked();
}

}  // namespace tusk::client
