// Whether a call refused what a peer sent as malformed.
#pragma once

#include <gtest/gtest.h>

#include "proto/base/result.h"

namespace tusk::transport {

inline ::testing::AssertionResult is_malformed(const Result<void>& result) {
  if (result) return ::testing::AssertionFailure() << "accepted";
  return result.error().code == ErrorCode::kMalformed
             ? ::testing::AssertionSuccess()
             : ::testing::AssertionFailure() << result.error().message();
}

}  // namespace tusk::transport
