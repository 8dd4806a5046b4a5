#include "fsserver/session.h"

#include <algorithm>

#include "proto/crypto/primitives.h"

namespace tusk::server {
namespace {

// The upper half differs from server to server, so that an id from before a restart is unknown instead
// of somebody else's. Those of the upper half are the clients' to choose.
std::uint64_t first_open_id() {
  std::uint32_t salt = 0;
  crypto::random_bytes(std::as_writable_bytes(std::span(&salt, 1)));
  return ((std::uint64_t{salt} << 32) & (kClientOpenIdMin - 1)) + 1;
}

}  // namespace

Session::Session(std::uint64_t number, std::string name, std::shared_ptr<Export> exported, SessionShare share,
                 LockingSessions* lockers, std::shared_ptr<ChangeGate> gate)
    : number_(number),
      name_(std::move(name)),
      export_(std::move(exported)),
      share_(std::move(share)),
      gate_(std::move(gate)),
      lockers_(lockers),
      next_open_id_(first_open_id()) {}

std::shared_ptr<LogStream> Session::log(std::uint64_t redo) {
  if (redo == 0) return log_;
  const std::lock_guard lock(mutex_);
  if (redo_ && redo_->redo > redo) return nullptr;
  if (!redo_ || redo_->redo < redo) {
    auto visited = redo_ ? redo_->visited : std::make_shared<LogStream::Visited>();
    redo_ = std::make_shared<LogStream>();
    redo_->redo = redo;
    redo_->visited = std::move(visited);
  }
  return redo_;
}

void Session::commit_by(std::shared_ptr<Commits> commits) {
  commits_ = std::move(commits);
  const std::lock_guard lock(mutex_);
  answered_under_ = commits_->mark();
}

Commits::Mark Session::answered_under() const {
  const std::lock_guard lock(mutex_);
  return answered_under_;
}

void Session::renew_verifier() {
  const Commits::Mark present = commits_->mark();
  const std::lock_guard lock(mutex_);
  if (present.failures > answered_under_.failures) answered_under_ = present;
}

void Session::note_told() {
  const Commits::Mark present = commits_->mark();
  const std::lock_guard lock(mutex_);
  answered_under_.failures = std::max(answered_under_.failures, present.failures);
}

void Session::end() {
  ended_ = true;
  if (lockers_ != nullptr) lockers_->remove(name_, number_);
}

void Session::note_locking() {
  if (lockers_ == nullptr) return;
  std::call_once(noted_, [this] { lockers_->add(name_, number_, export_->name()); });
}

void Session::note_reclaimed(const FileKey& file) {
  const std::lock_guard lock(mutex_);
  reclaimed_.insert(file);
}

bool Session::reclaimed(const FileKey& file) const {
  const std::lock_guard lock(mutex_);
  return reclaimed_.contains(file);
}

std::uint64_t Session::add(std::shared_ptr<OpenFile> file) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_open_id_++;
  ++opens_of_[file->key];
  files_.emplace(id, std::move(file));
  return id;
}

bool Session::add(std::uint64_t open_id, std::shared_ptr<OpenFile> file) {
  if (open_id < kClientOpenIdMin) return false;
  const std::lock_guard lock(mutex_);
  const FileKey key = file->key;
  if (!files_.emplace(open_id, std::move(file)).second) return false;
  ++opens_of_[key];
  return true;
}

std::shared_ptr<OpenFile> Session::find(std::uint64_t open_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(open_id);
  return found == files_.end() ? nullptr : found->second;
}

Session::Closed Session::close(std::uint64_t open_id) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(open_id);
  if (found == files_.end()) return {};
  Closed closed{.file = std::move(found->second)};
  files_.erase(found);
  const auto opens = opens_of_.find(closed.file->key);
  closed.last = --opens->second == 0;
  if (closed.last) opens_of_.erase(opens);
  return closed;
}

std::size_t Session::open_files() const {
  const std::lock_guard lock(mutex_);
  return files_.size();
}

bool Session::holds_nothing() const {
  if (replies_.size() > 0 || log_->replies.size() > 0 || log_->turns.waiting()) return false;
  const std::lock_guard lock(mutex_);
  return files_.empty() && reclaimed_.empty();
}

Fd Session::take_stream(std::string_view handle, std::uint64_t cookie) {
  if (cookie == 0) return Fd();  // a listing starts afresh: it must show what is there now
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      streams_, [&](const Stream& stream) { return stream.cookie == cookie && stream.handle == handle; });
  if (found == streams_.end()) return Fd();
  Fd fd = std::move(found->fd);
  streams_.erase(found);
  return fd;
}

void Session::keep_stream(std::string_view handle, std::uint64_t cookie, Fd fd) {
  auto place = descriptors()->take();
  if (!place) return;
  std::list<Stream> evicted;  // closed after the lock
  const std::lock_guard lock(mutex_);
  streams_.push_back({std::string(handle), cookie, std::move(fd), std::move(*place)});
  if (streams_.size() > kDirectoryStreamsMax) evicted.splice(evicted.end(), streams_, streams_.begin());
}

}  // namespace tusk::server
