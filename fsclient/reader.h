// Answers reads: from the file's data in memory, else by fetching what is missing, and fetches ahead of
// readers that go in order.
//
// A read returns, of each byte, what the server had at some moment of the call, or what a program here has
// written, as a local file system does. What others change while a fetch is on its way makes what it brings
// useless to the cache, not to the reads that wait for it: so no read asks twice for the same byte. Bytes
// that are here, but that may not be the file's any more (Facts::bytes_fresh_locked), are used once the
// server has said that they are.
//
// A read waits for exactly the fetches that bring its bytes, in any order of arrival (and before them for
// FilesAhead, if that has asked for the file), and is answered on a worker thread (with an
// error: on the network thread); a read whose bytes are there is answered on the thread that asks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fsclient/core.h"
#include "fsclient/deferred.h"
#include "fsclient/kept_blocks.h"
#include "fsclient/kernel_pages.h"
#include "fsclient/stream_census.h"
#include "fsclient/waiting_reads.h"

namespace tusk::client {

// What a read is answered with: pieces of memory in order; fewer bytes than asked for only at the end
// of the file.
using ReadPieces = std::vector<SharedBytes>;
using ReadDone = std::move_only_function<void(Result<ReadPieces>)>;

// One read that a program waits for. Everything but the constants: under the inode's mutex.
struct ReadOperation {
  std::shared_ptr<OpenFile> file;
  Interval range;
  ReadDone done;
  Interval held;              // its blocks stay
  std::uint32_t waiting = 0;  // fetches that have not ended
  bool begun = false;
  ByteCount queued = 0;       // bytes of memory it asked to enter the WaitingReads with
  ByteCount entered = 0;      // bytes it counts for among them
  bool waited_ahead = false;  // for the whole file, which was on its way
  bool checked = false;       // what was here at first is the file's
  // What fetches have brought for it, in any order: what the server had at some moment of the read, also if
  // the file has changed since.
  std::vector<std::pair<Interval, SharedBytes>> brought;
  ByteCount end_of_file = ~ByteCount{0};  // as one of them has found it
  // The kernel puts it into its pages; drops of pages that were asked for when it began.
  bool into_pages = false;
  std::uint64_t drops = 0;
  bool once = false;                      // some of it is not to be kept, here or by the kernel
  bool ended = false;
};

class Reader {
 public:
  // All readers in order that wait for the line may read ahead when the path is not known yet, and at least:
  // what 1 Gbit/s holds at 200 ms, and a little. A slow line is not hurt, because what nobody waits for any
  // more is given up.
  static constexpr ByteCount kWindowUnknown = 32 * 1024 * 1024;
  static constexpr ByteCount kWindowMin = 32 * 1024 * 1024;
  // Bet on whoever begins like a copy, at least, since what a line has brought so far says little of what it
  // carries: it has to last until the reader has the first block, two round trips where packets get lost. The
  // rest is given up when it stops. Not on slow lines, where it would be in everybody's way.
  static constexpr ByteCount kBet = 2 * kWindowUnknown;
  // Of what the line holds: where one packet in a hundred is lost, most blocks need a second round trip and
  // some a third, before them the question takes one, and a reader in order waits for each.
  static constexpr ByteCount kWindowProducts = 4;
  // A short miss is answered before bulk transfers; the head of a file, too, as if it had come with the OPEN.
  static constexpr ByteCount kInteractiveMax = 128 * 1024;
  static constexpr ByteCount kHeadMax = 512 * 1024;

  // Asks the server for the file's attributes, behind what was written here, and takes them in.
  using Ask = std::function<void(const std::shared_ptr<Inode>&, std::move_only_function<void(Result<bool>)>)>;
  Reader(Core& core, Facts& facts, KeptBlocks& kept, KernelPages& pages, Ask ask)
      : core_(core), facts_(facts), kept_(kept), pages_(pages), ask_(std::move(ask)) {}

