// The vocabulary of the client's tests: a Filesystem before a FakeServer, in virtual time.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fake_server.h"
#include "fsclient/filesystem.h"
#include "manual_scheduler.h"
#include "proto/base/random.h"

namespace tusk::client {

class FakeKernel final : public KernelCache {
 public:
  void invalidate_inode(NodeId node) override { inodes.push_back(node); }
  void invalidate_from(NodeId node, ByteCount from) override { tails.emplace_back(node, from); }
  void invalidate_range(NodeId node, Interval range) override { ranges.emplace_back(node, range); }
  bool invalidate_attributes(NodeId node) override {
    attributes.push_back(node);
    return !unknown.contains(node);
  }
  void invalidate_entry(NodeId, const std::string& name) override { entries.push_back(name); }

  std::vector<NodeId> inodes;
  std::vector<std::pair<NodeId, ByteCount>> tails;
  std::vector<std::pair<NodeId, Interval>> ranges;
  std::vector<NodeId> attributes;
  std::vector<std::string> entries;
  std::set<NodeId> unknown;  // inodes that it has not taken in yet
};

// The answer to an operation, once there is one.
template <class T>
using Answer = std::shared_ptr<std::optional<Result<T>>>;

template <class T>
Done<T> into(const Answer<T>& answer) {
  return [answer](Result<T> result) {
    EXPECT_FALSE(answer->has_value()) << "answered twice";
    answer->emplace(std::move(result));
  };
}

class Client : public testing::Test {
 protected:
  explicit Client(Filesystem::Options options = {}) { mount_with(std::move(options)); }
  ~Client() override { unmount(); }

  // As when a daemon ends: what it waits for never comes, and what it meant to do is not done.
  void unmount() {
    server.drop_calls();
    scheduler.drop();
    filesystem.reset();
  }
  void mount_with(Filesystem::Options options, std::optional<schema::AttachReply> attached = {}) {
    unmount();
    filesystem = std::make_unique<Filesystem>(server, scheduler, kernel,
                                              attached.value_or(server.attached()), std::move(options));
  }

  // Until nothing is left to do without time going by.
  void settle() {
    while (server.answer_all() || scheduler.run()) {
    }
  }

  // As after a reconnect. What the server was asked.
  schema::AttachRequest reattach(const schema::AttachReply& reply) {
    schema::AttachRequest request;
    filesystem->handle_attaching(request);
    filesystem->handle_attached(reply);
    return request;
  }

  template <class T>
  [[nodiscard]] static Answer<T> new_answer() {
    return std::make_shared<std::optional<Result<T>>>();
  }

  // Each waits for its answer.
  EntryReply lookup(const std::string& name) {
    auto answer = new_answer<EntryReply>();
    filesystem->lookup({}, kRootNode, name, into(answer));
    return finished(answer).value_or(EntryReply{});
  }
  // The names, in order; with attributes their inodes are in `nodes`.
  std::vector<std::string> list(Handle directory, bool with_attributes) {
    std::vector<std::string> names;
    // A reply may bring less than there is; the end is a reply that brings nothing.
    std::uint64_t next = 0;
    for (bool more = true; more;) {
      more = false;
      auto answer = new_answer<void>();
      filesystem->read_directory(
          {}, directory, next, with_attributes,
          [&](const DirectoryEntryOut& out) {
            names.emplace_back(out.name);
            if (out.attributes) nodes[names.back()] = out.attributes->node;
            next = out.next;
            return more = true;
          },
          into(answer));
      EXPECT_TRUE(finished(answer));
    }
    return names;
  }
  std::vector<std::string> list(NodeId node) {
    const Handle directory = filesystem->open_directory({}, node)->handle;
    std::vector<std::string> names = list(directory, true);
    filesystem->close_directory(directory);
    return names;
  }
  Handle open(const std::string& name, int flags = O_RDWR) {
    auto answer = new_answer<OpenReply>();
    filesystem->open({}, lookup(name).node, static_cast<std::uint32_t>(flags), into(answer));
    const Result<OpenReply> opened = finished(answer);
    EXPECT_TRUE(opened) << opened.error().message();
    last_open = opened.value_or(OpenReply{});
    return last_open.handle;
  }
  Handle create(const std::string& name, int flags = O_RDWR) {
    auto answer = new_answer<CreateReply>();
    filesystem->create({}, kRootNode, name, 0644, static_cast<std::uint32_t>(flags), into(answer));
    const Result<CreateReply> created = finished(answer);
    last_node = created->entry.node;
    return created->open.handle;
  }
  std::string read(Handle handle, ByteCount offset, ByteCount length) {
    const auto answer = begin_read(handle, offset, length);
    return text_of(finished(answer));
  }
  Result<AttributesReply> attributes(NodeId node) {
    auto answer = new_answer<AttributesReply>();
    filesystem->attributes({}, node, into(answer));
    return finished(answer);
  }
  Result<void> flush(Handle handle) { return finished(begin_flush(handle)); }
  Result<void> sync(Handle handle) {
    auto answer = new_answer<void>();
    filesystem->sync({}, handle, false, into(answer));
    return finished(answer);
  }
  void close(Handle handle) {
    EXPECT_TRUE(flush(handle));
    filesystem->release(handle, false);
    settle();
  }

  // Does not wait.
  Answer<ReadPieces> begin_read(Handle handle, ByteCount offset, ByteCount length) {
    auto answer = new_answer<ReadPieces>();
    filesystem->read({}, handle, offset, length, into(answer));
    return answer;
  }
  Answer<std::uint32_t> write(Handle handle, ByteCount offset, std::string_view bytes, bool appends = false) {
    auto answer = new_answer<std::uint32_t>();
    filesystem->write({}, handle, offset, as_byte_span(bytes), appends, into(answer));
    return answer;
  }
  Answer<void> begin_flush(Handle handle) {
    auto answer = new_answer<void>();
    filesystem->flush({}, handle, 0, into(answer));
    return answer;
  }

  template <class T>
  Result<T> finished(const Answer<T>& answer) {
    settle();
    EXPECT_TRUE(answer->has_value()) << "no answer";
    if (!answer->has_value()) return fail(ErrorCode::kInternal, "no answer");
    return std::move(**answer);
  }

  static std::string text_of(const Result<ReadPieces>& pieces) {
    if (!pieces) return "error: " + pieces.error().message();
    std::string text;
    for (const SharedBytes& piece : *pieces) text += as_text(piece.bytes);
    return text;
  }

  ManualScheduler scheduler;
  FakeServer server;
  FakeKernel kernel;
  std::unique_ptr<Filesystem> filesystem;
  std::map<std::string, NodeId> nodes;  // by the names that were listed
  OpenReply last_open;
  NodeId last_node;
};

constexpr int kKiB = 1024;
constexpr ByteCount kMiB = 1024 * kKiB;

// Bytes that tell their offset, so that a mix-up shows.
inline std::string pattern(std::size_t size, std::size_t salt = 0) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 31 + i / 251 + salt * 7) & 0xff);
  return bytes;
}

}  // namespace tusk::client
