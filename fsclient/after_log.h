// What must come after the changes that this mount has answered by itself: a question about a file, or a
// change of it, that the server is to see behind the entries of the operation log.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "fsclient/core.h"

namespace tusk::client {

// Runs `again` with `done` once `wait`, which is given what to run then and what if calls fail because the
// server is out of reach, has waited; or `done` with kCancelled if the asker gives up before, or with that
// error.
template <class Done, class Wait>
void wait_for_log(Core& core, const Asker& asker, Done done, std::move_only_function<void(Done)> again,
                  Wait wait) {
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
  wait(
      [waiting, again = std::move(again)]() mutable {
        if (!waiting->ended.exchange(true)) again(std::move(waiting->done));
      },
      [waiting](const Error& error) {
        if (!waiting->ended.exchange(true)) waiting->done(std::unexpected(error));
      });
}

// Until everything that is in the log now has been answered.
template <class Done>
void after_whole_log(Core& core, const Asker& asker, Done done, std::move_only_function<void(Done)> again) {
  wait_for_log(core, asker, std::move(done), std::move(again), [&core](auto go_on, auto gave_up) {
    core.log.when_answered(std::move(go_on), std::move(gave_up));
  });
}

// The same; if the log is full, until it is not.
template <class Done>
void after_log(Core& core, const Asker& asker, Done done, std::move_only_function<void(Done)> again) {
  wait_for_log(core, asker, std::move(done), std::move(again), [&core](auto go_on, auto gave_up) {
    if (core.log.has_room())
      core.log.when_answered(std::move(go_on), std::move(gave_up));
    else
      core.log.when_room(std::move(go_on), std::move(gave_up));
  });
}

// Until less than so many bytes are in the log.
template <class Done>
void after_log_below(Core& core, ByteCount bytes, const Asker& asker, Done done,
                     std::move_only_function<void(Done)> again) {
  wait_for_log(core, asker, std::move(done), std::move(again), [&core, bytes](auto go_on, auto gave_up) {
    core.log.when_room(std::move(go_on), std::move(gave_up), bytes);
  });
}

}  // namespace tusk::client
