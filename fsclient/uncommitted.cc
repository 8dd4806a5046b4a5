#include "fsclient/uncommitted.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

using Request = schema::Request;

std::uint64_t mtime_ns(const schema::Attr& attr) {
  return static_cast<std::uint64_t>(attr.mtime_s()) * 1'000'000'000 + attr.mtime_ns();
}

// A file that an OPEN or CREATE has emptied.
void become_truncation(Request& request, const std::string& handle) {
  request.mutable_setattr()->set_handle(handle);
  request.mutable_setattr()->set_size(0);
}

// CREATE and MAKE_NODE. Nobody would close what a repeated CREATE opens.
void become_making(Request& request, const schema::Node& node) {
  if (request.has_create()) {
    schema::MakeNodeRequest make;
    make.set_parent(request.create().parent());
    make.set_name(request.create().name());
    make.set_mode(S_IFREG | (request.create().mode() & 07777));
    *request.mutable_make_node() = std::move(make);
  }
  request.set_node(node.handle());
  if (request.made_at_ns() == 0) request.set_made_at_ns(mtime_ns(node.attr()));
}

// "Now" was then.
void become_exact(schema::SetAttrRequest& set, const schema::Attr& attr) {
  set.set_open_id(0);
  if (set.atime_now()) {
    set.set_atime_s(attr.atime_s());
    set.set_atime_ns(attr.atime_ns());
  }
  if (set.mtime_now()) {
    set.set_mtime_s(attr.mtime_s());
    set.set_mtime_ns(attr.mtime_ns());
  }
  set.clear_atime_now();
  set.clear_mtime_now();
}

// Appended bytes go to where they went.
void become_placed(Request& request, const schema::WriteReply& reply) {
  schema::WriteRequest& write = *request.mutable_write();
  write.set_append(false);
  write.set_offset(reply.offset());
  write.set_open_id(0);
  request.set_made_at_ns(mtime_ns(reply.attr()));
}

// Whose bytes or attributes it changes; null: those of none, but names.
const std::string* changed_handle(const UncommittedChange& change) {
  if (!change.request) return nullptr;
  const Request& request = *change.request;
  switch (request.operation_case()) {
    case Request::kSetattr:
      return &request.setattr().handle();
    case Request::kWrite:
      return &request.write().handle();
    case Request::kAllocate:
      return &request.allocate().handle();
    case Request::kCopyRange:
      return &request.copy_range().target();
    case Request::kSetxattr:
      return &request.setxattr().handle();
    case Request::kRemovexattr:
      return &request.removexattr().handle();
    default:
      return nullptr;
  }
}

template <class Index, class Key>
void take_from(Index& index, const Key& key, std::uint64_t number) {
  const auto numbers = index.find(key);
  if (numbers == index.end()) return;
  numbers->second.erase(number);
  if (numbers->second.empty()) index.erase(numbers);
}

bool moves_bytes(const schema::AllocateRequest& allocate) {
  return (allocate.mode() & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) != 0;
}

}  // namespace

std::optional<UncommittedChange> repeatable(Request request, const schema::Reply& reply, SharedBytes body) {
  UncommittedChange change;
  request.clear_sequence();
  request.clear_sequence_done();
  request.clear_want_exclusive();
  const bool by_log = request.alias() != 0;
  request.clear_alias();
  switch (request.operation_case()) {
    case Request::kCreate:
      if (reply.open().created() || by_log) {
        change.made = reply.open().node().handle();
        become_making(request, reply.open().node());
      } else if (request.create().flags() & O_TRUNC) {
        become_truncation(request, reply.open().node().handle());
      } else {
        return std::nullopt;
      }
      break;
    case Request::kMakeNode:
      change.made = reply.node().node().handle();
      become_making(request, reply.node().node());
      break;
    case Request::kOpen:
      if ((request.open().flags() & O_TRUNC) == 0) return std::nullopt;
      become_truncation(request, std::string(request.open().handle()));
      break;
    case Request::kWrite:
      become_placed(request, reply.write());
      change.bytes = std::move(body);
      break;
    case Request::kSetattr:
      become_exact(*request.mutable_setattr(), reply.attr().attr());
      break;
    case Request::kRename:
      change.can_be_repeated = !request.rename().expected().empty();
      break;
    case Request::kAllocate:
      request.mutable_allocate()->set_open_id(0);
      change.can_be_repeated = !moves_bytes(request.allocate());
      break;
    case Request::kCopyRange:
      change.can_be_repeated = false;
      break;
    case Request::kSetxattr:
      request.mutable_setxattr()->set_flags(0);
      break;
    case Request::kRemove:
    case Request::kLink:
    case Request::kRemovexattr:
      break;
    default:
      return std::nullopt;
  }
  change.request = std::make_unique<Request>(std::move(request));
  return change;
}

void UncommittedChanges::add(UncommittedChange change, std::uint64_t present) {
  if (change.verifier != present) {
    if (lost_) lost_(change);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const Number number = ++last_;
    if (given_up_) return note_unstable(change, number);
    change.memory = change.bytes.size() + (change.request ? change.request->ByteSizeLong() : 0);
    bytes_ += change.memory;
    if (change.file) writes_[change.file.get()].insert(number);
    if (const std::string* handle = changed_handle(change)) changes_of_[*handle].insert(number);
    if (!change.made.empty()) made_[change.made] = number;
    changes_.emplace_hint(changes_.end(), number, std::move(change));
  }
  if (added_) added_();
}

UncommittedChanges::Number UncommittedChanges::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::size_t UncommittedChanges::count() const {
  const std::lock_guard lock(mutex_);
  return changes_.size();
}

ByteCount UncommittedChanges::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

