// A Client whose server tells everything under a lease.
#pragma once

#include "client.h"

namespace tusk::client {

class Leased : public Client {
 protected:
  Leased() {
    server.lease = 7;
    mount_with({.confirmed = [this] { return heard ? scheduler.now() : last_heard; }});
  }

  static schema::Request push(const std::string& handle, bool data = false) {
    schema::Request request;
    auto& item = *request.mutable_invalidate()->add_items();
    item.set_handle(handle);
    item.set_data(data);
    return request;
  }
  // Somebody else has changed the bytes of "a"; this tells of it.
  schema::Request push_of_change() {
    schema::Request request = push(server.node_of("a").handle(), true);
    request.mutable_invalidate()->set_changed(true);
    return request;
  }
  static schema::Request push_name(const std::string& name) {
    schema::Request request = push("root");
    request.mutable_invalidate()->mutable_items(0)->set_name(name);
    return request;
  }
  // Returns whether it was answered by the time everything came to rest.
  bool take_back(const schema::Request& request) {
    bool answered = false;
    filesystem->handle_pushed(request, [&answered] { answered = true; });
    settle();
    return answered;
  }
  void lose_contact() {
    last_heard = scheduler.now();
    heard = false;
  }
  std::uint64_t lookups() const { return server.seen(schema::Request::kLookup); }
  std::uint64_t getattrs() const { return server.seen(schema::Request::kGetattr); }

  bool heard = true;
  TimePoint last_heard{};
};

}  // namespace tusk::client
