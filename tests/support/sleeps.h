// How often threads have gone to sleep: who has nothing to do should not wake up to find that out.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace tusk::support {

using Sleeps = std::map<std::string, std::uint64_t>;  // by thread

// Of all threads of this process but the one that asks and those of `older`.
[[nodiscard]] inline Sleeps sleeps_of_others(const Sleeps& older = {}) {
  Sleeps sleeps;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string thread = task.path().filename();
    if (thread == std::to_string(::gettid()) || older.contains(thread)) continue;
    std::ifstream status(task.path() / "status");  // of a thread that has just ended: nothing
    for (std::string word; status >> word;) {
      std::uint64_t count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) sleeps[thread] = count;
    }
  }
  return sleeps;
}

// Of the threads that a program has before it starts any: the thread sanitizer starts one of its own with the
// first one, which wakes ten times a second.
[[nodiscard]] inline Sleeps sleeps_of_the_first() {
  std::thread([] {}).join();
  return sleeps_of_others();
}

// Of the threads that were there then and still are: others come and go, and their numbers come again.
[[nodiscard]] inline std::uint64_t sleeps_since(const Sleeps& before) {
  std::uint64_t sum = 0;
  for (const auto& [thread, count] : sleeps_of_others())
    if (const auto then = before.find(thread); then != before.end() && count > then->second)
      sum += count - then->second;
  return sum;
}

}  // namespace tusk::support
