#include "fsclient/redo.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fsclient/call_handles.h"
#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

std::string node_of(const UncommittedChange& change) {
  if (!change.made.empty()) return change.made;
  if (change.file) return change.file->handle();
  if (change.request->has_copy_range()) return change.request->copy_range().target();
  std::string node;
  if (change.request->has_remove() || change.request->has_rename()) return node;
  rpc::for_each_handle(*change.request, [&](const std::string& handle) {
    if (node.empty()) node = handle;
  });
  return node;
}

schema::Request entry_of_write(const UncommittedChange& change) {
  schema::Request entry;
  schema::WriteRequest& write = *entry.mutable_write();
  write.set_handle(change.file->handle());
  write.set_offset(change.range.begin);
  write.set_length(static_cast<std::uint32_t>(change.bytes.size()));
  return entry;
}

SharedBytes joined(const std::vector<SharedBytes>& pieces, ByteCount size) {
  if (pieces.size() == 1) return pieces.front();
  const MutableSharedBytes all = allocate_bytes(size);
  auto place = all.bytes.begin();
  for (const SharedBytes& piece : pieces) place = std::ranges::copy(piece.bytes, place).out;
  return all.first(size);
}

}  // namespace

void Redo::handle_attached(bool resumed) {
  std::uint64_t epoch = 0;
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (running_ && resumed) return;
    left_ = core_.uncommitted.not_of(core_.remote.verifier());
    if (!running_ && left_.empty()) return;
    count = left_.size();
    running_ = true;
    epoch = ++epoch_;
    logs_ = in_flight_ = 0;
    aliases_.clear();
    removed_.clear();
    replaced_.clear();
    linked_.clear();
  }
  caller_.hold_calls();
  spdlog::warn("the server's machine restarted: {} changes that were not on its disk are made again", count);
  core_.scheduler.post([this, epoch] { begin(epoch); });
}

void Redo::begin(std::uint64_t epoch) {
  for (const Number number : look_ahead(epoch))
    fail(number, {from_errno(EIO), "done twice it would have another effect than once"});
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return;
    std::ranges::reverse(left_);
  }
  send_more(epoch);
}

// Returns what cannot be repeated.
std::vector<Redo::Number> Redo::look_ahead(std::uint64_t epoch) {
  std::vector<Number> once_only;
  const std::lock_guard lock(mutex_);
  if (epoch != epoch_) return once_only;
  for (const Number number : left_)
    core_.uncommitted.visit(number, [&](const UncommittedChange& change) {
      if (!change.can_be_repeated) once_only.push_back(number);
      if (!change.request) return;
      if (change.request->has_remove()) {
        const schema::RemoveRequest& remove = change.request->remove();
        removed_.insert(remove.expected().empty() ? change.request->node() : remove.expected());
      }
      if (change.request->has_link()) linked_.insert(change.request->link().handle());
      if (change.request->has_rename() && change.request->rename().flags() == 0)
        replaced_.insert(change.request->rename().replaced());
    });
  replaced_.erase("");
  removed_.erase("");
  removed_.insert(replaced_.begin(), replaced_.end());
  return once_only;
}

void Redo::add_entry(Batch& batch, Number number) {
  schema::Request entry;
  SharedBytes bytes;
  std::shared_ptr<Inode> file;
  const bool kept = core_.uncommitted.visit(number, [&](const UncommittedChange& change) {
    file = change.file;
    bytes = change.bytes;
    entry = change.request ? *change.request : entry_of_write(change);
    // If it cannot be moved any more: it is gone in the end.
    if (entry.has_rename() && removed_.contains(entry.rename().expected()))
      entry.set_node(entry.rename().expected());
    rpc::for_each_handle(entry, [this](std::string& handle) {
      if (const auto alias = aliases_.find(handle); alias != aliases_.end()) {
        handle = alias->second;
      } else if (const auto made = remade_.find(handle); made != remade_.end()) {
        handle = made->second;  // by LOGs before the server process restarted
      }
    });
    if (change.made.empty()) return;
    entry.set_alias(core_.log.next_name());
    aliases_[change.made] = rpc::handle_of_alias(entry.alias());
  });
  if (!kept) return;
  if (file) {
    const std::lock_guard lock(file->mutex);
    entry.set_made_at_ns(to_unix_ns(file->attributes.value().mtime));
    bytes = copy_bytes(bytes.bytes);  // a program may write there while it is on its way
  }
  batch.size += bytes.size();
  batch.message += entry.ByteSizeLong();
  batch.numbers.push_back(number);
  if (bytes.size() > 0) batch.bytes.push_back(std::move(bytes));
  *batch.call.message.mutable_log()->add_entries() = std::move(entry);
}

Redo::Batch Redo::next_batch() {
  Batch batch;
  while (!left_.empty() && batch.numbers.size() < kBatchEntries && batch.size < kBatchBytes &&
         batch.message < kBatchMessage) {
    const Number number = left_.back();
    left_.pop_back();
    add_entry(batch, number);
  }
  return batch;
}

