#include "fake_server.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/rpc/log_alias.h"

namespace tusk::client {
namespace {

constexpr const char* kRoot = "root";

}  // namespace

FakeServer::FakeServer() = default;

schema::Attr FakeServer::attr(const File& file) const {
  schema::Attr attr;
  attr.set_ino(handle_of_.contains(&file) ? std::hash<std::string>()(handle_of_.at(&file)) : 1);
  attr.set_mode(file.mode);
  attr.set_nlink(file.links);
  attr.set_size(file.content.size());
  attr.set_blocks((file.content.size() + 511) / 512);
  attr.set_mtime_s(file.mtime_s);
  attr.set_ctime_s(static_cast<std::int64_t>(file.change));
  attr.set_change(file.change);
  attr.set_no_xattrs(no_xattrs);
  return attr;
}

schema::Node FakeServer::node(const std::shared_ptr<File>& file) {
  auto& handle = handle_of_[file.get()];
  if (handle.empty()) {
    handle = "handle" + std::to_string(handle_of_.size());
    handles_[handle] = file;
    ever_.push_back(file);
  }
  schema::Node node;
  node.set_handle(handle);
  *node.mutable_attr() = attr(*file);
  return node;
}

schema::AttachReply FakeServer::attached() const {
  schema::AttachReply reply;
  reply.mutable_root()->set_handle(kRoot);
  reply.mutable_root()->mutable_attr()->set_mode(S_IFDIR | 0755);
  reply.mutable_root()->mutable_attr()->set_ino(1);
  reply.mutable_root()->mutable_attr()->set_nlink(2);
  reply.set_boot_id(boot_id_);
  reply.set_attr_lifetime_ms(1000);
  reply.set_identity_real(true);
  reply.set_lease_ms(lease != 0 ? 10'000 : 0);
  reply.set_lease_floor(lease);
  reply.set_watching(lease != 0 ? schema::WATCH_FANOTIFY : schema::WATCH_NONE);
  return reply;
}

void FakeServer::tell_cover(schema::Reply& reply) const {
  if (lease == 0) return;
  const schema::Cover cover = being_changed ? schema::COVER_ONCE : schema::COVER_LEASE;
  reply.set_lease(lease);
  reply.set_names(cover);
  if (reply.node().has_node()) reply.mutable_node()->mutable_node()->mutable_attr()->set_cover(cover);
  if (reply.has_attr()) reply.mutable_attr()->mutable_attr()->set_cover(cover);
  if (reply.has_rename()) reply.mutable_rename()->mutable_moved()->mutable_attr()->set_cover(cover);
  if (reply.has_open()) reply.mutable_open()->mutable_node()->mutable_attr()->set_cover(cover);
  if (reply.has_read()) reply.mutable_read()->set_cover(cover);
  if (reply.has_write()) reply.mutable_write()->mutable_attr()->set_cover(cover);
  if (reply.has_readdir()) {
    reply.mutable_readdir()->mutable_directory()->set_cover(cover);
    for (auto& entry : *reply.mutable_readdir()->mutable_entries())
      entry.mutable_node()->mutable_attr()->set_cover(cover);
  }
}

void FakeServer::touch(File& file) {
  file.change_before = std::exchange(file.change, next_change_++);
  ++file.mtime_s;
}

void FakeServer::put(const std::string& name, std::string content) {
  auto& file = names_[name];
  if (!file) file = std::make_shared<File>();
  file->content = std::move(content);
  touch(*file);
}

std::vector<schema::Request::OperationCase> FakeServer::waiting_kinds() const {
  std::vector<schema::Request::OperationCase> kinds;
  for (const Pending& pending : waiting_) kinds.push_back(pending.request.message.operation_case());
  return kinds;
}

std::uint64_t FakeServer::seen(schema::Request::OperationCase kind) const {
  const auto found = seen_.find(kind);
  return found == seen_.end() ? 0 : found->second;
}

rpc::CallId FakeServer::call(rpc::CallRequest request, rpc::Completion done) {
  ++seen_[request.message.operation_case()];
  const rpc::CallId id(next_call_++);
  if (closed) {
    done(fail(ErrorCode::kPeerClosed, "closed"));
    return id;
  }
  const bool aside = request.message.commit().all() && !show_commits;
  auto& calls = holds_ && !request.ahead ? held_ : aside ? commits_ : waiting_;
  calls.push_back({id, std::move(request), std::move(done)});
  return id;
}

void FakeServer::cancel(rpc::CallId id) {
  const auto found = std::ranges::find(waiting_, id, &Pending::id);
  if (found == waiting_.end()) return;
  rpc::Completion done = std::move(found->done);
  waiting_.erase(found);
  done(fail(ErrorCode::kCancelled, "cancelled"));
}

void FakeServer::hold_calls() {
  holds_ = true;
  for (Pending& pending : std::exchange(waiting_, {}))
    (pending.request.ahead ? waiting_ : held_).push_back(std::move(pending));
}

void FakeServer::release_calls(rpc::Renewal renew) {
  holds_ = false;
  for (Pending& pending : std::exchange(held_, {})) {
    if (renew) renew(pending.request.message);
    waiting_.push_back(std::move(pending));
  }
}

void FakeServer::reach_disk() {
  disk_.names = names_;
  disk_.files.clear();
  for (const auto& [handle, file] : handles_) disk_.files.emplace(file, *file);
  for (const auto& [name, file] : names_) disk_.files.emplace(file, *file);
}

void FakeServer::store(const std::shared_ptr<File>& file, bool data_only) {
  const auto [stored, is_new] = disk_.files.try_emplace(file, *file);
  if (is_new) {
    for (const auto& [name, named] : names_)
      if (named == file) disk_.names[name] = file;
    return;
  }
  stored->second.content = file->content;
  if (data_only) return;
  const std::uint32_t links = stored->second.links;
  stored->second = *file;
  stored->second.links = links;
}

void FakeServer::cut_power() {
  names_ = disk_.names;
  std::erase_if(handles_, [this](const auto& known) { return !disk_.files.contains(known.second); });
  for (const auto& [file, stored] : disk_.files) *file = stored;
  open_.clear();
  restart_machine();
}

void FakeServer::execute(std::size_t which) {
  Pending pending = std::move(waiting_.at(which));
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
  std::optional<Error> error;
  if (fault) error = fault(pending.request.message);
  Result<rpc::CallReply> reply =
      error ? Result<rpc::CallReply>(std::unexpected(*error)) : run(pending.request);
  const bool absence = !reply && reply.error().code == from_errno(ENOENT);
  if (absence && lease != 0 && pending.request.message.lookup().tell_absence()) {
    reply = rpc::CallReply();
    reply->message.mutable_node();
  }
  if (reply) tell_cover(reply->message);
  executed_.push_back({std::move(pending.done), std::move(reply)});
}

void FakeServer::deliver(std::size_t which) {
  Executed executed = std::move(executed_.at(which));
  executed_.erase(executed_.begin() + static_cast<std::ptrdiff_t>(which));
  executed.done(std::move(executed.reply));
}

void FakeServer::answer(std::size_t which) {
  execute(which);
  deliver(executed_.size() - 1);
}

bool FakeServer::answer_all() {
  const bool any = !waiting_.empty() || !commits_.empty();
  for (Pending& commit : std::exchange(commits_, {})) waiting_.push_back(std::move(commit));
  while (!waiting_.empty()) answer();
  return any;
}

Result<std::shared_ptr<FakeServer::File>> FakeServer::by_handle(const std::string& handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return fail(from_errno(ESTALE));
  return found->second;
}

Result<rpc::CallReply> FakeServer::set_attributes(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  TUSK_ASSIGN(const auto file, by_handle(message.setattr().handle()));
  if (message.setattr().has_size()) file->content.resize(message.setattr().size());
  if (message.setattr().has_mode()) file->mode = S_IFREG | message.setattr().mode();
  const auto mtime = file->mtime_s;
  touch(*file);
  if (!message.setattr().has_size()) file->mtime_s = mtime;
  if (message.setattr().has_mtime_s()) file->mtime_s = message.setattr().mtime_s();
  *out.mutable_attr()->mutable_attr() = attr(*file);
  out.mutable_attr()->mutable_attr()->set_change_before(file->change_before);
  return reply;
}

Result<rpc::CallReply> FakeServer::open(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  TUSK_ASSIGN(const auto file, by_handle(message.open().handle()));
  if ((message.open().flags() & O_TRUNC) != 0) {
    file->content.clear();
    touch(*file);
  }
  open_[next_open_] = file;
  schema::OpenReply& open = *out.mutable_open();
  open.set_open_id(next_open_++);
  *open.mutable_node() = node(file);
  if (message.open().read_ahead() != 0 && message.open().known_change() != file->change) {
    const std::size_t size =
        std::min<std::size_t>({message.open().read_ahead(), file->content.size(), request.reply_body.size()});
    std::memcpy(request.reply_body.bytes.data(), file->content.data(), size);
    open.set_body_bytes(static_cast<std::uint32_t>(size));
    reply.body_size = size;
  }
  return reply;
}

Result<rpc::CallReply> FakeServer::create(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  auto& file = names_[message.create().name()];
  const bool created = !file;
  if (created) file = std::make_shared<File>();
  if (created) touch(*file);
  open_[next_open_] = file;
  schema::OpenReply& open = *out.mutable_open();
  open.set_open_id(next_open_++);
  *open.mutable_node() = node(file);
  open.set_created(created);
  return reply;
}

Result<rpc::CallReply> FakeServer::read(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  TUSK_ASSIGN(const auto file, by_handle(message.read().handle()));
  const auto offset = std::min<std::size_t>(message.read().offset(), file->content.size());
  const auto size = std::min<std::size_t>(message.read().length(), file->content.size() - offset);
  std::memcpy(request.reply_body.bytes.data(), file->content.data() + offset, size);
  out.mutable_read()->set_length(static_cast<std::uint32_t>(size));
  out.mutable_read()->set_change(file->change);
  out.mutable_read()->set_end_of_file(offset + size == file->content.size());
  reply.body_size = size;
  return reply;
}

Result<rpc::CallReply> FakeServer::write(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  TUSK_ASSIGN(const auto file, by_handle(message.write().handle()));
  const std::string_view bytes = as_text(request.body.bytes);
  const std::size_t offset = message.write().append() ? file->content.size() : message.write().offset();
  if (file->content.size() < offset + bytes.size()) file->content.resize(offset + bytes.size());
  file->content.replace(offset, bytes.size(), bytes);
  touch(*file);
  if (message.write().sync()) store(file, true);
  out.mutable_write()->set_offset(offset);
  *out.mutable_write()->mutable_attr() = attr(*file);
  out.mutable_write()->mutable_attr()->set_change_before(file->change_before);
  return reply;
}

// Holes, whose size stays.
Result<rpc::CallReply> FakeServer::allocate(rpc::CallRequest& request) {
  const schema::AllocateRequest& message = request.message.allocate();
  rpc::CallReply reply;
  TUSK_ASSIGN(const auto file, by_handle(message.handle()));
  for (ByteCount at = message.offset(); at < message.offset() + message.length(); ++at)
    if (at < file->content.size()) file->content[at] = '\0';
  touch(*file);
  schema::Attr& told = *reply.message.mutable_attr()->mutable_attr();
  told = attr(*file);
  told.set_change_before(file->change_before);
  return reply;
}

Result<rpc::CallReply> FakeServer::commit(rpc::CallRequest& request) {
  const schema::CommitRequest& message = request.message.commit();
  rpc::CallReply reply;
  if (message.all() || message.handle() == kRoot) {
    reach_disk();
  } else {
    TUSK_ASSIGN(const auto file, by_handle(message.handle()));
    store(file, message.data_only());
  }
  reply.message.mutable_commit()->set_boot_id(boot_id_);
  return reply;
}

Result<rpc::CallReply> FakeServer::list(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  schema::ReadDirReply& page = *out.mutable_readdir();
  std::uint64_t cookie = 0;
  for (const auto& [name, file] : names_) {
    if (++cookie <= message.readdir().cookie()) continue;
    schema::DirEntry& entry = *page.add_entries();
    entry.set_name(name);
    entry.set_type(IFTODT(file->mode));
    entry.set_cookie(cookie);
    *entry.mutable_node() = node(file);
  }
  page.set_end(true);
  return reply;
}

Result<rpc::CallReply> FakeServer::remove(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  const auto found = names_.find(message.remove().name());
  if (found == names_.end()) return fail(from_errno(ENOENT));
  const auto file = found->second;
  names_.erase(found);
  --file->links;
  file->change = next_change_++;
  *out.mutable_remove()->mutable_attr() = attr(*file);
  return reply;
}

Result<rpc::CallReply> FakeServer::read_files(rpc::CallRequest& request) {
  rpc::CallReply reply;
  schema::ReadFilesReply& out = *reply.message.mutable_read_files();
  const auto& folder = request.message.read_files().folders(0);
  for (int i = 0; i < folder.names_size(); ++i) {
    const auto found = names_.find(folder.names(i));
    if (found == names_.end()) continue;
    if (reply.body_size + found->second->content.size() > request.reply_body.size()) continue;
    schema::FileBytes& file = *out.add_files();
    file.set_name(static_cast<std::uint32_t>(i));
    *file.mutable_node() = node(found->second);
    file.set_unchanged(folder.known_changes(i) == found->second->change);
    if (file.unchanged()) continue;
    const std::string& content = found->second->content;
    file.set_length(static_cast<std::uint32_t>(content.size()));
    std::memcpy(request.reply_body.bytes.data() + reply.body_size, content.data(), content.size());
    reply.body_size += content.size();
  }
  out.set_length(static_cast<std::uint32_t>(reply.body_size));
  return reply;
}

// As docs/PROTOCOL.md, "Redo", says.
Result<rpc::CallReply> FakeServer::run_redo(rpc::CallRequest& request) {
  rpc::CallReply reply;
  schema::LogReply& out = *reply.message.mutable_log();
  std::size_t used = 0;
  for (schema::Request entry : request.message.log().entries()) {
    rpc::CallRequest one;
    if (entry.has_write()) {
      one.body = request.body.subspan(used, entry.write().length());
      used += entry.write().length();
    }
    rpc::for_each_handle(entry, [this](std::string& handle) {
      if (rpc::alias_of(handle)) handle = aliases_[*rpc::alias_of(handle)];
    });
    one.message = entry;
    std::optional<Error> error;
    if (fault) error = fault(entry);
    auto answer = error                   ? Result<rpc::CallReply>(std::unexpected(*error))
                  : entry.has_make_node() ? make_again(entry)
                  : entry.has_remove()    ? remove_again(one)
                  : entry.has_rename()    ? rename_again(one)
                                          : run(one);
    if (answer && entry.alias() != 0) aliases_[entry.alias()] = answer->message.node().node().handle();
    schema::Reply& told = *out.add_replies();
    if (answer)
      told = std::move(answer->message);
    else
      told.set_error(static_cast<std::uint32_t>(answer.error().code));
  }
  return reply;
}

Result<rpc::CallReply> FakeServer::make_again(const schema::Request& message) {
  rpc::CallReply reply;
  auto file = by_handle(message.node());
  if (!file || (*file)->links == 0) {
    const std::string& name = message.make_node().name();
    if (names_.contains(name)) return fail(from_errno(ECANCELED));
    file = names_[name] = std::make_shared<File>();
    touch(**file);
  }
  *reply.message.mutable_node()->mutable_node() = node(*file);
  return reply;
}

Result<rpc::CallReply> FakeServer::remove_again(rpc::CallRequest& request) {
  const auto found = names_.find(request.message.remove().name());
  if (found == names_.end() || node(found->second).handle() != request.message.node())
    return fail(from_errno(ECANCELED));
  return remove(request);
}

Result<rpc::CallReply> FakeServer::rename_again(rpc::CallRequest& request) {
  const auto found = names_.find(request.message.rename().old_name());
  if (found != names_.end() && node(found->second).handle() == request.message.rename().expected())
    return run(request);
  rpc::CallReply done;
  done.message.mutable_rename();
  return done;
}

Result<rpc::CallReply> FakeServer::run(rpc::CallRequest& request) {
  const schema::Request& message = request.message;
  rpc::CallReply reply;
  schema::Reply& out = reply.message;
  switch (message.operation_case()) {
    case schema::Request::kLookup: {
      const auto found = names_.find(message.lookup().name());
      if (found == names_.end()) return fail(from_errno(ENOENT));
      *out.mutable_node()->mutable_node() = node(found->second);
      if (listing_beside_name && message.lookup().listing_bytes() > 0)
        *out.mutable_node()->mutable_listing() = *listing_beside_name;
      return reply;
    }
    case schema::Request::kGetattr: {
      if (message.getattr().handle() == kRoot) {
        *out.mutable_attr()->mutable_attr() = attached().root().attr();
        return reply;
      }
      TUSK_ASSIGN(const auto file, by_handle(message.getattr().handle()));
      *out.mutable_attr()->mutable_attr() = attr(*file);
      return reply;
    }
    case schema::Request::kSetattr:
      return set_attributes(request);
    case schema::Request::kOpen:
      return open(request);
    case schema::Request::kCreate:
      return create(request);
    case schema::Request::kClose:
      open_.erase(message.close().open_id());
      break;
    case schema::Request::kRead:
      return read(request);
    case schema::Request::kWrite:
      return write(request);
    case schema::Request::kLog:
      return run_redo(request);
    case schema::Request::kCommit:
      return commit(request);
    case schema::Request::kAllocate:
      return allocate(request);
    case schema::Request::kReaddir:
      return list(request);
    case schema::Request::kWalk: {
      if (!walk) return fail(ErrorCode::kUnsupported);
      std::string body;
      walk(message.walk(), *out.mutable_walk(), body);
      reply.body_size = std::min<std::size_t>(body.size(), request.reply_body.size());
      std::memcpy(request.reply_body.bytes.data(), body.data(), reply.body_size);
      return reply;
    }
    case schema::Request::kReadFiles:
      return read_files(request);
    case schema::Request::kRemove:
      return remove(request);
    case schema::Request::kRename: {
      const auto found = names_.find(message.rename().old_name());
      if (found == names_.end()) return fail(from_errno(ENOENT));
      const auto file = found->second;
      names_.erase(found);
      names_[message.rename().new_name()] = file;
      const std::uint64_t before = std::exchange(file->change, next_change_++);
      schema::Node& moved = *out.mutable_rename()->mutable_moved();
      moved = node(file);
      moved.mutable_attr()->set_change_before(before);
      return reply;
    }
    case schema::Request::kLock:
      out.mutable_lock()->set_type(F_UNLCK);
      return reply;
    case schema::Request::kGetxattr:
      return fail(from_errno(ENODATA));
    default:
      return fail(ErrorCode::kUnsupported);
  }
  out.mutable_empty();
  return reply;
}

}  // namespace tusk::client
