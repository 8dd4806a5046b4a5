// The control socket: a Unix stream socket that takes one command a line and answers one line to each.
//
//   set CHANGES        rate=100mbit,ab-delay=46ms: from now on; "ok"
//   at DELAY CHANGES   the same, DELAY from now; "ok"
//   outage on|off      short for set outage=on|off; "ok"
//   stats              the figures so far; one line of JSON
//   quit               end the emulator; "ok"
//
// Anything that cannot be done is answered "error: " and why, and changes nothing.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "tests/system/wan/network.h"

namespace tusk::wan {

// Answers a command line with a reply line, both without the line feed.
using CommandHandler = std::function<std::string(std::string_view command)>;

// Not thread-safe; the owner polls.
class ControlSocket {
 public:
  [[nodiscard]] static Result<ControlSocket> listen(const std::string& path);
  ~ControlSocket();
  ControlSocket(ControlSocket&& other) noexcept;
  ControlSocket& operator=(ControlSocket&&) = delete;

  // What to wait for, and what to do when something of it has happened. Never blocks.
  [[nodiscard]] std::vector<pollfd> interests() const;
  void serve(const CommandHandler& handler);

 private:
  struct Client {
    Descriptor socket;
    std::string input;  // the unfinished line
  };

  ControlSocket(std::string path, Descriptor listener);
  void accept_all();
  // False when the client is to be dropped.
  [[nodiscard]] static bool serve_client(Client& client, const CommandHandler& handler);

  std::string path_;
  Descriptor listener_;
  std::list<Client> clients_;
};

// Sends one command to the emulator listening at `path` and returns its answer.
[[nodiscard]] Result<std::string> send_command(const std::string& path, const std::string& command);

}  // namespace tusk::wan
