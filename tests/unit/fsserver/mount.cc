#include "mount.h"

#include <atomic>
#include <cstdlib>

#include "proto/io/clock.h"

namespace tusk::server {

crypto::Fingerprint client_key(unsigned char which) {
  crypto::Fingerprint key;
  key.bytes.fill(std::byte{which});
  return key;
}

crypto::Secret test_secret() {
  crypto::Secret secret;
  secret.bytes.fill(std::byte{0x5a});
  return secret;
}

Server::Server(const std::filesystem::path& directory, const ServerSetup& setup) {
  ExportSettings settings;
  settings.name = setup.name;
  settings.path = directory;
  settings.access = setup.access;
  settings.act_as = setup.act_as;
  settings.setuid = setup.setuid;
  if (!setup.access_store) settings.clients = {client_key(1), client_key(2)};
  auto opened = Export::open(settings, test_secret(), setup.table);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message().c_str());
    std::abort();
  }
  export_ = *opened;
  FileServiceOptions options;
  options.exports = {export_};
  options.access = setup.access_store;
  options.server_name = "test";
  options.own_housekeeping = setup.own_housekeeping;
  options.mutated = setup.mutated;
  options.watch = setup.watch;
  options.reply_memory_max = setup.reply_memory_max;
  options.workers = setup.workers;
  options.leases = setup.leases;
  options.sessions_max = setup.sessions_max;
  options.descriptors_max = setup.descriptors_max;
  options.early_log_bytes_max = setup.early_log_bytes_max;
  options.lockers_dir = setup.lockers_dir;
  options.leasers_dir = setup.leasers_dir;
  options.commits_dir = setup.commits_dir;
  options.disk = setup.disk;
  service_ = std::make_unique<FileService>(std::move(options));
}

void Server::housekeep_after(Duration later) { service_->housekeep(io::now() + later); }

Mount::Mount(Server& server, MountSetup setup) : server_(server), setup_(std::move(setup)) {
  reconnect();
  attach();
}

void Mount::reconnect() {
  static std::atomic<std::uint64_t> last_connection{0};
  disconnect();
  peer_ = {.connection = rpc::ConnectionId(++last_connection),
           .key = setup_.key,
           .address = "192.0.2.1:1",
           .heard = setup_.heard};
  connected_ = true;
}

void Mount::disconnect(bool for_good) {
  if (connected_) server_.service().handle_disconnect(peer_, for_good);
  connected_ = false;
}

Answer Mount::attach() {
  schema::Request request;
  schema::AttachRequest& attach = *request.mutable_attach();
  attach.set_export_name(setup_.export_name);
  attach.set_token(std::string(as_text(setup_.token)));
  attach.set_session(setup_.session);
  attach.set_read_only(setup_.read_only);
  attach.set_client_name("tester");
  attach.set_version(kSchemaVersion);
  attach.set_identity_real(setup_.identity_real);
  attach.set_leases(setup_.leases);
  attach.set_log_answered(setup_.log_answered);
  attach.set_log_sent(setup_.log_sent);
  attach.set_log_answered_beyond(setup_.log_answered_beyond);
  for (const schema::LockRequest& lock : setup_.locks) *attach.add_locks() = lock;
  attach.set_listing_bytes(setup_.listing_bytes);
  attach.set_lane(setup_.lane);
  attach.set_attempt(setup_.attempt);
  for (const std::string& id : setup_.ended_sessions) attach.add_ended_sessions(id);
  attach.set_knows_exclusive_ms(setup_.knows_exclusive);
  Answer answer = call(request);
  attached_ = answer.reply.attach();
  return answer;
}

std::shared_ptr<PendingCall> Mount::start(const schema::Request& request, std::string_view body,
                                          ByteCount capacity) {
  auto incoming = std::make_unique<FakeCall>(peer_, request, copy_bytes(as_byte_span(body)), capacity);
  auto client = incoming->client();
  server_.service().handle_call(std::move(incoming));
  return client;
}

std::string Mount::handle(std::string_view path) {
  std::string at = root();
  for (const auto& name : std::filesystem::path(path))
    at = lookup(at, name.string()).reply.node().node().handle();
  return at;
}

Answer Mount::lookup(const std::string& parent, std::string_view name) {
  schema::Request request;
  request.mutable_lookup()->set_parent(parent);
  request.mutable_lookup()->set_name(std::string(name));
  return call(request);
}

Answer Mount::getattr(const std::string& handle, std::uint64_t open_id) {
  schema::Request request;
  request.mutable_getattr()->set_handle(handle);
  request.mutable_getattr()->set_open_id(open_id);
  return call(request);
}

