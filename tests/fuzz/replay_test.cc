// Every fuzz target with any compiler: the corpus (inputs that once broke something among them), the
// seeds, and mutations of both, the same ones every time. About a second each.
//
// When an input breaks a promise its bytes are printed; put them into corpus/TARGET/ once repaired.
// TUSK_FUZZ_RUNS=N multiplies the mutations, TUSK_FUZZ_SEED=N takes others, TUSK_FUZZ_INPUT=FILE runs one
// file through the target that --gtest_filter names.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets/fuzz_target.h"

namespace tusk::fuzz {
namespace {

const std::filesystem::path kCorpus = TUSK_CORPUS_DIR;

// ---------------------------------------------------------------- telling the input of a crash

struct Running {
  std::string_view target;
  std::span<const std::byte> input;
};
Running running;

void print_input_and_end(int) {
  std::fprintf(stderr, "\nfuzz target %.*s broke on these %zu bytes:\n%s\n",
               static_cast<int>(running.target.size()), running.target.data(), running.input.size(),
               golden::to_hex(running.input).c_str());
  std::_Exit(134);
}

void run(const FuzzTarget& target, const Bytes& input) {
  // In memory of exactly its size, so that the address sanitizer sees a read past its end.
  const auto memory = std::make_unique<std::byte[]>(input.size());
  std::copy(input.begin(), input.end(), memory.get());
  running = {target.name, {memory.get(), input.size()}};
  std::signal(SIGABRT, print_input_and_end);
  target.run(running.input);
  std::signal(SIGABRT, SIG_DFL);
}

// ---------------------------------------------------------------- inputs

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  Bytes bytes(content.size());
  std::transform(content.begin(), content.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

std::vector<Bytes> corpus_of(const FuzzTarget& target) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(kCorpus / target.name))
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target.name))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const auto& file : files) inputs.push_back(read_file(file));
  return inputs;
}

void replay(const FuzzTarget& target) {
  std::vector<Bytes> inputs = target.seeds();
  for (Bytes& input : corpus_of(target)) inputs.push_back(std::move(input));
  run(target, {});
  for (const Bytes& input : inputs) run(target, input);
  Random random(number_from_environment("TUSK_FUZZ_SEED", 1));
#ifdef __SANITIZE_ADDRESS__
  constexpr std::uint64_t kSlower = 5;
#else
  constexpr std::uint64_t kSlower = 1;
#endif
  const std::uint64_t runs = number_from_environment("TUSK_FUZZ_RUNS", 1) *
                             static_cast<std::uint64_t>(target.replay_mutations) / kSlower;
  for (std::uint64_t i = 0; i < runs; ++i) run(target, mutate(inputs, random));
}

// ---------------------------------------------------------------- tests

class FuzzReplay : public testing::TestWithParam<FuzzTarget> {};

INSTANTIATE_TEST_SUITE_P(Target, FuzzReplay, testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(FuzzReplay, KeepsItsPromises) {
  if (const char* file = std::getenv("TUSK_FUZZ_INPUT")) {
    run(GetParam(), read_file(file));
    return;
  }
  replay(GetParam());
}

TEST(FuzzTargets, AllHaveSeedsAndNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const FuzzTarget& target : fuzz_targets()) {
    EXPECT_TRUE(names.insert(target.name).second) << target.name;
    EXPECT_FALSE(target.seeds().empty()) << target.name;
    EXPECT_EQ(find_target(target.name), &target);
  }
  EXPECT_EQ(find_target("no such target"), nullptr);
}

TEST(FuzzCorpus, BelongsToTargets) {
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus))
    EXPECT_TRUE(find_target(entry.path().filename().string()))
        << entry.path() << " is the corpus of no target";
}

using FuzzDeathTest = testing::Test;

TEST(FuzzDeathTest, CanaryAPlantedFaultIsFoundAndItsInputTold) {
  // The seed itself is fine; only a mutation finds the fault.
  for (const Bytes& seed : canary_target().seeds()) run(canary_target(), seed);
  EXPECT_DEATH(replay(canary_target()), "fuzz target canary broke on these 44 bytes");
}

}  // namespace
}  // namespace tusk::fuzz
