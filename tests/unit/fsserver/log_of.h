// A LOG as tests write it: entry after entry.
#pragma once

#include <string>
#include <string_view>

#include "fsserver/aliases.h"
#include "mount.h"

namespace tusk::server {

class LogOf {
 public:
  explicit LogOf(std::uint64_t number, std::uint64_t answered = 0) {
    log().set_number(number);
    log().set_answered(answered);
  }
  LogOf& create(std::uint64_t alias, const std::string& parent, std::string_view name,
                std::uint64_t open_id = 0, std::uint64_t made_at_ns = 0) {
    schema::Request& entry = *log().add_entries();
    entry.set_alias(alias);
    entry.set_made_at_ns(made_at_ns);
    entry.mutable_create()->set_parent(parent);
    entry.mutable_create()->set_name(std::string(name));
    entry.mutable_create()->set_flags(O_RDWR | O_EXCL);
    entry.mutable_create()->set_mode(0644);
    entry.mutable_create()->set_open_id(open_id);
    return *this;
  }
  LogOf& make_node(std::uint64_t alias, const std::string& parent, std::string_view name, unsigned mode,
                   std::string_view target = {}) {
    schema::Request& entry = *log().add_entries();
    entry.set_alias(alias);
    entry.mutable_make_node()->set_parent(parent);
    entry.mutable_make_node()->set_name(std::string(name));
    entry.mutable_make_node()->set_mode(mode);
    entry.mutable_make_node()->set_target(std::string(target));
    return *this;
  }
  LogOf& make_directory(std::uint64_t alias, const std::string& parent, std::string_view name) {
    return make_node(alias, parent, name, S_IFDIR | 0755);
  }
  LogOf& write(const std::string& handle, std::uint64_t open_id, std::string_view bytes,
               std::uint64_t made_at_ns = 0, std::uint64_t offset = 0) {
    schema::Request& entry = *log().add_entries();
    entry.set_made_at_ns(made_at_ns);
    entry.mutable_write()->set_handle(handle);
    entry.mutable_write()->set_open_id(open_id);
    entry.mutable_write()->set_offset(offset);
    entry.mutable_write()->set_length(static_cast<std::uint32_t>(bytes.size()));
    body_ += bytes;
    return *this;
  }
  // Changes nothing, and is answered with attributes.
  LogOf& setattr(const std::string& handle) {
    log().add_entries()->mutable_setattr()->set_handle(handle);
    return *this;
  }
  LogOf& close(std::uint64_t open_id) {
    log().add_entries()->mutable_close()->set_open_id(open_id);
    return *this;
  }
  LogOf& remove(const std::string& parent, std::string_view name, const std::string& expected = {},
                bool directory = false) {
    schema::RemoveRequest& remove = *log().add_entries()->mutable_remove();
    remove.set_parent(parent);
    remove.set_name(std::string(name));
    remove.set_expected(expected);
    remove.set_directory(directory);
    return *this;
  }
  LogOf& rename(const std::string& parent, std::string_view old_name, std::string_view new_name,
                const std::string& expected = {}, const std::string& replaced = {}) {
    schema::RenameRequest& rename = *log().add_entries()->mutable_rename();
    rename.set_old_parent(parent);
    rename.set_old_name(std::string(old_name));
    rename.set_new_parent(parent);
    rename.set_new_name(std::string(new_name));
    rename.set_expected(expected);
    rename.set_replaced(replaced);
    return *this;
  }

  schema::LogRequest& log() { return *request_.mutable_log(); }
  schema::Request& request() { return request_; }

  std::shared_ptr<PendingCall> start(Mount& mount) const { return mount.start(request_, body_); }
  Answer send(Mount& mount) const { return start(mount)->wait(); }

 private:
  schema::Request request_;
  std::string body_;
};

// The errors of a LOG's entries.
[[nodiscard]] inline std::vector<ErrorCode> errors_of(const Answer& answer) {
  std::vector<ErrorCode> errors;
  for (const auto& reply : answer.reply.log().replies())
    errors.push_back(static_cast<ErrorCode>(reply.error()));
  return errors;
}

constexpr ErrorCode kDone{};  // no error

}  // namespace tusk::server
