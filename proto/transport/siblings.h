// Flows from one process to one host, which are taken to share a path: what they tell each other, so that who
// joins starts with its part of the line instead of all of it, nobody takes the others for strangers, and all
// get the same. RFC 9040 calls it ensemble sharing.
//
// A host may stand for several paths (an address that a whole site shares): so what counts is only what flows
// tell that see the same round trip, queue and capacity.
//
// What each had is counted, as fair queueing does it (Parekh and Gallager, "A generalized processor sharing
// approach to flow control", 1993): equal rates would leave those behind for ever that had less when all
// began. Also those that began a little later than the first; and many that began together (a company) are
// compared for some time by all that each has had since.
//
// Each tells once in a round trip. As it is for flows of one thread; rpc/host_siblings.h has those of
// several, flow_news.h those of several processes, which the host tells of each other that they send to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "proto/base/strong_int.h"
#include "proto/base/time.h"

namespace tusk::transport {

class Siblings {
 public:
  Siblings() = default;
  Siblings(const Siblings&) = delete;
  Siblings& operator=(const Siblings&) = delete;
  virtual ~Siblings() = default;

  // So many others that they outvote one, that what they have together is what the line carries, that it
  // matters how often each wakes up, and that what one is given costs each of them next to nothing.
  static constexpr int kCrowd = 4;

  // What a flow that has much to send knows of the path. Rates in bytes/s.
  struct News {
    TimePoint now;
    double part = 1;          // of what one flow would have: CongestionController::take_part()
    double rate = 0;          // 0: it starts
    ByteCount delivered = 0;  // of it, ever
    double capacity = 0;      // of the bottleneck; 0: unknown
    Duration base{};          // round trip without a queue
    Duration queue{};         // that it sees
    TimePoint emptying{};     // when it last began to let that run empty
  };
  // Those of the others that are heard of and see the same path.
  struct Others {
    int flows = 0;
    double parts = 0;        // the sum of them
    double rate = 0;         // likewise
    double capacity = 0;     // what they take the line for, on average
    TimePoint emptying{};    // when one of all last began to let the queue run empty
    double rate_of_all = 0;  // also of those that see another queue
    double ahead = 0;        // bytes that this flow had more than its part of what all had; < 0: less
    bool guessed = false;    // nobody has told yet: all that are there are taken to start
    Duration late{};         // from when this was true until it is heard, beyond what it takes in one process
  };

  // `flow` is a name for it, until it leaves.
  virtual Others tell(const void* flow, const News& news);
  virtual void leave(const void* flow);
  // So many more or less may tell one day.
  virtual void count(int more) { around_ += more; }
  // So often flows that share a line all let their queue run empty.
  [[nodiscard]] static Duration empty_every(Duration base) {
    return std::max<Duration>(std::chrono::seconds(2), 12 * base);
  }
  // What is true for all of them.
  struct Glance {
    TimePoint emptying{};  // when one last began to let the queue run empty
    int around = 0;        // those that may tell; one that sends several flows is several
  };
  [[nodiscard]] virtual Glance glance() const { return {emptying_, around_}; }

 private:
  struct Flow {
    const void* name;
    News news;
    Duration longest{};    // round trip lately, with the queue: the newest ones are of other moments for each
    double ahead = 0;      // bytes, to be seen beside those of the others
    bool joined = false;   // since it was last silent
    TimePoint began{};     // to have much to send, or those did with which its account goes
    ByteCount before = 0;  // delivered until it began
    TimePoint heard_of{};  // last, before it was silent and began anew

    TimePoint company{};  // those that began to send with it: when the first of them did
    double had = 0;       // bytes since then, as if its part were 1

    void hear(const News& heard);
    [[nodiscard]] Duration queue() const { return std::max(Duration(0), longest - news.base); }
  };
  struct Pair;

  Flow& find(const void* flow, const News& news);
  void join(Flow& mine);
  void settle(Flow& mine, double had, Others& others);
  void settle_in_company(const Flow& mine, double most, Others& others) const;
  void join_company(Flow& mine);

  TimePoint emptying_{};
  TimePoint company_{};         // the newest one: since when
  TimePoint company_joined_{};  // last
  int around_ = 0;
  std::vector<Flow> flows_;
  std::vector<Flow*> alike_;  // of the one that tells
};

}  // namespace tusk::transport
