// The server's calls, for whoever listens: those that come before somebody does wait for him, since what they
// take back may have been told with the attach already.
//
// Network thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "proto/schema/tusk.pb.h"

namespace tusk::rpc {

class PushListener {
 public:
  // `answer` from any thread; the server waits for it.
  using Listen =
      std::move_only_function<void(const schema::Request&, std::move_only_function<void()> answer)>;
  // Pushes that wait, and their size in bytes. Of more it is as if they had not come: the server, which waits
  // for their answers, ends the connection after the time of a lease.
  static constexpr std::size_t kWaitingMax = 1024;
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;

  [[nodiscard]] bool listening() const { return listening_; }

  // `listen` empty: whatever comes is answered, and means nothing here.
  void begin(Listen listen) {
    listen_ = std::move(listen);
    listening_ = true;
    for (Push& push : std::exchange(waiting_, {})) tell(push.request, std::move(push.answer));
  }
  // Over the next connection they come again.
  void handle_lost() {
    waiting_.clear();
    waiting_bytes_ = 0;
  }

  void handle(schema::Request request, std::move_only_function<void()> answer) {
    if (listening_) return tell(request, std::move(answer));
    waiting_bytes_ += request.ByteSizeLong();
    if (waiting_.size() < kWaitingMax && waiting_bytes_ <= kWaitingBytesMax)
      waiting_.push_back({std::move(request), std::move(answer)});
  }

 private:
  struct Push {
    schema::Request request;
    std::move_only_function<void()> answer;
  };

  void tell(const schema::Request& request, std::move_only_function<void()> answer) {
    if (!listen_) return answer();
    listen_(request, std::move(answer));
  }

  Listen listen_;
  bool listening_ = false;
  std::vector<Push> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace tusk::rpc
