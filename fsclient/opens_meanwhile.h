// The opens of one file that programs have been given before the server has done them
// (Filesystem::open_meanwhile), and who must not overtake them: pushes, behind whose answers others may take
// the file away, and what this mount itself is about to do to it.
//
// Its inode's mutex protects it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fsclient/push_answer.h"

namespace tusk::client {

class OpensMeanwhile {
 public:
  using Pushes = std::vector<std::shared_ptr<PushAnswer>>;

  // Opens that began without a push between them.
  class Group {
    friend OpensMeanwhile;
    std::uint32_t opens = 0;
    Pushes pushes;
  };

  [[nodiscard]] std::shared_ptr<Group> begin() {
    // A push waits for those that were there when it came: who opens the file again and again does not hold
    // it back.
    if (groups_.empty() || !groups_.back()->pushes.empty()) groups_.push_back(std::make_shared<Group>());
    ++groups_.back()->opens;
    return groups_.back();
  }

  // The server has done one of them, or refused. PushAnswer::handle_opened() is due for what it returns,
  // without the mutex.
  [[nodiscard]] Pushes end(const std::shared_ptr<Group>& group) {
    if (--group->opens > 0) return {};
    std::erase(groups_, group);
    return std::exchange(group->pushes, {});
  }

  void hold_back(const std::shared_ptr<PushAnswer>& push) {
    for (const auto& group : groups_) {
      push->await_open();
      group->pushes.push_back(push);
    }
  }

  // By who is about to take the file away here.
  void bar() { ++bars_; }
  void unbar() { --bars_; }
  [[nodiscard]] bool barred() const { return bars_ > 0; }

 private:
  std::vector<std::shared_ptr<Group>> groups_;  // oldest first; none is empty
  std::uint32_t bars_ = 0;
};

}  // namespace tusk::client
