// Makes again what the server has answered and lost: its machine restarted before a COMMIT. In the order of
// the answers, as LOGs of their own (docs/PROTOCOL.md, "Redo"), before any other call goes to the server.
//
// A node that was made and lost is another one once it is made again: it has another handle from then on.
// What it does not do: know which changes there are (uncommitted.h), or tell programs of those that fail.
//
// Thread-safe; its mutex comes before those of inodes and of UncommittedChanges.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fsclient/core.h"

namespace tusk::client {

class Redo {
 public:
  struct Events {
    // It could not be made again: whoever was told that it is done is to be told. On the network thread.
    std::function<void(const UncommittedChange& change, const Error& error)> failed;
  };
  // LOGs on their way, and of each the entries and about the bytes.
  static constexpr std::size_t kInFlightMax = 64;
  static constexpr std::size_t kBatchEntries = 256;
  static constexpr ByteCount kBatchBytes = 512 * 1024;
  static constexpr ByteCount kBatchMessage =
      96 * 1024;  // and one entry more: an extended attribute has 64 KiB

  // All must outlive it.
  Redo(rpc::Caller& caller, Core& core, Events events)
      : caller_(caller), core_(core), events_(std::move(events)) {}

  // The session was attached anew. While that is told (Channel::Events::reattached).
  void handle_attached(bool resumed);

 private:
  using Number = UncommittedChanges::Number;
  struct Batch {
    rpc::CallRequest call;
    std::vector<Number> numbers;
    std::vector<SharedBytes> bytes;
    ByteCount size = 0;     // of them
    ByteCount message = 0;  // of the entries
  };

  void begin(std::uint64_t epoch);
  [[nodiscard]] std::vector<Number> look_ahead(std::uint64_t epoch);
  // Sends what may be on its way by now; nothing is left: ends the redo. With no lock held: a channel that is
  // closed refuses at once.
  void send_more(std::uint64_t epoch);
  // With mutex_ held:
  [[nodiscard]] std::vector<Batch> next_batches();
  [[nodiscard]] Batch next_batch();
  void add_entry(Batch& batch, Number number);
  void finish();
  [[nodiscard]] bool unwanted(const UncommittedChange& change, const Error& error) const;

  void arrived(std::uint64_t epoch, const std::vector<Number>& numbers, Result<rpc::CallReply> reply);
  void take_in(Number number, const Result<schema::Reply>& reply);
  void fail(Number number, const Error& error);

  rpc::Caller& caller_;
  Core& core_;
  const Events events_;

  std::mutex mutex_;
  std::uint64_t epoch_ = 0;  // LogRequest.redo
  bool running_ = false;
  std::vector<Number> left_;  // the next one last
  std::uint64_t logs_ = 0;    // sent in this epoch
  std::size_t in_flight_ = 0;
  std::unordered_map<std::string, std::string> aliases_;    // of nodes that are made again, by their handles
  std::unordered_set<std::string> linked_;                  // nodes that a change has given a further name
  std::unordered_set<std::string> removed_;                 // nodes that a later change removes
  std::unordered_set<std::string> replaced_;                // of these, those that a RENAME does
  std::unordered_map<std::string, std::string> other_now_;  // handles since the mount: from one to the next
  std::unordered_map<std::string, std::string> remade_;     // the same in this redo, however often it began
};

}  // namespace tusk::client
