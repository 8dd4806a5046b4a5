#include <dirent.h>

#include "tests/fuzz/targets/drawn.h"

namespace tusk::fuzz {
namespace {

// A hostile server's handles: few, so that they come again where they do not belong.
std::string told_handle(Drawn& drawn) {
  constexpr std::uint64_t kNodes = 8;
  const std::uint64_t which = drawn.below(16);
  if (which == 0) return std::string(as_text(drawn.operations().bytes(200)));
  if (which == 1) return {};
  if (which == 2) return "root";
  return "node" + std::to_string(drawn.below(kNodes));
}

schema::Cover cover(Drawn& drawn) {
  return static_cast<schema::Cover>(drawn.below(8) == 0 ? drawn.number32() : drawn.below(4));
}

void draw_attr(Drawn& drawn, schema::Attr& attr) {
  attr.set_ino(drawn.size(8));
  attr.set_mode(drawn.below(4) == 0 ? drawn.mode() : (drawn.flag() ? S_IFREG | 0644 : S_IFDIR | 0755));
  attr.set_nlink(static_cast<std::uint32_t>(drawn.size(3)));
  attr.set_uid(drawn.number32());
  attr.set_size(drawn.size(9000));
  attr.set_blocks(drawn.number());
  attr.set_block_size(drawn.number32());
  attr.set_mtime_s(static_cast<std::int64_t>(drawn.size(9)));
  attr.set_mtime_ns(drawn.number32());
  attr.set_ctime_s(static_cast<std::int64_t>(drawn.size(9)));
  attr.set_change(drawn.size(6));
  attr.set_change_before(drawn.size(6));
  attr.set_no_xattrs(drawn.flag());
  attr.set_cover(cover(drawn));
}

void draw_node(Drawn& drawn, schema::Node& node) {
  node.set_handle(told_handle(drawn));
  if (drawn.below(8) != 0) draw_attr(drawn, *node.mutable_attr());
}

void draw_entry(Drawn& drawn, schema::DirEntry& entry) {
  entry.set_name(drawn.name());
  entry.set_type(static_cast<std::uint32_t>(drawn.size(14)));
  entry.set_ino(drawn.size(8));
  entry.set_cookie(drawn.size(6));
  if (drawn.flag()) draw_node(drawn, *entry.mutable_node());
  if (drawn.below(4) == 0) entry.set_link_target(drawn.text());
}

void draw_listing(Drawn& drawn, schema::WalkListing& listing) {
  listing.set_parent(static_cast<std::uint32_t>(drawn.size(4)));
  listing.set_entry(static_cast<std::uint32_t>(drawn.size(4)));
  listing.set_start(static_cast<std::uint32_t>(drawn.size(2)));
  listing.set_name(static_cast<std::uint32_t>(drawn.size(2)));
  if (drawn.flag()) draw_node(drawn, *listing.mutable_directory());
  for (std::uint64_t n = drawn.below(4); n > 0; --n) draw_entry(drawn, *listing.add_entries());
  listing.set_unlisted(drawn.below(8) == 0);
  listing.set_names(cover(drawn));
  listing.set_digest(drawn.size(4));
  listing.set_unchanged(drawn.below(4) == 0);
  for (std::uint64_t n = drawn.below(3); n > 0; --n) listing.add_entry_covers(cover(drawn));
}

void draw_list_reply(Drawn& drawn, schema::ReadDirReply& reply) {
  for (std::uint64_t n = drawn.below(5); n > 0; --n) draw_entry(drawn, *reply.add_entries());
  reply.set_end(drawn.flag());
  if (drawn.flag()) draw_attr(drawn, *reply.mutable_directory());
}

void draw_open_reply(Drawn& drawn, schema::OpenReply& reply) {
  reply.set_open_id(drawn.size(4));
  if (drawn.below(8) != 0) draw_node(drawn, *reply.mutable_node());
  reply.set_created(drawn.flag());
  reply.set_body_bytes(static_cast<std::uint32_t>(drawn.size(4096)));
}

void draw_files_reply(Drawn& drawn, schema::ReadFilesReply& reply) {
  for (std::uint64_t n = drawn.below(4); n > 0; --n) {
    auto& file = *reply.add_files();
    file.set_folder(static_cast<std::uint32_t>(drawn.size(2)));
    file.set_name(static_cast<std::uint32_t>(drawn.size(3)));
    if (drawn.below(8) != 0) draw_node(drawn, *file.mutable_node());
    file.set_length(static_cast<std::uint32_t>(drawn.size(100)));
    file.set_unchanged(drawn.below(4) == 0);
  }
  reply.set_length(static_cast<std::uint32_t>(drawn.size(300)));
  reply.set_compressed(drawn.below(4) == 0);
}

void draw_copy_reply(Drawn& drawn, schema::CopyRangeReply& reply, std::uint64_t asked) {
  reply.set_copied(drawn.flag() ? asked : drawn.size(5000));
  if (drawn.flag()) draw_attr(drawn, *reply.mutable_target());
}

void draw_acquire_reply(Drawn& drawn, schema::AcquireReply& reply) {
  for (std::uint64_t n = drawn.below(4); n > 0; --n) reply.add_names(cover(drawn));
  for (std::uint64_t n = drawn.below(4); n > 0; --n) draw_attr(drawn, *reply.add_directories());
}

using Operation = schema::Request;

// Of names.
bool draw_of_names(Drawn& drawn, const schema::Request& asked, schema::Reply& reply) {
  switch (asked.operation_case()) {
    case Operation::kLookup:
    case Operation::kMakeNode:
    case Operation::kLink:
      if (drawn.below(8) != 0) draw_node(drawn, *reply.mutable_node()->mutable_node());
      reply.mutable_node()->set_made_names(cover(drawn));
      if (drawn.below(4) == 0) draw_listing(drawn, *reply.mutable_node()->mutable_listing());
      return true;
    case Operation::kReaddir:
      draw_list_reply(drawn, *reply.mutable_readdir());
      return true;
    case Operation::kRemove:
      if (drawn.flag()) draw_attr(drawn, *reply.mutable_remove()->mutable_attr());
      (void)reply.mutable_remove();
      return true;
    case Operation::kRename:
      if (drawn.flag()) draw_node(drawn, *reply.mutable_rename()->mutable_moved());
      (void)reply.mutable_rename();
      return true;
    case Operation::kReadlink:
      reply.mutable_readlink()->set_target(drawn.text());
      return true;
    case Operation::kWalk:
      reply.mutable_walk()->set_length(static_cast<std::uint32_t>(drawn.size(300)));
      reply.mutable_walk()->set_compressed(drawn.below(4) == 0);
      return true;
    case Operation::kAcquire:
      draw_acquire_reply(drawn, *reply.mutable_acquire());
      return true;
    default:
      return false;
  }
}

// Of files.
bool draw_of_files(Drawn& drawn, const schema::Request& asked, schema::Reply& reply) {
  switch (asked.operation_case()) {
    case Operation::kOpen:
    case Operation::kCreate:
      draw_open_reply(drawn, *reply.mutable_open());
      return true;
    case Operation::kRead:
      reply.mutable_read()->set_length(
          static_cast<std::uint32_t>(drawn.flag() ? asked.read().length() : drawn.size(5000)));
      reply.mutable_read()->set_compressed(drawn.below(8) == 0);
      reply.mutable_read()->set_change(drawn.size(6));
      reply.mutable_read()->set_end_of_file(drawn.flag());
      return true;
    case Operation::kReadFiles:
      draw_files_reply(drawn, *reply.mutable_read_files());
      return true;
    case Operation::kWrite:
      reply.mutable_write()->set_offset(drawn.size(9000));
      if (drawn.below(8) != 0) draw_attr(drawn, *reply.mutable_write()->mutable_attr());
      return true;
    case Operation::kCommit:
      reply.mutable_commit()->set_boot_id(drawn.flag() ? "boot" : drawn.name());
      return true;
    case Operation::kSeek:
      reply.mutable_seek()->set_offset(drawn.number());
      return true;
    case Operation::kCopyRange:
      draw_copy_reply(drawn, *reply.mutable_copy_range(), asked.copy_range().length());
      return true;
    default:
      return false;
  }
}

void draw_of_the_rest(Drawn& drawn, const schema::Request& asked, schema::Reply& reply) {
  switch (asked.operation_case()) {
    case Operation::kGetattr:
    case Operation::kSetattr:
    case Operation::kAllocate:
      return draw_attr(drawn, *reply.mutable_attr()->mutable_attr());
    case Operation::kStatfs:
      reply.mutable_statfs()->set_block_size(drawn.number());
      return reply.mutable_statfs()->set_blocks(drawn.number());
    case Operation::kGetxattr:
    case Operation::kListxattr:
      return reply.mutable_xattr()->set_value(drawn.text());
    case Operation::kLock:
      reply.mutable_lock()->set_type(static_cast<std::uint32_t>(drawn.size(3)));
      reply.mutable_lock()->set_start(drawn.number());
      return reply.mutable_lock()->set_end(drawn.number());
    case Operation::kLog: {
      const int entries = asked.log().entries_size() + (drawn.below(8) == 0 ? 1 : 0);
      for (int i = 0; i < entries; ++i)
        *reply.mutable_log()->add_replies() =
            drawn_reply(drawn, i < asked.log().entries_size() ? asked.log().entries(i) : schema::Request());
      return;
    }
    default:
      return void(reply.mutable_empty());
  }
}

}  // namespace

schema::Reply drawn_reply(Drawn& drawn, const schema::Request& asked) {
  schema::Reply reply;
  const std::uint64_t how = drawn.below(16);
  if (how == 0) {
    constexpr std::uint32_t kErrors[] = {1,  2,  5,  9,   11,  13,   17,   20,    21,
                                         28, 39, 40, 116, 125, 1014, 1000, 77'777};
    reply.set_error(kErrors[drawn.below(std::size(kErrors))]);
    reply.set_message(drawn.text());
    return reply;
  }
  if (how == 1) {
    (void)reply.ParseFromString(std::string(as_text(drawn.operations().bytes(400))));
    reply.clear_error();  // a Caller makes it an Error
    return reply;
  }
  schema::Request answered = asked;
  if (how == 2) answered = drawn_request(drawn);
  if (!draw_of_names(drawn, answered, reply) && !draw_of_files(drawn, answered, reply))
    draw_of_the_rest(drawn, answered, reply);
  if (drawn.below(4) != 0) reply.set_lease(drawn.size(3));
  reply.set_names(cover(drawn));
  if (drawn.below(4) == 0) reply.set_exclusive(drawn.size(3));
  if (drawn.below(4) == 0) draw_attr(drawn, *reply.mutable_directory());
  return reply;
}

schema::AttachReply drawn_attach_reply(Drawn& drawn, const std::string& root) {
  schema::AttachReply reply;
  reply.mutable_root()->set_handle(root);
  draw_attr(drawn, *reply.mutable_root()->mutable_attr());
  reply.mutable_root()->mutable_attr()->set_mode(S_IFDIR | 0755);
  reply.set_boot_id(drawn.flag() ? "boot" : drawn.name());
  reply.set_instance_id(drawn.flag() ? "one" : drawn.name());
  reply.set_resumed(drawn.flag());
  reply.set_attr_lifetime_ms(drawn.number32());
  reply.set_max_read(drawn.number32());
  reply.set_max_write(drawn.number32());
  reply.set_identity_real(drawn.flag());
  reply.set_lease_ms(drawn.flag() ? 10'000 : drawn.number32());
  reply.set_lease_floor(drawn.size(3));
  reply.set_watching(static_cast<schema::ChangeWatching>(drawn.below(4)));
  reply.set_unix_time_ns(drawn.number());
  for (std::uint64_t n = drawn.below(4); n > 0; --n)
    reply.add_locks_kept(static_cast<std::uint32_t>(drawn.size(3)));
  reply.set_connections_max(drawn.number32());
  reply.set_root_lease(drawn.size(3));
  if (drawn.flag()) draw_listing(drawn, *reply.mutable_root_listing());
  return reply;
}

schema::Request drawn_push(Drawn& drawn) {
  schema::Request request;
  if (drawn.below(8) == 0) return drawn_request(drawn);
  auto& push = *request.mutable_invalidate();
  for (std::uint64_t n = drawn.below(5); n > 0; --n) {
    auto& item = *push.add_items();
    item.set_handle(told_handle(drawn));
    item.set_data(drawn.flag());
    item.set_entries(drawn.flag());
    if (drawn.flag()) item.set_name(drawn.name());
  }
  push.set_lease_floor(drawn.below(4) == 0 ? drawn.size(4) : 0);
  push.set_changed(drawn.flag());
  push.set_exclusive_over(drawn.below(4) == 0 ? drawn.size(4) : 0);
  return request;
}

schema::WalkListings drawn_listings(Drawn& drawn) {
  schema::WalkListings listings;
  for (std::uint64_t n = drawn.below(5); n > 0; --n) draw_listing(drawn, *listings.add_listings());
  return listings;
}

}  // namespace tusk::fuzz