Answer Mount::make_node(const std::string& parent, std::string_view name, unsigned mode) {
  schema::Request request;
  request.mutable_make_node()->set_parent(parent);
  request.mutable_make_node()->set_name(std::string(name));
  request.mutable_make_node()->set_mode(mode);
  return call(request);
}

Answer Mount::make_directory(const std::string& parent, std::string_view name, unsigned mode) {
  return make_node(parent, name, S_IFDIR | mode);
}

Answer Mount::make_symlink(const std::string& parent, std::string_view name, std::string_view target) {
  schema::Request request;
  request.mutable_make_node()->set_parent(parent);
  request.mutable_make_node()->set_name(std::string(name));
  request.mutable_make_node()->set_mode(S_IFLNK | 0777);
  request.mutable_make_node()->set_target(std::string(target));
  return call(request);
}

Answer Mount::open(const std::string& handle, int flags) {
  schema::Request request;
  request.mutable_open()->set_handle(handle);
  request.mutable_open()->set_flags(static_cast<std::uint32_t>(flags));
  return call(request);
}

Answer Mount::create(const std::string& parent, std::string_view name, int flags, unsigned mode) {
  schema::Request request;
  request.mutable_create()->set_parent(parent);
  request.mutable_create()->set_name(std::string(name));
  request.mutable_create()->set_flags(static_cast<std::uint32_t>(flags));
  request.mutable_create()->set_mode(mode);
  return call(request);
}

Answer Mount::close(std::uint64_t open_id) {
  schema::Request request;
  request.mutable_close()->set_open_id(open_id);
  return call(request);
}

Answer Mount::read(const std::string& handle, std::uint64_t open_id, std::uint64_t offset,
                   std::uint32_t length) {
  schema::Request request;
  request.mutable_read()->set_handle(handle);
  request.mutable_read()->set_open_id(open_id);
  request.mutable_read()->set_offset(offset);
  request.mutable_read()->set_length(length);
  return call(request);
}

Answer Mount::write(const std::string& handle, std::uint64_t open_id, std::uint64_t offset,
                    std::string_view bytes) {
  schema::Request request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_open_id(open_id);
  request.mutable_write()->set_offset(offset);
  request.mutable_write()->set_length(static_cast<std::uint32_t>(bytes.size()));
  return call(request, bytes);
}

Answer Mount::append(const std::string& handle, std::uint64_t open_id, std::string_view bytes) {
  schema::Request request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_open_id(open_id);
  request.mutable_write()->set_append(true);
  request.mutable_write()->set_length(static_cast<std::uint32_t>(bytes.size()));
  return call(request, bytes);
}

Answer Mount::commit(const std::string& handle, std::uint64_t open_id) {
  schema::Request request;
  request.mutable_commit()->set_handle(handle);
  request.mutable_commit()->set_open_id(open_id);
  return call(request);
}

Answer Mount::remove(const std::string& parent, std::string_view name, bool directory) {
  schema::Request request;
  request.mutable_remove()->set_parent(parent);
  request.mutable_remove()->set_name(std::string(name));
  request.mutable_remove()->set_directory(directory);
  return call(request);
}

Answer Mount::rename(const std::string& old_parent, std::string_view old_name, const std::string& new_parent,
                     std::string_view new_name, unsigned flags) {
  schema::Request request;
  request.mutable_rename()->set_old_parent(old_parent);
  request.mutable_rename()->set_old_name(std::string(old_name));
  request.mutable_rename()->set_new_parent(new_parent);
  request.mutable_rename()->set_new_name(std::string(new_name));
  request.mutable_rename()->set_flags(flags);
  return call(request);
}

Answer Mount::link(const std::string& handle, const std::string& parent, std::string_view name) {
  schema::Request request;
  request.mutable_link()->set_handle(handle);
  request.mutable_link()->set_new_parent(parent);
  request.mutable_link()->set_new_name(std::string(name));
  return call(request);
}

Answer Mount::readdir(const std::string& handle, std::uint64_t cookie, bool with_nodes, std::uint32_t limit) {
  schema::Request request;
  request.mutable_readdir()->set_handle(handle);
  request.mutable_readdir()->set_cookie(cookie);
  request.mutable_readdir()->set_with_nodes(with_nodes);
  request.mutable_readdir()->set_limit_bytes(limit);
  return call(request);
}

Answer expect_ok(Answer answer, const char* what, const char* file, int line) {
  if (answer.reply.error() != 0) {
    GTEST_MESSAGE_AT_(
        file, line,
        (std::string(what) + ": " + Error{answer.error(), answer.reply.message()}.message()).c_str(),
        testing::TestPartResult::kNonFatalFailure);
  }
  return answer;
}

}  // namespace tusk::server
