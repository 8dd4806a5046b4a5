// fuzz_seeds DIR: writes the well-formed inputs of every target to DIR/NAME/seed-N and prints the names.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/targets/fuzz_target.h"

namespace {

void write_seeds(const std::filesystem::path& folder, const tusk::fuzz::FuzzTarget& target) {
  std::filesystem::create_directories(folder / target.name);
  int count = 0;
  for (const auto& seed : target.seeds()) {
    std::ofstream file(folder / target.name / ("seed-" + std::to_string(count++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  for (const auto& target : tusk::fuzz::fuzz_targets()) {
    write_seeds(argv[1], target);
    std::printf("%s\n", std::string(target.name).c_str());
  }
  write_seeds(argv[1], tusk::fuzz::canary_target());
  return 0;
}
