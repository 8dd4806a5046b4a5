// Siblings that are programs of their own: clients of one host that send to one server know nothing of each
// other, but the server hears them all. Each tells it, once in a round trip, what it would tell its siblings
// (FLOW_NEWS), and has the answer with the acknowledgement (OTHER_FLOWS; docs/PROTOCOL.md).
//
// Clocks differ, so that times go as ages: what is told is taken to be half a round trip old when it arrives.
#pragma once

#include <memory>
#include <optional>

#include "proto/base/time.h"
#include "proto/transport/siblings.h"
#include "proto/wire/frame.h"

namespace tusk::transport {

// Who sends: the others, as the peer knows them. For one flow.
class SiblingsByPeer final : public Siblings {
 public:
  // What the peer said last; what it says to this comes a round trip later. Until then all that are there are
  // taken to start, too.
  Others tell(const void* flow, const News& news) override;
  void leave(const void*) override {}
  [[nodiscard]] Glance glance() const override { return {.around = static_cast<int>(around_)}; }

  // `number`: of the packet it came in; older answers than those known are dropped.
  void hear(TimePoint now, wire::PacketNumber number, const wire::OtherFlowsFrame& frame,
            Duration round_trip);
  // What is to be told now, if anything.
  [[nodiscard]] std::optional<wire::FlowNewsFrame> take_news(TimePoint now);

 private:
  std::optional<News> untold_;
  std::optional<wire::PacketNumber> heard_;
  TimePoint heard_at_{};
  TimePoint told_at_{};
  TimePoint asked_at_{};  // first, after a rest
  Others others_;
  std::uint64_t around_ = 1;  // connections from this host
};

// Who is sent to: the peer's flow, among others that come from its host.
class PeersFlow {
 public:
  PeersFlow() = default;
  ~PeersFlow() { join(nullptr); }
  PeersFlow(const PeersFlow&) = delete;
  PeersFlow& operator=(const PeersFlow&) = delete;

  // nullptr: there are no others. The same as before: nothing changes.
  void join(std::shared_ptr<Siblings> siblings);
  // The peer understands OTHER_FLOWS: only then it is told anything, and counted.
  void let_hear();
  // `received`: bytes/s that came from it lately, at best, and ever; it is not believed to have sent more.
  void hear(TimePoint now, wire::PacketNumber number, const wire::FlowNewsFrame& frame, double received_rate,
            ByteCount received);
  // What the peer is to know with the next acknowledgement: the answer to what it told, at once that another
  // one lets the queue run empty, and how many there are when that has changed much.
  [[nodiscard]] std::optional<wire::OtherFlowsFrame> take_answer(TimePoint now);

 private:
  [[nodiscard]] bool answer_wanted(TimePoint now, const Siblings::Glance& glance);
  [[nodiscard]] Siblings::Others tell(TimePoint now);

  std::shared_ptr<Siblings> siblings_;
  bool hears_ = false;
  std::uint64_t around_told_ = 1;
  std::optional<wire::PacketNumber> heard_;
  Siblings::News news_;  // newest of the peer, of the time when it was heard
  TimePoint began_{};    // to tell
  bool answer_due_ = false;
  TimePoint answered_at_{};
  int flows_answered_ = 0;  // of which it was told then
  TimePoint ordered_at_{};  // when it was last told that all are to let the queue run empty
  TimePoint emptying_told_{};
};

}  // namespace tusk::transport
