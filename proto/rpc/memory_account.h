// Counts memory until its last owner lets go of it, whoever that is by then: a connection, a call that waits
// for a disk, a call whose connection is gone. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"

namespace tusk::rpc {

class MemoryAccount {
 public:
  // Whatever is added here is added to `whole`, too.
  explicit MemoryAccount(std::shared_ptr<MemoryAccount> whole = nullptr) : whole_(std::move(whole)) {}

  [[nodiscard]] ByteCount held() const { return held_.load(std::memory_order_relaxed); }

  void add(ByteCount size) {
    held_.fetch_add(size, std::memory_order_relaxed);
    if (whole_) whole_->add(size);
  }
  void remove(ByteCount size) {
    held_.fetch_sub(size, std::memory_order_relaxed);
    if (whole_) whole_->remove(size);
  }

 private:
  const std::shared_ptr<MemoryAccount> whole_;
  std::atomic<ByteCount> held_ = 0;
};

// Fresh memory that counts as long as it lives.
[[nodiscard]] inline MutableSharedBytes allocate_counted(std::shared_ptr<MemoryAccount> account,
                                                         std::size_t size) {
  struct Counted {
    Counted(std::shared_ptr<MemoryAccount> counted_in, MutableSharedBytes counted)
        : account(std::move(counted_in)), memory(std::move(counted)) {
      account->add(memory.size());
    }
    ~Counted() { account->remove(memory.size()); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

    const std::shared_ptr<MemoryAccount> account;
    const MutableSharedBytes memory;
  };
  auto owner = std::make_shared<Counted>(std::move(account), allocate_bytes(size));
  const std::span<std::byte> bytes = owner->memory.bytes;
  return {std::move(owner), bytes};
}

}  // namespace tusk::rpc
