// Values for messages, drawn from a fuzzer's bytes: what a peer was told before, the same with a bit changed,
// what lies at a limit, and anything.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/shared_bytes.h"
#include "proto/schema/tusk.pb.h"
#include "tests/fuzz/targets/operations.h"

namespace tusk::fuzz {

class Drawn {
 public:
  explicit Drawn(Operations& operations) : operations_(operations) {}

  [[nodiscard]] Operations& operations() { return operations_; }
  [[nodiscard]] bool flag() { return operations_.flag(); }
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return operations_.below(bound); }

  // A number such as sizes, offsets and ids are.
  [[nodiscard]] std::uint64_t number() {
    constexpr std::uint64_t kLimits[] = {
        0,          1,          2,          511,        512,           4095,
        4096,       4097,       65'536,     1 << 20,    (1 << 20) + 1, 0x7fffffff,
        0x80000000, 0xffffffff, 1ull << 32, 1ull << 40, 1ull << 62,    (1ull << 63) - 1,
        1ull << 63, ~1ull,      ~0ull};
    const std::uint64_t which = below(2 * std::size(kLimits));
    return which < std::size(kLimits) ? kLimits[which] : operations_.u16();
  }
  [[nodiscard]] std::uint32_t number32() { return static_cast<std::uint32_t>(number()); }
  // Mostly small.
  [[nodiscard]] std::uint64_t size(std::uint64_t usual_max) {
    return below(8) == 0 ? number() : below(usual_max + 1);
  }

  [[nodiscard]] std::string name() {
    switch (below(16)) {
      case 0:
        return std::string(below(300), 'n');
      case 1:
        return std::string(as_text(operations_.bytes(16)));
      case 2:
        return below(2) == 0 ? "." : "..";
      case 3:
        return below(2) == 0 ? "a/b" : "../secret";
      case 4:
        return std::string("a\0b", 3);
      default:
        return std::string(1, static_cast<char>('a' + below(6)));
    }
  }
  [[nodiscard]] std::string text() {
    switch (below(4)) {
      case 0:
        return "../secret";
      case 1:
        return std::string(below(5000), 't');
      default:
        return std::string(as_text(operations_.bytes(40)));
    }
  }

  void learn_handle(const std::string& handle) {
    if (!handle.empty() && handles_.size() < kLearntMax) handles_.push_back(handle);
  }
  void learn_open(std::uint64_t id) {
    if (id != 0 && opens_.size() < kLearntMax) opens_.push_back(id);
  }
  [[nodiscard]] std::string handle() {
    const std::uint64_t which = below(16);
    if (which == 0) return std::string(as_text(operations_.bytes(160)));
    if (which == 1) return std::string("\xff\0\0\0\0\0\0\0", 8) + static_cast<char>(below(4));  // an alias
    if (handles_.empty()) return {};
    std::string known = handles_[below(handles_.size())];
    if (which == 2 && !known.empty()) known[below(known.size())] ^= static_cast<char>(1 << below(8));
    return known;
  }
  [[nodiscard]] std::uint64_t open_id() {
    const std::uint64_t which = below(8);
    if (which == 0) return number();
    if (which < 4 || opens_.empty()) return 0;
    return opens_[below(opens_.size())];
  }
  [[nodiscard]] std::uint32_t mode() {
    constexpr std::uint32_t kTypes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, 0};
    return kTypes[below(std::size(kTypes))] |
           static_cast<std::uint32_t>(below(2) == 0 ? 0755 : number() & 07777);
  }

 private:
  static constexpr std::size_t kLearntMax = 64;

  Operations& operations_;
  std::vector<std::string> handles_;
  std::vector<std::uint64_t> opens_;
};

// drawn_requests.cc: any operation, with the entries of a LOG, or a message that the fuzzer wrote itself.
// Sizes that would fill a disk, and devices, are made harmless.
[[nodiscard]] schema::Request drawn_request(Drawn& drawn);

// drawn_replies.cc: an answer to `asked`, or to something else, or an error.
[[nodiscard]] schema::Reply drawn_reply(Drawn& drawn, const schema::Request& asked);
[[nodiscard]] schema::AttachReply drawn_attach_reply(Drawn& drawn, const std::string& root);
[[nodiscard]] schema::Request drawn_push(Drawn& drawn);
[[nodiscard]] schema::WalkListings drawn_listings(Drawn& drawn);

}  // namespace tusk::fuzz
