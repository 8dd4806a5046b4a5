// A client that speaks the protocol correctly and behaves as it likes: it may enter, and wants to hurt
// others.
//
// One connection each, without threads: whoever owns it calls turn() when its socket can be read or its time
// has come (run() does it for many). Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/crypto/identity.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/datagram_queue.h"
#include "proto/rpc/mount_url.h"
#include "proto/rpc/secure_connection.h"
#include "proto/rpc/transmit.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::hostile {

class Client {
 public:
  using Answer = std::function<void(const schema::Reply&)>;

  // `identity` and `url` must outlive it.
  Client(const crypto::Identity& identity, const rpc::MountUrl& url);

  void turn(TimePoint now);
  [[nodiscard]] TimePoint next_timeout() const { return secure_->next_timeout(); }
  [[nodiscard]] int descriptor() const { return socket_.fd(); }
  [[nodiscard]] bool established() const { return secure_->established(); }
  [[nodiscard]] bool closed() const { return closed_; }

  // `room`: for bulk bytes of the answer.
  void ask(const schema::Request& request, Answer answer = {}, std::size_t room = 0, SharedBytes body = {});
  // A new session. Its error, 0 if there is none; nullopt: no answer within a few seconds.
  [[nodiscard]] std::optional<unsigned> attach(bool leases = false);
  // After attach().
  [[nodiscard]] const std::string& root() const { return root_; }
  // "": there is no such name.
  [[nodiscard]] std::string lookup(const std::string& name);

  // Says goodbye.
  void leave();

  [[nodiscard]] std::size_t answers() const { return answers_; }
  [[nodiscard]] std::size_t unanswered() const { return waiting_.size(); }

 private:
  void flush(TimePoint now);
  void handle(const transport::Event& event);
  [[nodiscard]] std::optional<schema::Reply> call(const schema::Request& request);

  const rpc::MountUrl& url_;
  const rpc::Route route_;
  io::UdpSocket socket_;
  io::ReceiveBatch batch_;
  rpc::DatagramQueue queue_;
  std::unique_ptr<rpc::SecureConnection> secure_;
  std::unordered_map<std::uint64_t, Answer> waiting_;  // by exchange
  std::string root_;
  std::size_t answers_ = 0;
  bool closed_ = false;
};

using Clients = std::vector<std::unique_ptr<Client>>;

// Serves the connections until `done` or for so long. False: the time is over.
bool run(const std::vector<Client*>& clients, const std::function<bool()>& done, Duration at_most);
[[nodiscard]] std::vector<Client*> all_of(const Clients& clients);

}  // namespace tusk::hostile