bool UncommittedChanges::has_writes(const Inode& file) const {
  const std::lock_guard lock(mutex_);
  return writes_.contains(&file) || unstable(file) != nullptr;
}

bool UncommittedChanges::has_writes_not_of(std::uint64_t verifier, const Inode& file, Number upto) const {
  const std::lock_guard lock(mutex_);
  if (const Unstable* writes = unstable(file)) return writes->oldest != verifier;
  const auto numbers = writes_.find(&file);
  if (numbers == writes_.end()) return false;
  return std::ranges::any_of(numbers->second, [&](Number number) {
    const auto change = changes_.find(number);
    return number <= upto && change != changes_.end() && change->second.verifier != verifier;
  });
}

bool UncommittedChanges::has_any(const std::string& handle, const Inode* file) const {
  const std::lock_guard lock(mutex_);
  return made_.contains(handle) || changes_of_.contains(handle) || writes_.contains(file);
}

bool UncommittedChanges::has_attributes(const std::string& handle) const {
  const std::lock_guard lock(mutex_);
  const auto numbers = changes_of_.find(handle);
  if (numbers == changes_of_.end()) return false;
  return std::ranges::any_of(numbers->second, [&](Number number) {
    const Request& request = *changes_.at(number).request;
    return request.has_setattr() || request.has_setxattr() || request.has_removexattr();
  });
}

void UncommittedChanges::take(Changes::iterator place, std::vector<Changes::node_type>& taken) {
  const UncommittedChange& change = place->second;
  bytes_ -= change.memory;
  if (const auto made = made_.find(change.made); made != made_.end() && made->second == place->first)
    made_.erase(made);
  if (change.file) take_from(writes_, change.file.get(), place->first);
  if (const std::string* handle = changed_handle(change)) take_from(changes_of_, *handle, place->first);
  taken.push_back(changes_.extract(place));
}

void UncommittedChanges::committed(std::uint64_t verifier, Number upto) {
  std::vector<Changes::node_type> taken;
  const std::lock_guard lock(mutex_);
  for (auto place = changes_.begin(); place != changes_.end() && place->first <= upto;) {
    const auto change = place++;
    if (change->second.verifier == verifier) take(change, taken);
  }
}

void UncommittedChanges::committed(std::uint64_t verifier, Number upto, const Inode& file,
                                   const std::string& handle) {
  std::vector<Changes::node_type> taken;
  const std::lock_guard lock(mutex_);
  if (const auto writes = unstable_.find(&file); writes != unstable_.end()) {
    writes->second.oldest = writes->second.newest;
    if (writes->second.last <= upto) unstable_.erase(writes);
  }
  if (made_.contains(handle)) return;
  std::set<Number> covered;
  if (const auto numbers = writes_.find(&file); numbers != writes_.end()) covered = numbers->second;
  if (const auto numbers = changes_of_.find(handle); numbers != changes_of_.end())
    covered.insert(numbers->second.begin(), numbers->second.end());
  for (const Number number : covered) {
    const auto change = changes_.find(number);
    if (number <= upto && change->second.verifier == verifier) take(change, taken);
  }
}

std::vector<UncommittedChanges::Number> UncommittedChanges::not_of(std::uint64_t verifier) const {
  const std::lock_guard lock(mutex_);
  std::vector<Number> numbers;
  for (const auto& [number, change] : changes_)
    if (change.verifier != verifier) numbers.push_back(number);
  return numbers;
}

bool UncommittedChanges::visit(Number number, const std::function<void(UncommittedChange&)>& visit) {
  const std::lock_guard lock(mutex_);
  const auto change = changes_.find(number);
  if (change == changes_.end()) return false;
  visit(change->second);
  return true;
}

std::optional<UncommittedChange> UncommittedChanges::take(Number number) {
  std::vector<Changes::node_type> taken;
  {
    const std::lock_guard lock(mutex_);
    if (const auto change = changes_.find(number); change != changes_.end()) take(change, taken);
  }
  if (taken.empty()) return std::nullopt;
  return std::move(taken.front().mapped());
}

void UncommittedChanges::rename(const std::function<void(std::string& handle)>& rename) {
  const std::lock_guard lock(mutex_);
  made_.clear();
  changes_of_.clear();
  for (auto& [number, change] : changes_) {
    rename(change.made);
    if (!change.made.empty()) made_[change.made] = number;
    if (change.request) rpc::for_each_handle(*change.request, rename);
    if (const std::string* handle = changed_handle(change)) changes_of_[*handle].insert(number);
  }
}

void UncommittedChanges::note_unstable(const UncommittedChange& write, Number number) {
  if (!write.file) return;
  Unstable& writes = unstable_[write.file.get()];
  if (writes.file.lock() != write.file) writes = {.file = write.file, .oldest = write.verifier};
  writes.newest = write.verifier;
  writes.last = number;
  if (unstable_.size() <= unstable_max_) return;
  std::erase_if(unstable_, [](const auto& one) { return one.second.file.expired(); });
  unstable_max_ = std::max(kUnstableMin, 2 * unstable_.size());
}

const UncommittedChanges::Unstable* UncommittedChanges::unstable(const Inode& file) const {
  const auto writes = unstable_.find(&file);
  if (writes == unstable_.end() || writes->second.file.lock().get() != &file) return nullptr;
  return &writes->second;
}

void UncommittedChanges::give_up() {
  Changes gone;  // after the mutex
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  for (const auto& [number, change] : changes_) note_unstable(change, number);
  gone.swap(changes_);
  writes_.clear();
  changes_of_.clear();
  made_.clear();
  bytes_ = 0;
}

}  // namespace tusk::client
