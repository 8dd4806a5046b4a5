#include "fsclient/kernel_listing.h"

#include <gtest/gtest.h>

#include "fsclient/directory.h"

namespace tusk::client {
namespace {

using Use = KernelListing::Use;

class KernelListings : public testing::Test {
 protected:
  [[nodiscard]] Use open(const std::shared_ptr<Listing>& current) { return kernel.open(current, now); }

  KernelListing kernel;
  const std::shared_ptr<Listing> listing = std::make_shared<Listing>();
  const std::shared_ptr<Listing> newer = std::make_shared<Listing>();
  TimePoint now{std::chrono::hours(1)};
};

TEST_F(KernelListings, IsUsedAgainAsLongAsReadersWouldBeGivenTheSame) {
  EXPECT_EQ(open(listing), Use::kAnew);
  kernel.tell(listing);
  kernel.close();
  EXPECT_EQ(open(listing), Use::kKept);
  kernel.close();
  EXPECT_EQ(open(newer), Use::kAnew);
  kernel.close();
  EXPECT_EQ(open(nullptr), Use::kAnew) << "nobody knows what it will be";
}

TEST_F(KernelListings, TheFirstReaderFillsItWithWhatItIsTold) {
  EXPECT_EQ(open(nullptr), Use::kAnew);
  kernel.tell(listing);
  kernel.close();
  EXPECT_EQ(open(listing), Use::kKept);
}

// Whatever it has, the kernel goes on in it at the place where a reader is.
TEST_F(KernelListings, IsForOneReaderAtATime) {
  EXPECT_EQ(open(listing), Use::kAnew);
  EXPECT_EQ(open(newer), Use::kAside);
  EXPECT_EQ(open(listing), Use::kAside);
  kernel.tell(listing);
  kernel.close();
  EXPECT_EQ(open(newer), Use::kAnew);
}

TEST_F(KernelListings, WhoBeginsAgainWithAnotherSpoilsIt) {
  EXPECT_EQ(open(listing), Use::kAnew);
  kernel.tell(listing);
  kernel.tell(newer);
  kernel.close();
  EXPECT_EQ(open(newer), Use::kAnew);
  kernel.close();
  EXPECT_EQ(open(newer), Use::kKept);
}

TEST_F(KernelListings, IsToldAnewBeforeWhatCameWithItEnds) {
  EXPECT_EQ(open(listing), Use::kAnew);
  kernel.renew_at(now + std::chrono::seconds(75));
  kernel.renew_at(now + std::chrono::seconds(80));
  kernel.close();
  now += std::chrono::seconds(74);
  EXPECT_EQ(open(listing), Use::kKept);
  kernel.close();
  now += std::chrono::seconds(1);
  EXPECT_EQ(open(listing), Use::kAnew);
  kernel.close();
  EXPECT_EQ(open(listing), Use::kKept);
}

TEST_F(KernelListings, AListingThatIsGoneIsNoOther) {
  auto short_lived = std::make_shared<Listing>();
  EXPECT_EQ(open(short_lived), Use::kAnew);
  kernel.close();
  short_lived.reset();
  EXPECT_EQ(open(listing), Use::kAnew);
}

}  // namespace
}  // namespace tusk::client
