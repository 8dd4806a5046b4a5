#include <fcntl.h>

#include <algorithm>

#include "tests/fuzz/targets/drawn.h"

namespace tusk::fuzz {
namespace {

// What a request makes a correct server do is as large as it says. A fuzzer has little time and shares its
// disk.
constexpr std::uint64_t kSizeMax = 4 << 20;
constexpr std::uint64_t kEntriesMax = 8;

std::uint32_t open_flags(Drawn& drawn) {
  constexpr int kFlags[] = {O_RDONLY,       O_WRONLY, O_RDWR, 3, O_RDWR | O_TRUNC, O_WRONLY | O_APPEND,
                            O_RDWR | O_EXCL};
  return static_cast<std::uint32_t>(kFlags[drawn.below(std::size(kFlags))]);
}

void draw_attach(Drawn& drawn, schema::AttachRequest& attach) {
  attach.set_export_name(drawn.below(4) == 0 ? drawn.name() : "data");
  attach.set_session(
      std::string(drawn.below(4) == 0 ? drawn.below(40) : 16, static_cast<char>('0' + drawn.below(4))));
  attach.set_read_only(drawn.flag());
  attach.set_client_name(drawn.text());
  attach.set_version(drawn.below(4) == 0 ? drawn.number32() : 1);
  attach.set_identity_real(drawn.flag());
  attach.set_leases(drawn.flag());
  attach.set_log_answered(drawn.size(8));
  attach.set_log_sent(drawn.size(8));
  attach.set_log_answered_beyond(std::string(as_text(drawn.operations().bytes(8))));
  attach.set_lane(drawn.below(4) == 0);
  attach.set_attempt(drawn.size(8));
  attach.set_listing_bytes(drawn.number32());
  for (std::uint64_t n = drawn.below(4); n > 0; --n) {
    schema::LockRequest& lock = *attach.add_locks();
    lock.set_handle(drawn.handle());
    lock.set_owner(drawn.size(4));
    lock.set_type(static_cast<std::uint32_t>(drawn.below(4)));
    lock.set_start(drawn.number());
    lock.set_end(drawn.number());
  }
  for (std::uint64_t n = drawn.below(3); n > 0; --n)
    attach.add_ended_sessions(std::string(16, static_cast<char>('0' + drawn.below(4))));
}

void draw_setattr(Drawn& drawn, schema::SetAttrRequest& change) {
  change.set_handle(drawn.handle());
  change.set_open_id(drawn.open_id());
  const std::uint64_t which = drawn.below(256);
  if (which & 1) change.set_mode(drawn.mode());
  if (which & 2) change.set_uid(drawn.number32());
  if (which & 4) change.set_gid(drawn.number32());
  if (which & 8) change.set_size(drawn.number());
  if (which & 16) change.set_atime_s(static_cast<std::int64_t>(drawn.number()));
  if (which & 32) change.set_mtime_s(static_cast<std::int64_t>(drawn.number()));
  change.set_atime_ns(drawn.number32());
  change.set_mtime_ns(drawn.number32());
  change.set_atime_now(which & 64);
  change.set_mtime_now(which & 128);
}

void draw_lock(Drawn& drawn, schema::LockRequest& lock) {
  lock.set_handle(drawn.handle());
  lock.set_open_id(drawn.open_id());
  lock.set_flock(drawn.flag());
  lock.set_owner(drawn.size(4));
  lock.set_type(static_cast<std::uint32_t>(drawn.below(4)));
  lock.set_start(drawn.number());
  lock.set_end(drawn.number());
  lock.set_wait(drawn.flag());
  lock.set_test(drawn.below(4) == 0);
  lock.set_pid(drawn.number32());
}

void draw_walk(Drawn& drawn, schema::WalkRequest& walk) {
  for (std::uint64_t n = drawn.below(4); n > 0; --n) {
    auto& start = *walk.add_starts();
    start.set_handle(drawn.handle());
    for (std::uint64_t names = drawn.below(4); names > 0; --names) start.add_names(drawn.name());
  }
  walk.set_limit_bytes(drawn.number32());
  walk.set_deep(drawn.flag());
  walk.set_digests(drawn.flag());
  for (std::uint64_t n = drawn.below(4); n > 0; --n) walk.add_known(drawn.number());
}

void draw_read_files(Drawn& drawn, schema::ReadFilesRequest& files) {
  for (std::uint64_t n = drawn.below(4); n > 0; --n) {
    auto& folder = *files.add_folders();
    folder.set_handle(drawn.handle());
    for (std::uint64_t names = drawn.below(4); names > 0; --names) folder.add_names(drawn.name());
    for (std::uint64_t known = drawn.below(6); known > 0; --known) folder.add_known_changes(drawn.number());
  }
  files.set_file_bytes_max(drawn.number32());
  files.set_limit_bytes(drawn.number32());
  files.set_compress(drawn.flag());
}

// Of names and links.
void draw_names(Drawn& drawn, std::uint64_t which, schema::Request& request) {
  switch (which) {
    case 0: {
      auto& lookup = *request.mutable_lookup();
      lookup.set_parent(drawn.handle());
      lookup.set_name(drawn.name());
      lookup.set_tell_absence(drawn.flag());
      lookup.set_listing_bytes(drawn.number32());
      return;
    }
    case 1: {
      auto& list = *request.mutable_readdir();
      list.set_handle(drawn.handle());
      list.set_cookie(drawn.size(4));
      list.set_with_nodes(drawn.flag());
      list.set_limit_bytes(drawn.number32());
      return;
    }
    case 2: {
      auto& make = *request.mutable_make_node();
      make.set_parent(drawn.handle());
      make.set_name(drawn.name());
      make.set_mode(drawn.mode());
      make.set_target(drawn.text());
      make.set_rdev(drawn.number());
      return;
    }
    case 3: {
      auto& remove = *request.mutable_remove();
      remove.set_parent(drawn.handle());
      remove.set_name(drawn.name());
      remove.set_directory(drawn.flag());
      if (drawn.flag()) remove.set_expected(drawn.handle());
      return;
    }
    case 4: {
      auto& rename = *request.mutable_rename();
      rename.set_old_parent(drawn.handle());
      rename.set_old_name(drawn.name());
      rename.set_new_parent(drawn.handle());
      rename.set_new_name(drawn.name());
      rename.set_flags(static_cast<std::uint32_t>(drawn.below(8)));
      if (drawn.flag()) rename.set_expected(drawn.handle());
      if (drawn.flag()) rename.set_replaced(drawn.handle());
      return;
    }
    case 5: {
      auto& link = *request.mutable_link();
      link.set_handle(drawn.handle());
      link.set_new_parent(drawn.handle());
      link.set_new_name(drawn.name());
      return;
    }
    case 6:
      return request.mutable_readlink()->set_handle(drawn.handle());
    case 7:
      return request.mutable_statfs()->set_handle(drawn.handle());
    case 8:
      return draw_walk(drawn, *request.mutable_walk());
    default: {
      for (std::uint64_t n = drawn.below(4); n > 0; --n)
        request.mutable_acquire()->add_handles(drawn.handle());
      return;
    }
  }
}

// Of one file.
void draw_file(Drawn& drawn, std::uint64_t which, schema::Request& request) {
  switch (which) {
    case 0: {
      auto& open = *request.mutable_open();
      open.set_handle(drawn.handle());
      open.set_flags(open_flags(drawn));
      open.set_read_ahead(drawn.number32());
      open.set_known_change(drawn.number());
      return;
    }
    case 1: {
      auto& create = *request.mutable_create();
      create.set_parent(drawn.handle());
      create.set_name(drawn.name());
      create.set_mode(static_cast<std::uint32_t>(drawn.number() & 07777));
      create.set_flags(open_flags(drawn));
      if (drawn.below(4) == 0) create.set_open_id((1ull << 63) + drawn.below(4));
      return;
    }
    case 2: {
      auto& read = *request.mutable_read();
      read.set_handle(drawn.handle());
      read.set_open_id(drawn.open_id());
      read.set_offset(drawn.size(8192));
      read.set_length(drawn.number32());
      read.set_compress(drawn.flag());
      return;
    }
    case 3: {
      auto& write = *request.mutable_write();
      write.set_handle(drawn.handle());
      write.set_open_id(drawn.open_id());
      write.set_offset(drawn.size(8192));
      write.set_append(drawn.flag());
      write.set_sync(drawn.below(8) == 0);
      write.set_length(static_cast<std::uint32_t>(drawn.size(3000)));
      write.set_compressed(drawn.below(8) == 0);
      return;
    }
    case 4: {
      auto& seek = *request.mutable_seek();
      seek.set_handle(drawn.handle());
      seek.set_open_id(drawn.open_id());
      seek.set_offset(drawn.number());
      seek.set_whence(static_cast<std::uint32_t>(drawn.below(6)));
      return;
    }
    case 5: {
      auto& allocate = *request.mutable_allocate();
      allocate.set_handle(drawn.handle());
      allocate.set_open_id(drawn.open_id());
      allocate.set_offset(drawn.number());
      allocate.set_length(drawn.number());
      allocate.set_mode(static_cast<std::uint32_t>(drawn.below(128)));
      return;
    }
    case 6: {
      auto& copy = *request.mutable_copy_range();
      copy.set_source(drawn.handle());
      copy.set_source_open_id(drawn.open_id());
      copy.set_source_offset(drawn.number());
      copy.set_target(drawn.handle());
      copy.set_target_open_id(drawn.open_id());
      copy.set_target_offset(drawn.number());
      copy.set_length(drawn.number());
      return;
    }
    case 7: {
      auto& commit = *request.mutable_commit();
      commit.set_handle(drawn.handle());
      commit.set_open_id(drawn.open_id());
      commit.set_data_only(drawn.flag());
      commit.set_directory(drawn.flag());
      return;
    }
    case 8:
      return request.mutable_close()->set_open_id(drawn.open_id());
    default:
      return draw_read_files(drawn, *request.mutable_read_files());
  }
}

void draw_attributes(Drawn& drawn, std::uint64_t which, schema::Request& request) {
  switch (which) {
    case 0:
      request.mutable_getattr()->set_handle(drawn.handle());
      return request.mutable_getattr()->set_open_id(drawn.open_id());
    case 1:
      return draw_setattr(drawn, *request.mutable_setattr());
    case 2:
      request.mutable_getxattr()->set_handle(drawn.handle());
      return request.mutable_getxattr()->set_name("user." + drawn.name());
    case 3: {
      auto& set = *request.mutable_setxattr();
      set.set_handle(drawn.handle());
      set.set_name(drawn.flag() ? "user." + drawn.name() : "system.posix_acl_default");
      set.set_value(drawn.text());
      return set.set_flags(static_cast<std::uint32_t>(drawn.below(4)));
    }
    case 4:
      return request.mutable_listxattr()->set_handle(drawn.handle());
    case 5:
      request.mutable_removexattr()->set_handle(drawn.handle());
      return request.mutable_removexattr()->set_name("user." + drawn.name());
    default:
      return draw_lock(drawn, *request.mutable_lock());
  }
}

void draw_plain(Drawn& drawn, schema::Request& request) {
  const std::uint64_t which = drawn.below(28);
  if (which < 10) return draw_names(drawn, which, request);
  if (which < 20) return draw_file(drawn, which - 10, request);
  draw_attributes(drawn, which - 20, request);
}

void draw_log(Drawn& drawn, schema::LogRequest& log) {
  log.set_number(drawn.size(8));
  log.set_answered(drawn.size(8));
  for (std::uint64_t n = drawn.below(kEntriesMax + 1); n > 0; --n) {
    schema::Request& entry = *log.add_entries();
    draw_plain(drawn, entry);
    if (drawn.flag()) entry.set_alias(drawn.below(4));
    if (drawn.flag()) entry.set_made_at_ns(drawn.number());
  }
}

template <class Number>
Number at_most(Number value, std::uint64_t limit) {
  return static_cast<Number>(std::min<std::uint64_t>(value, limit));
}

void tame(schema::Request& request) {
  // Devices that do no harm, should one be opened.
  if (request.has_make_node()) request.mutable_make_node()->set_rdev(0x103);
  if (request.has_allocate()) {
    request.mutable_allocate()->set_length(at_most(request.allocate().length(), kSizeMax));
    if (request.allocate().offset() < 1ull << 62)
      request.mutable_allocate()->set_offset(at_most(request.allocate().offset(), kSizeMax));
  }
  if (request.has_copy_range())
    request.mutable_copy_range()->set_length(at_most(request.copy_range().length(), kSizeMax));
  if (request.has_log())
    for (schema::Request& entry : *request.mutable_log()->mutable_entries()) tame(entry);
}

}  // namespace

schema::Request drawn_request(Drawn& drawn) {
  schema::Request request;
  const std::uint64_t how = drawn.below(32);
  if (how == 0) {
    (void)request.ParseFromString(std::string(as_text(drawn.operations().bytes(400))));
  } else if (how == 1) {
    draw_attach(drawn, *request.mutable_attach());
  } else if (how == 2) {
    drawn.below(4) == 0 ? void(request.mutable_detach()) : void(request.mutable_invalidate());
  } else if (how < 8) {
    draw_log(drawn, *request.mutable_log());
  } else {
    draw_plain(drawn, request);
  }
  if (how % 2 == 0) {
    request.set_sequence(drawn.size(12));
    request.set_sequence_done(drawn.size(12));
  }
  request.set_want_exclusive(how % 4 == 1);
  if (how == 9) {
    request.mutable_caller()->set_uid(drawn.number32());
    request.mutable_caller()->set_gid(drawn.number32());
    for (std::uint64_t n = drawn.below(4); n > 0; --n) request.mutable_caller()->add_groups(drawn.number32());
  }
  tame(request);
  return request;
}

}  // namespace tusk::fuzz
