// Changes that the server has answered and that may not be on its disk yet: kept until a COMMIT covers them,
// to be made again if the server's machine restarts before (redo.h; RFC 8881, 18.3 and 18.32: uncommitted
// data, write verifier).
//
// Each has a number, in the order of their answers, which is an order in which they can be made again. The
// bytes of WRITEs lie where they lay when they were sent: in the blocks of the file (BlockBuffer::keep),
// without a copy.
//
// Thread-safe; its mutex is a leaf.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/base/interval_set.h"
#include "proto/base/shared_bytes.h"
#include "proto/base/strong_int.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

class Inode;

struct UncommittedChange {
  // An entry of a LOG that makes it again. Nodes are named by their handles. Null: a WRITE of `range` to
  // `file`.
  std::unique_ptr<schema::Request> request;
  std::string made;             // the handle of the node that it made; empty: none
  std::shared_ptr<Inode> file;  // of a WRITE that was a call of its own or an entry of the log
  Interval range;
  SharedBytes bytes;            // of any WRITE
  ByteCount memory = 0;         // of them and the request; UncommittedChanges counts it
  std::uint64_t verifier = 0;   // under which it was answered
  bool can_be_repeated = true;  // done twice it would have another effect than once
};

// The request as it makes the change again, once it was answered so. nullopt: it has changed nothing.
[[nodiscard]] std::optional<UncommittedChange> repeatable(schema::Request request, const schema::Reply& reply,
                                                          SharedBytes body);

class UncommittedChanges {
 public:
  using Number = std::uint64_t;

  // After each addition; no lock is held. Set before the first.
  void on_added(std::function<void()> added) { added_ = std::move(added); }
  // An answer that was handed on behind a redo, since it waited for another (operation_log.h): its change has
  // no place in the order any more. Set before the first; no lock is held.
  void on_lost(std::function<void(const UncommittedChange&)> lost) { lost_ = std::move(lost); }

  // `present`: the server's verifier now.
  void add(UncommittedChange change, std::uint64_t present);
  // Of the newest; 0: there was none.
  [[nodiscard]] Number last() const;
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] ByteCount bytes() const;

  // Some WRITE to the file is kept.
  [[nodiscard]] bool has_writes(const Inode& file) const;
  // Some WRITE to the file up to that number was answered under another verifier.
  [[nodiscard]] bool has_writes_not_of(std::uint64_t verifier, const Inode& file, Number upto) const;
  // Some change is kept that would be made again over a newer one of this file: one of its bytes or
  // attributes, or what made it. A caller with the handle alone need not ask for WRITEs
  // that were calls of their own.
  [[nodiscard]] bool has_any(const std::string& handle, const Inode* file = nullptr) const;
  // Some change of the file's attributes is kept, for which a COMMIT of its bytes alone is not enough.
  [[nodiscard]] bool has_attributes(const std::string& handle) const;

  // A COMMIT that was sent after these changes had been answered has been answered under this verifier.
  void committed(std::uint64_t verifier, Number upto);
  // The same for one file: its bytes, size and attributes, but no names. Either all of them go or none, as an
  // older change that stays would be made again over newer ones that went. They stay as long as what made the
  // file does: who makes the file again needs them.
  void committed(std::uint64_t verifier, Number upto, const Inode& file, const std::string& handle);

  // Those that were answered under another verifier, oldest first.
  [[nodiscard]] std::vector<Number> not_of(std::uint64_t verifier) const;
  // With its mutex held; false: it is not kept any more.
  bool visit(Number number, const std::function<void(UncommittedChange&)>& visit);
  // It is not kept any more.
  [[nodiscard]] std::optional<UncommittedChange> take(Number number);
  // Nodes have other handles now.
  void rename(const std::function<void(std::string& handle)>& rename);
  // Nothing is kept, now and later: this server commits no more than files. What is known on is which files
  // have WRITEs that no COMMIT covers, and under which verifier: has_writes() and has_writes_not_of() tell.
  void give_up();

 private:
  using Changes = std::map<Number, UncommittedChange>;
  // With mutex_ held. What was kept goes once the mutex is let go.
  void take(Changes::iterator place, std::vector<Changes::node_type>& taken);

  // Of a file of a server that was given up: its WRITEs since the last COMMIT.
  struct Unstable {
    std::weak_ptr<Inode> file;
    std::uint64_t oldest = 0;  // verifiers
    std::uint64_t newest = 0;
    Number last = 0;
  };
  static constexpr std::size_t kUnstableMin = 1024;  // so many may be of files that are forgotten
  void note_unstable(const UncommittedChange& write, Number number);
  [[nodiscard]] const Unstable* unstable(const Inode& file) const;

  std::function<void()> added_;
  std::function<void(const UncommittedChange&)> lost_;
  mutable std::mutex mutex_;
  Changes changes_;
  std::unordered_map<const Inode*, std::set<Number>> writes_;     // of the WRITEs to `file`
  std::unordered_map<std::string, std::set<Number>> changes_of_;  // of the others, by the handle they change
  std::unordered_map<std::string, Number> made_;
  ByteCount bytes_ = 0;
  Number last_ = 0;
  bool given_up_ = false;
  std::unordered_map<const Inode*, Unstable> unstable_;
  std::size_t unstable_max_ = kUnstableMin;
};

}  // namespace tusk::client
