// idle_clients URL COUNT: that many clients of one export, each with its own key, session, socket and thread,
// without FUSE and without files. Prints "ready COUNT" when all are attached, then stays idle until its input
// ends.
//
// For tests/bench/many.py: what idle mounts cost a server. A thousand daemons would need more memory than the
// server.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/crypto/identity.h"
#include "proto/crypto/primitives.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/mount_url.h"

namespace tusk {
namespace {

constexpr int kClientsMax = 10'000;
constexpr std::size_t kSessionBytes = 16;

struct Client {
  crypto::Identity identity;
  std::unique_ptr<rpc::Channel> channel;
};

Result<std::unique_ptr<rpc::Channel>> connect(const rpc::MountUrl& url, const crypto::Identity& identity) {
  std::array<std::byte, kSessionBytes> session{};
  crypto::random_bytes(session);
  rpc::ChannelOptions options{
      .host = url.host, .port = url.port, .identity = &identity, .server_fingerprint = url.fingerprint};
  options.attach.set_export_name(url.export_name);
  options.attach.set_token(std::string(as_text(url.token)));
  options.attach.set_session(std::string(as_text(session)));
  options.attach.set_client_name("idle");
  options.attach.set_version(1);
  options.attach.set_knows_exclusive_ms(true);
  options.attach.set_leases(true);  // as mounts do, which must be heard of more often for that
  return rpc::Channel::connect(std::move(options));
}

int fail_with(const Error& error) {
  std::fprintf(stderr, "idle_clients: %s\n", error.message().c_str());
  return 1;
}

int run(std::string_view url_text, std::string_view count_text) {
  const auto url = rpc::MountUrl::parse(url_text);
  if (!url) return fail_with(url.error());
  int count = 0;
  std::from_chars(count_text.data(), count_text.data() + count_text.size(), count);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < std::min(count, kClientsMax); ++i) {
    auto identity = crypto::Identity::generate();
    if (!identity) return fail_with(identity.error());
    clients.push_back(std::make_unique<Client>(Client{std::move(*identity), nullptr}));
    auto channel = connect(*url, clients.back()->identity);
    if (!channel) return fail_with(channel.error());
    clients.back()->channel = std::move(*channel);
  }
  std::printf("ready %zu\n", clients.size());
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  return 0;
}

}  // namespace
}  // namespace tusk

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: idle_clients URL COUNT\n", stderr);
    return 2;
  }
  return tusk::run(argv[1], argv[2]);
}
