// What must come after the changes that this mount has answered by itself: a question about a file, or a
// change of it, that the server is to see behind the entries of the operation log.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "fsclient/core.h"

namespace tusk::client {

// Runs `again` with `done` once everything in the log has been answered, or `done` with kCancelled if the
// asker gives up before, or with the error of calls that fail because the server is out of reach.
template <class Done>
void after_log(Core& core, const Asker& asker, Done done, std::move_only_function<void(Done)> again) {
  struct Waiting {
    std::atomic<bool> ended{false};
    Done done;
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->done = std::move(done);
  if (asker.interrupt)
    asker.interrupt->on_fire([&core, weak = std::weak_ptr(waiting)] {
      core.scheduler.post_after(core.path.interrupt_grace(), [weak] {
        const auto stuck = weak.lock();
        if (stuck && !stuck->ended.exchange(true))
          stuck->done(fail(ErrorCode::kCancelled, "waiting for the log"));
      });
    });
  auto go_on = [waiting, again = std::move(again)]() mutable {
    if (!waiting->ended.exchange(true)) again(std::move(waiting->done));
  };
  auto gave_up = [waiting](const Error& error) {
    if (!waiting->ended.exchange(true)) waiting->done(std::unexpected(error));
  };
  if (core.log.has_room())
    core.log.when_answered(std::move(go_on), std::move(gave_up));
  else
    core.log.when_room(std::move(go_on), std::move(gave_up));
}

}  // namespace tusk::client