std::vector<Redo::Batch> Redo::next_batches() {
  std::vector<Batch> batches;
  while (in_flight_ < kInFlightMax && !left_.empty()) {
    Batch batch = next_batch();
    if (batch.numbers.empty()) continue;
    ++in_flight_;
    schema::LogRequest& log = *batch.call.message.mutable_log();
    log.set_redo(epoch_);
    log.set_number(++logs_);
    ByteCount size = 0;
    for (const SharedBytes& piece : batch.bytes) size += piece.size();
    if (size > 0) batch.call.body = joined(batch.bytes, size);
    batch.call.priority = rpc::Priority::kBulk;
    batch.call.outlives_outages = true;
    batch.call.ahead = true;
    batches.push_back(std::move(batch));
  }
  return batches;
}

void Redo::send_more(std::uint64_t epoch) {
  std::vector<Batch> batches;
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return;
    batches = next_batches();
    if (in_flight_ == 0 && left_.empty()) finish();
  }
  for (Batch& batch : batches)
    core_.remote.transfer(std::move(batch.call), schema::Reply::kLog,
                          [this, epoch, numbers = std::move(batch.numbers)](Result<rpc::CallReply> reply) {
                            arrived(epoch, numbers, std::move(reply));
                          });
}

void Redo::arrived(std::uint64_t epoch, const std::vector<Number>& numbers, Result<rpc::CallReply> reply) {
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return;  // it was begun anew
  }
  if (!reply && reply.error().code == ErrorCode::kPeerClosed) return;  // the mount ends
  const auto answers = reply ? static_cast<std::size_t>(reply->message.log().replies_size()) : 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!reply) {
      take_in(numbers[i], std::unexpected(reply.error()));
      continue;
    }
    if (i >= answers) {
      take_in(numbers[i], tusk::fail(ErrorCode::kMalformed, "a LOG's reply without an answer"));
      continue;
    }
    schema::Reply& answer = *reply->message.mutable_log()->mutable_replies(static_cast<int>(i));
    if (answer.error() != 0)
      take_in(numbers[i], tusk::fail(static_cast<ErrorCode>(answer.error()), answer.message()));
    else
      take_in(numbers[i], std::move(answer));
  }
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return;
    --in_flight_;
  }
  send_more(epoch);
}

void Redo::take_in(Number number, const Result<schema::Reply>& reply) {
  if (!reply) return fail(number, reply.error());
  std::string before;
  core_.uncommitted.visit(number, [&](UncommittedChange& change) {
    change.verifier = core_.remote.verifier();
    before = change.made;
  });
  if (before.empty()) return;
  const std::string& now = reply->node().node().handle();
  if (now.empty() || now == before) return;
  const std::lock_guard lock(mutex_);
  remade_[before] = now;
}

// What is gone in the end nobody misses.
bool Redo::unwanted(const UncommittedChange& change, const Error& error) const {
  if (change.request && change.request->has_remove())
    return error.code == from_errno(ENOENT) || error.code == from_errno(ESTALE) ||
           error.code == from_errno(ECANCELED);
  const std::string node =
      change.request && change.request->has_rename() ? change.request->rename().expected() : node_of(change);
  const bool removed = removed_.contains(node);
  const std::shared_ptr<Inode> inode = core_.inodes.find(node);
  if (!inode) return removed && !linked_.contains(node);
  const std::lock_guard lock(inode->mutex);
  if (!inode->attributes.known()) return removed && !linked_.contains(node);
  const auto links = inode->attributes.value().nlink;
  if (links == 0) return removed || error.code == from_errno(ESTALE);
  // The server tells the links of a removed file, and not those of a replaced one.
  return replaced_.contains(node) && links == 1 && !linked_.contains(node);
}

void Redo::fail(Number number, const Error& error) {
  const std::optional<UncommittedChange> change = core_.uncommitted.take(number);
  if (!change) return;
  bool nobody_minds = false;
  {
    const std::lock_guard lock(mutex_);
    nobody_minds = unwanted(*change, error);
  }
  if (!nobody_minds) events_.failed(*change, error);
}

// With the mutex held: whoever is held until then begins behind it.
void Redo::finish() {
  if (!std::exchange(running_, false)) return;
  const bool others = !remade_.empty();
  for (const auto& [before, now] : remade_) {
    if (const auto inode = core_.inodes.find(before)) {
      core_.inodes.rename(inode, now);
      const std::lock_guard lock(inode->mutex);
      if (inode->log.shown_ino == 0) inode->log.shown_ino = inode->attributes.value().ino;
    }
    other_now_.erase(now);  // so that no way through them goes round
    other_now_[before] = now;
  }
  remade_.clear();
  if (!others) return caller_.release_calls(nullptr);
  const auto handles = std::make_shared<const std::unordered_map<std::string, std::string>>(other_now_);
  const auto rename = [handles](std::string& handle) {
    for (auto other = handles->find(handle); other != handles->end(); other = handles->find(handle))
      handle = other->second;
  };
  core_.uncommitted.rename(rename);
  caller_.release_calls([rename](schema::Request& request) { for_each_handle_of_call(request, rename); });
}

}  // namespace tusk::client
