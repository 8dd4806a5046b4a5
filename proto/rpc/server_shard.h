// One network thread of a server: its own sockets, connections and timers, nothing of it shared with the
// other shards. Which connections it has their ids say (steering.h); a datagram that the kernel brought to
// the wrong shard is handed over.
//
// server_shard.cc has what happens to connections, server_shard_strangers.cc what becomes of datagrams that
// belong to none.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/io/reactor.h"
#include "proto/io/udp_socket.h"
#include "proto/rpc/address_validation.h"
#include "proto/rpc/drop_log.h"
#include "proto/rpc/first_flights.h"
#include "proto/rpc/flood_guard.h"
#include "proto/rpc/host_siblings.h"
#include "proto/rpc/outlet.h"
#include "proto/rpc/request_memory.h"
#include "proto/rpc/server_endpoint.h"
#include "proto/rpc/server_link.h"
#include "proto/rpc/source_rates.h"
#include "proto/rpc/time_share.h"
#include "proto/rpc/unattached.h"

namespace tusk::rpc {

class ServerShard;

// What the shards of a server have in common. Outlives them.
struct ServerCommons {
  ServerCommons(ServerEndpointOptions wanted, Service& serves)
      : options(std::move(wanted)),
        service(serves),
        addresses(*options.identity, options.unproven_max),
        memory(options.request_memory_max) {}

  const ServerEndpointOptions options;
  Service& service;
  AddressValidation addresses;
  RequestMemory memory;
  HostSiblings receivers;  // what clients are sent
  HostSiblings senders;    // what they send
  Unattached unattached;
  std::atomic<std::size_t> connections = 0;
  std::atomic<std::size_t> unfinished = 0;  // shards that have not yet said all their goodbyes
  std::vector<ServerShard*> shards;         // all of them, before the first one starts

  // Ids go round (server_shard_strangers.cc).
  [[nodiscard]] ServerShard& shard_with(ConnectionId connection) const {
    return *shards[connection.value() % shards.size()];
  }
};

class ServerShard {
 public:
  // A socket for each address that is listened on.
  ServerShard(ServerCommons& commons, unsigned index, unsigned shards, std::unique_ptr<io::Reactor> reactor,
              std::vector<io::UdpSocket> sockets);
  ~ServerShard() = default;
  ServerShard(const ServerShard&) = delete;
  ServerShard& operator=(const ServerShard&) = delete;

  [[nodiscard]] Result<void> start();

  // From any thread while it runs.
  void call(ConnectionId connection, OutgoingCalls::Call call);
  void disconnect(ConnectionId connection, std::string reason);
  // Runs `visit` on the network thread, for each client that is connected, then `done`.
  void visit(std::function<void(const ServerEndpoint::ConnectionInfo&)> visit, std::function<void()> done);
  // It is one of those whose requests hold too much.
  void shed(const RequestMemory::Victim& victim);
  // A datagram that came to another shard and is this one's. False: too many wait, or it is too large.
  [[nodiscard]] bool take_over(std::size_t socket, const io::Datagram& datagram);
  // The end, each step for all shards before the next one (ServerEndpoint's destructor): goodbyes begin; the
  // thread has ended, once all shards have finished; what was posted behind the end is refused.
  void leave();
  void join();
  void refuse_the_rest();

 private:
  // Waits for answers to arrive, then for goodbyes to go out.
  enum class Phase : std::uint8_t { kServing, kAnswering, kParting };

  void receive(std::size_t socket);
  void handle_datagram(std::size_t socket, const io::Datagram& datagram);
  void follow_address(ServerLink& link, const io::Datagram& datagram);

  void handle_stranger(std::size_t socket, const io::Datagram& datagram);
  void greet(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);
  void begin_next_handshake();
  void begin_handshake(Proof proof, FirstFlight flight);
  void drop_flight(const io::Datagram& datagram, const wire::LongHeader& header);
  void drop_garbage(const io::Address& from);
  void filter_sockets(TimePoint now);
  void give_memory_back(TimePoint now);
  [[nodiscard]] bool full() const { return commons_.connections >= commons_.options.connections_max; }
  void make_way(std::optional<ConnectionId> connection);
  void give_way(ConnectionId connection);
  void turn_away(const io::Address& from);
  [[nodiscard]] transport::ConnectionConfig connection_config(std::shared_ptr<MemoryAccount> memory) const;
  void send_retry(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);
  void send_long(std::size_t socket, const io::Datagram& datagram, const wire::LongHeader& header);

  void settle();
  void process_marked();
  void process(ServerLink& link, TimePoint now);
  void send(ServerLink& link, TimePoint now);
  void judge(ServerLink& link, TimePoint now);
  void note_memory(ServerLink& link);
  void shed_memory();
  void handle_events(ServerLink& link, TimePoint now);
  void handle_event(ServerLink& link, transport::Event& event);
  void accept_call(ServerLink& link, const transport::RequestArrived& request);
  void note_proven(ServerLink& link);
  void introduce(ServerLink& link, const io::Address& host);
  void welcome(ServerLink& link, TimePoint now);
  void let_in(ServerLink& link, const Answer::Entry& entry);
  void resume(ConnectionId connection);
  void note_too_big(const io::Address& to, std::size_t size);
  void tell_too_big();
  [[nodiscard]] TimePoint no_sooner(const ServerLink& link) const;
  void retime(ServerLink& link);
  void arm_timer();
  void mark(ServerLink& link);
  void remove(ServerLink& link);
  void enter(Phase phase, TimePoint until);
  void finish();

  ServerCommons& commons_;
  const unsigned index_;
  const unsigned shards_;
  // Outlive who watches them: the number of one that is closed may be another's.
  std::vector<io::UdpSocket> sockets_;
  std::unique_ptr<io::Reactor> reactor_;
  std::vector<std::unique_ptr<Outlet>> outlets_;  // of each socket
  const std::shared_ptr<ReplyRoute> route_;
  std::unique_ptr<io::Timer> timer_;
  io::ReceiveBatch batch_;
  std::atomic<std::size_t> taken_over_ = 0;  // datagrams of other shards that wait

  std::unordered_map<ConnectionId, std::unique_ptr<ServerLink>> links_;
  std::unordered_map<wire::ConnectionIdBytes, ServerLink*> by_id_;  // own ids, original ids while young
  std::set<std::pair<TimePoint, ConnectionId>> timeouts_;
  std::vector<ConnectionId> dirty_;
  // What the interface refused since the last settle().
  std::unordered_map<io::Address, std::size_t> too_big_;
  std::uint64_t next_id_;
  std::uint64_t next_call_ = 1;
  Phase phase_ = Phase::kServing;
  TimePoint phase_until_ = kNever;
  bool finished_ = false;
  TimePoint next_full_warning_{};
  DropLog drops_;
  FirstFlights flights_;
  SourceRates handshake_rates_;
  SourceRates admitted_rates_;  // of those that were let in before
  TokenBucket retries_;
  TokenBucket resets_;
  TimeShare handshake_time_;
  TimePoint data_at_{};  // when a client that is let in was last heard
  FloodGuard guard_;
  TimePoint next_flood_warning_{};
  std::size_t removed_ = 0;  // connections, since memory was given back
  TimePoint give_back_at_ = kNever;
  TimePoint late_until_{};  // few that end until then are the last of many
  std::thread thread_;
};

}  // namespace tusk::rpc
