// A running tuskd: exports, service and endpoint wired together, signals, reload, shutdown.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "fsserver/access_store.h"
#include "fsserver/config.h"
#include "fsserver/fd.h"
#include "fsserver/file_service.h"
#include "fsserver/sandbox.h"
#include "fsserver/status_file.h"
#include "proto/base/result.h"
#include "proto/crypto/identity.h"
#include "proto/rpc/server_endpoint.h"

namespace tusk::server {

// How long a shutdown waits for running operations. Those still running then end with the process.
constexpr Duration kShutdownMax = 5s;

class Daemon {
 public:
  // Opens the exports and the port, from within the sandbox; its wish need not name the state directory.
  // kBadConfig and errnos with a sentence for the operator.
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> start(ServerConfig config, SandboxWish sandbox);
  ~Daemon();

  [[nodiscard]] const crypto::Identity& identity() const { return identity_; }
  [[nodiscard]] AccessStore& access() const { return *access_; }
  [[nodiscard]] const std::filesystem::path& state_dir() const { return config_.state_dir; }
  [[nodiscard]] std::vector<io::Address> local_addresses() const { return endpoint_->local_addresses(); }

  // Until SIGTERM or SIGINT, or, without `reload`, SIGHUP: its terminal was closed. On SIGHUP `reload` is
  // asked for the configuration as it is now: exports are opened, closed and changed, whose mounts attach
  // anew; listen addresses and limits need a restart. An error of it, or a new export that cannot be opened,
  // leaves everything as it was; one that was served and has new settings is closed then. The signals must be
  // blocked in every thread (block_signals).
  void run(const std::function<Result<ServerConfig>()>& reload);

  // Before any thread is started.
  static void block_signals();

 private:
  Daemon(ServerConfig config, crypto::Identity identity)
      : config_(std::move(config)), identity_(std::move(identity)), status_file_(config_.state_dir) {}

  [[nodiscard]] Result<void> check_names_are_free(const std::vector<ExportSettings>& settings) const;
  [[nodiscard]] Result<std::vector<std::shared_ptr<Export>>> open_exports(
      const std::vector<ExportSettings>& settings, const std::vector<ExportSettings>& before);
  void apply(const Result<ServerConfig>& fresh);
  void end_withdrawn_rights();
  // True: it names clients.
  [[nodiscard]] bool write_status();
  // 0: there is none. Waits for one, while there are clients for kStatusEvery at most, else for the first of
  // them.
  [[nodiscard]] int next_signal(bool has_clients);
  void wake();

  ServerConfig config_;
  const crypto::Identity identity_;
  Fd signals_;
  Fd woken_;
  std::atomic<bool> resting_{false};  // without clients: until there is one
  std::shared_ptr<AccessStore> access_;
  std::shared_ptr<OwnerRights> owner_rights_;  // null: not needed, or not to be had
  std::vector<std::shared_ptr<Export>> exports_;
  std::unique_ptr<FileService> service_;
  std::unique_ptr<rpc::ServerEndpoint> endpoint_;  // last: calls the service
  StatusFile status_file_;
  std::string sandbox_;  // what is in force
};

// As many descriptors as the system lets this process have.
void raise_descriptor_limit();

}  // namespace tusk::server
