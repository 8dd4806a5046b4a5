// Random scenarios, each from one number. A failing seed is replayed with the command it prints.
//
// TUSK_SIM_SEEDS=N runs N seeds of each kind instead of the usual few; TUSK_SIM_FIRST=K starts at K.
#include <cstdlib>

#include "tests/simulation/vocabulary.h"
#include "tests/support/sim_scenario.h"

namespace tusk::simulation {
namespace {

constexpr std::uint64_t kSeedsUsual = 300;
// So that a machine with several cores takes a share on each.
constexpr std::uint64_t kParts = 8;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void expect_all_well(bool secure, std::uint64_t part) {
  const std::uint64_t first = number_from("TUSK_SIM_FIRST", 1);
  const std::uint64_t count = number_from("TUSK_SIM_SEEDS", kSeedsUsual);
  for (std::uint64_t seed = first + part; seed < first + count; seed += kParts) {
    const SimScenario scenario = random_scenario(seed, secure);
    const SimReport report = run_scenario(scenario);
    EXPECT_TRUE(report.complaints.empty())
        << "replay with: ./dev sim " << seed << (secure ? " --secure" : "") << "\n"
        << describe(scenario) << describe(report);
  }
}

class Seeds : public testing::TestWithParam<std::uint64_t> {};
TEST_P(Seeds, BareTransport) { expect_all_well(false, GetParam()); }
TEST_P(Seeds, WithKeys) { expect_all_well(true, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Part, Seeds, testing::Range<std::uint64_t>(0, kParts),
                         testing::PrintToStringParamName());

TEST(SameSeed, GivesTheSameEvents) {
  for (const bool secure : {false, true}) {
    for (const std::uint64_t seed : {3, 17, 28}) {
      const SimScenario scenario = random_scenario(seed, secure);
      EXPECT_EQ(run_scenario(scenario).event_hash, run_scenario(scenario).event_hash) << "seed " << seed;
    }
    EXPECT_NE(run_scenario(random_scenario(3, secure)).event_hash,
              run_scenario(random_scenario(4, secure)).event_hash);
  }
}

// ------------------------------------------------ canaries: a broken world must not pass

// A path on which faults happen for certain, with enough traffic to meet them.
SimScenario faulty_scenario() {
  SimScenario scenario = random_scenario(1, false);
  scenario.options.path = wan().path;
  scenario.options.path.to_client.loss = 0.01;
  scenario.options.path.to_client.corrupt = 0.01;
  scenario.changes.clear();
  scenario.calls_max = 200;
  scenario.bytes_max = 20 * kMiB;
  scenario.cancel_share = 0;
  scenario.fetch_share = 1;
  scenario.limit = 60s;
  return scenario;
}

TEST(Canary, ASoundWorldPasses) {
  EXPECT_THAT(run_scenario(faulty_scenario()).complaints, testing::IsEmpty());
}

TEST(Canary, RepairsThatVanishAreNoticed) {
  EXPECT_THAT(run_scenario(faulty_scenario(), Sabotage::kRepairsVanish).complaints,
              testing::Not(testing::IsEmpty()));
}

TEST(Canary, DamageThatIsAcceptedIsNoticed) {
  EXPECT_THAT(run_scenario(faulty_scenario(), Sabotage::kDamageAccepted).complaints,
              testing::Not(testing::IsEmpty()));
}

TEST(Canary, AnAnswerThatNeverComesIsNoticed) {
  SimPair pair(wan());
  pair.traffic().think(1h);
  pair.fetch(1000);
  EXPECT_FALSE(pair.run_to_rest(5s));
  EXPECT_THAT(pair.complaints(), testing::ElementsAre(testing::HasSubstr("not answered")));
}

}  // namespace
}  // namespace tusk::simulation
