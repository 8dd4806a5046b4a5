// A close that a signal cuts short.
#include "client.h"

namespace tusk::client {
namespace {

using CutClose = Client;

TEST_F(CutClose, TellsNobodyOfAnErrorWhichIsToldAllTheSame) {
  const Handle file = create("a");
  server.fault = [](const schema::Request& r) {
    return r.has_write() ? std::optional<Error>({from_errno(ENOSPC), ""}) : std::nullopt;
  };
  write(file, 0, "lost");
  const auto interrupt = std::make_shared<Interrupt>();
  auto closed = new_answer<void>();
  filesystem->flush({.interrupt = interrupt}, file, 1, into(closed));
  interrupt->fire();  // the program may have had its EINTR before the error comes
  EXPECT_EQ(finished(closed).error().code, ErrorCode::kCancelled);
  filesystem->release(file, false);
  EXPECT_EQ(filesystem->untold_failures().count, 1u);
}

}  // namespace
}  // namespace tusk::client
