// What a change of a file's bytes leaves that failed, or was given up, although the server had made it:
// nothing here is taken for the file's any more. It takes leases back only from others.
#include "leased.h"

namespace tusk::client {
namespace {

using schema::Request;

class FailedChange : public Leased {
 protected:
  FailedChange() {
    server.put("a", "before");
    node = lookup("a").node;
    file = open("a");
    EXPECT_EQ(read(file, 0, 100), "before");
    scheduler.advance(std::chrono::milliseconds(1));
    kernel.inodes.clear();
  }
  // Requests of this kind are carried out, and answered as if they had not been.
  void make_and_fail(Request::OperationCase kind) {
    server.fault = [this, kind](const Request& request) -> std::optional<Error> {
      if (request.operation_case() != kind) return std::nullopt;
      server.put("a", "and after");
      return Error{ErrorCode::kCancelled, "given up"};
    };
  }
  void expect_nothing_old() {
    scheduler.advance(std::chrono::milliseconds(1));
    EXPECT_EQ(attributes(node)->attr.size, 9u);
    EXPECT_EQ(read(file, 0, 100), "and after");
    EXPECT_THAT(kernel.inodes, testing::Contains(node)) << "nor in its pages";
  }

  NodeId node;
  Handle file;
};

TEST_F(FailedChange, AnAppend) {
  make_and_fail(Request::kWrite);
  EXPECT_FALSE(finished(write(file, 6, "!", true)));
  expect_nothing_old();
}

TEST_F(FailedChange, AnOpenThatEmptiesTheFile) {
  make_and_fail(Request::kOpen);
  auto emptied = new_answer<OpenReply>();
  filesystem->open({}, node, O_WRONLY | O_TRUNC, into(emptied));
  EXPECT_FALSE(finished(emptied));
  expect_nothing_old();
}

TEST_F(FailedChange, AnotherSize) {
  make_and_fail(Request::kSetattr);
  auto cut = new_answer<AttributesReply>();
  filesystem->set_attributes({}, node, file, {.size = 3}, into(cut));
  EXPECT_FALSE(finished(cut));
  expect_nothing_old();
}

TEST_F(FailedChange, RangesThatAreReserved) {
  make_and_fail(Request::kAllocate);
  auto reserved = new_answer<void>();
  filesystem->allocate({}, file, 0, 9, 0, into(reserved));
  EXPECT_FALSE(finished(reserved));
  expect_nothing_old();
}

TEST_F(FailedChange, RangesThatTheServerCopies) {
  server.put("source", "and after");
  const Handle source = open("source");
  make_and_fail(Request::kCopyRange);
  auto copied = new_answer<ByteCount>();
  filesystem->copy_range({}, source, 0, file, 0, 9, into(copied));
  EXPECT_FALSE(finished(copied));
  expect_nothing_old();
}

TEST_F(FailedChange, WhatTheServerDoesNotAllowChangesNothing) {
  server.fault = [](const Request& request) -> std::optional<Error> {
    if (request.has_read()) return std::nullopt;
    return Error{from_errno(request.has_allocate() ? EOPNOTSUPP : ETXTBSY), "refused"};
  };
  auto reserved = new_answer<void>();
  filesystem->allocate({}, file, 0, 9, 0, into(reserved));
  EXPECT_FALSE(finished(reserved));
  auto emptied = new_answer<OpenReply>();
  filesystem->open({}, node, O_WRONLY | O_TRUNC, into(emptied));
  EXPECT_FALSE(finished(emptied));
  EXPECT_EQ(read(file, 0, 100), "before");
  EXPECT_EQ(server.seen(Request::kRead), 0u) << "it came with the open";
  EXPECT_TRUE(kernel.inodes.empty());
}

}  // namespace
}  // namespace tusk::client