  // `file` is open for reading.
  void read(const Asker& asker, std::shared_ptr<OpenFile> file, Interval range, ReadDone done);
  // The open file will not be read any more: fetches for it that nobody waits for are given up; all of them
  // once it was the last one.
  void handle_close(const std::shared_ptr<OpenFile>& file);

  // Fetches all bytes of a file that nobody has open, ahead of who will open it. `done` runs once none of
  // them is on its way any more, whether they are here or not; on any thread.
  void fetch_whole(const std::shared_ptr<Inode>& inode, std::move_only_function<void()> done);
  // How much may be asked for ahead of programs now, bytes.
  [[nodiscard]] ByteCount room_ahead() const;

  // How far one of the readers in order may read ahead now, bytes: they share.
  [[nodiscard]] ByteCount window_max() const;

 private:
  using Operation = std::shared_ptr<ReadOperation>;

  void proceed(const Operation& op);
  void advance(const Operation& op);
  [[nodiscard]] static bool comes_ahead(const FileState& file, Interval range);
  [[nodiscard]] bool needs_check(ReadOperation& op, Interval range);
  void check(const Operation& op, Deferred& after);
  void checked(const std::shared_ptr<Inode>& inode, const Result<bool>& asked);
  [[nodiscard]] static bool all_brought(const ReadOperation& op, const FileData& data, Interval range);
  [[nodiscard]] static ReadPieces compose(const ReadOperation& op, FileData& data, Interval range);
  static void bring_to(ReadOperation& op, FileData& data, const Fetch& fetch);
  void fetch_missing(const std::shared_ptr<OpenFile>& file, Interval range, Deferred& after);
  [[nodiscard]] ByteCount grain_of(const OpenFile& file, Interval range) const;
  [[nodiscard]] bool may_wait(const Operation& op, Interval range);
  void leave(ByteCount size);
  void take_turn(const Operation& op);
  void end(ReadOperation& op, Result<ReadPieces> result, Deferred& after);
  ReadAheadAdvice observe(OpenFile& file, Interval range, bool waited);
  void fetch_ahead(const std::shared_ptr<OpenFile>& file, const std::vector<Interval>& ranges,
                   Deferred& after, bool follows_page = false);
  void give_up(FileData& data, Interval range, Deferred& after);
  void start(const std::shared_ptr<OpenFile>& file, std::shared_ptr<Fetch> fetch, Deferred& after);
  void bring(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch);
  void ask(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch, Deferred& after);
  [[nodiscard]] bool is_interactive(const Fetch& fetch) const;
  void call(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch);
  void finish(const std::shared_ptr<OpenFile>& file, const std::shared_ptr<Fetch>& fetch,
              Result<rpc::CallReply> reply);
  void go_on(const std::shared_ptr<Fetch>& fetch, const Result<void>& outcome, Deferred& after);
  static Result<rpc::CallReply> unpack(const Fetch& fetch, rpc::CallReply reply);
  Result<void> take_in(Inode& inode, const std::shared_ptr<Fetch>& fetch,
                       const Result<rpc::CallReply>& reply);

  // What fetches ahead may take that are on their way, and those that reads wait for.
  [[nodiscard]] ByteCount ahead_max() const { return core_.cache.budget()->on_its_way_max(); }
  [[nodiscard]] ByteCount bet_max(ByteCount window_max) const;
  [[nodiscard]] ByteCount in_flight_max() const { return core_.cache.budget()->cap() / 2; }
  [[nodiscard]] ByteCount waiting_bulk_max() const { return in_flight_max() / 4 * 3; }

  Core& core_;
  Facts& facts_;
  KeptBlocks& kept_;
  KernelPages& pages_;
  const Ask ask_;
  StreamCensus census_;
  WaitingReads<ReadOperation> waiting_reads_;
  // The last program of which it was learnt went on: the next one that begins like a copy is believed at
  // once. Before the first one, too: most are copies.
  std::atomic<bool> bets_{true};
  std::atomic<ByteCount> ahead_in_flight_{0};  // bytes asked for that nobody waited for then
};

}  // namespace tusk::client
