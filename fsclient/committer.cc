#include "fsclient/committer.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace tusk::client {
namespace {

// Nobody knows what of it is on the disk.
bool of_the_disk(ErrorCode code) {
  constexpr std::array kErrors{EIO, ENOSPC, EDQUOT, ENODEV, ENXIO, EROFS, EUCLEAN};
  return std::ranges::any_of(kErrors, [code](int number) { return code == from_errno(number); });
}

// A server that commits files only takes the request for one of a file without a handle.
bool of_an_older_server(ErrorCode code) {
  return code == from_errno(ESTALE) || code == from_errno(EINVAL) || code == ErrorCode::kUnsupported;
}

}  // namespace

void Committer::begin(Events events) {
  events_ = std::move(events);
  changes_.on_added([this] { consider(); });
}

bool Committer::has_room() const { return changes_.bytes() <= bytes_max_ && changes_.count() <= kChangesMax; }

void Committer::when_room(std::move_only_function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_room()) return waiting_for_room_.push_back(std::move(then));
  }
  then();
}

void Committer::consider() {
  const bool much = changes_.bytes() >= std::min(kBytes, bytes_max_ / 4) || changes_.count() >= kChanges;
  {
    const std::lock_guard lock(mutex_);
    if (on_its_way_ || (timer_armed_ && !much)) return;
  }
  if (much) return start();
  start_later(kAge);
}

void Committer::start_later(Duration delay) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(timer_armed_, true)) return;
  }
  scheduler_.post_after(delay, [this] {
    {
      const std::lock_guard lock(mutex_);
      timer_armed_ = false;
    }
    start();
  });
}

void Committer::commit_all(Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (changes_.count() > 0) {
      waiters_.emplace_back(changes_.last(), std::move(done));
      done = nullptr;
    }
  }
  if (done) return done({});
  start();
}

void Committer::start() {
  UncommittedChanges::Number upto = 0;
  bool any = false;
  {
    const std::lock_guard lock(mutex_);
    if (on_its_way_) return;
    upto = changes_.last();
    any = on_its_way_ = changes_.count() > 0;
  }
  if (!any) return wake(upto, {});  // a COMMIT of a file took the last
  schema::Request request;
  request.mutable_commit()->set_all(true);
  // Once only: the server's disk tells an error one time, and a repeat would find nothing wrong.
  remote_.mutate({}, std::move(request), schema::Reply::kCommit,
                 [this, upto](const Result<rpc::CallReply>& reply) { arrived(upto, reply); });
}

void Committer::arrived(UncommittedChanges::Number upto, const Result<rpc::CallReply>& reply) {
  Result<void> result;
  if (reply) {
    changes_.committed(remote_.verifier_of(reply->message), upto);
  } else {
    result = std::unexpected(reply.error());
    if (of_an_older_server(reply.error().code)) {
      changes_.give_up();
      result = {};
    }
    if (of_the_disk(reply.error().code)) {
      // A second COMMIT would find nothing wrong.
      events_.failed(reply.error());
      changes_.committed(remote_.verifier(), upto);
      result = {};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    on_its_way_ = false;
  }
  wake(upto, result);
  events_.ended();
  if (!reply && reply.error().code == ErrorCode::kPeerClosed) return;
  bool waited_for = false;
  {
    const std::lock_guard lock(mutex_);
    waited_for = !waiters_.empty();
  }
  if (!reply) return start_later(waited_for ? kAgain : kAge);
  if (waited_for) return start();
  if (changes_.count() > 0) consider();
}

// An unmount waits for the disk through an outage; a writer that waits for room goes on when a COMMIT fails.
void Committer::wake(UncommittedChanges::Number upto, const Result<void>& result) {
  std::vector<Done> ready;
  std::vector<std::move_only_function<void()>> room;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiters_, [&](auto& waiter) {
      if (result ? waiter.first > upto : result.error().code != ErrorCode::kPeerClosed) return false;
      ready.push_back(std::move(waiter.second));
      return true;
    });
    if (has_room() || !result) room.swap(waiting_for_room_);
  }
  for (Done& done : ready) done(result);
  for (auto& then : room) then();
}

}  // namespace tusk::client
