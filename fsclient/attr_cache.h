// One inode's attributes as the server last told them, kept right although replies overtake each other.
//
// Pure state without a lock: it belongs to an Inode, whose mutex protects it.
#pragma once

#include "fsclient/attributes.h"
#include "fsclient/foresight.h"
#include "fsclient/trust.h"

namespace tusk::client {

class CachedAttributes {
 public:
  // `attr` came as (part of) the answer `told`. Returns whether it is now what is cached: an answer that
  // may be older than what is cached is ignored.
  bool accept(const Attributes& attr, const Told& told, TimePoint now) {
    const bool crossed = known() && (told.started <= told_at_ || told.started < expired_at_);
    if (crossed && !newer(attr, told.started)) return false;
    const bool same = attr.change != 0 && attr.change == attr_.change;
    attr_ = attr;
    told_at_ = now;
    // An answer to a question asked before the expiry does not tell what happened then.
    if (told.started < expired_at_) return true;
    if (crossed && same && told.cover != schema::COVER_LEASE) return true;
    learnt_ = told.learnt(now);
    // Which of two that crossed is the newer one is a guess, and a lease would make it last.
    if (crossed && !same) learnt_.lease = 0;
    return true;
  }

  [[nodiscard]] bool known() const { return attr_.mode != 0; }
  [[nodiscard]] const Attributes& value() const { return attr_; }
  [[nodiscard]] Learnt learnt() const { return learnt_; }

  // Nothing has happened to them since.
  [[nodiscard]] bool quiet_since(TimePoint time) const { return expired_at_ < time; }

  // Something happened to the file that makes them old; they stay as a last resort.
  void expire(TimePoint when) {
    if (when < expired_at_) return;
    learnt_.forget();
    ahead_.forget();
    expired_at_ = when;
  }

  // Something happened after the question that was asked then.
  [[nodiscard]] bool overtaken(TimePoint asked) const { return asked < expired_at_; }

  // They were told before anybody asked for them.
  void foresee(const Foresight& foresight, const Told& told) {
    if (told.started >= expired_at_) ahead_ = foresight.told(told);
  }
  // Somebody comes to use them: see Foresight.
  void use(Foresight& foresight, TimePoint now) {
    if (foresight.take(ahead_, now)) learnt_.at = now;
  }

  // They are so because this mount made them so, under the lease that `learnt` names.
  void assume(const Attributes& attr, Learnt learnt) {
    attr_ = attr;
    learnt_ = learnt;
  }
  // The newest answer to this mount's own changes, which nobody else's can have overtaken.
  void settle(const Attributes& attr, const Told& told, TimePoint now) {
    attr_ = attr;
    told_at_ = now;
    if (told.started >= expired_at_)
      learnt_ = told.learnt(now);
    else
      learnt_.forget();
  }

  // A change that this mount itself made, known without asking.
  template <class Change>
  void adjust(Change change) {
    change(attr_);
  }

 private:
  // Answers that crossed on the way are ordered by the server's own clock. On a tie the larger file
  // is taken: files grow by small steps within one tick, they rarely shrink. Of two that are equally large
  // and take up as much room it is not the one that was asked for before something happened to the file, if
  // the other was asked after it.
  [[nodiscard]] bool newer(const Attributes& attr, TimePoint started) const {
    if (!same_time(attr_.ctime, attr.ctime)) return earlier(attr_.ctime, attr.ctime);
    const bool asked_before = started < expired_at_ && learnt_.ever();
    if (attr.size != attr_.size) return attr.size > attr_.size;
    return asked_before ? attr.blocks > attr_.blocks : attr.blocks >= attr_.blocks;
  }

  Attributes attr_;
  Learnt learnt_;
  Ahead ahead_;
  TimePoint told_at_ = TimePoint::min();  // also when that does not count as learnt
  TimePoint expired_at_ = TimePoint::min();
};

}  // namespace tusk::client
