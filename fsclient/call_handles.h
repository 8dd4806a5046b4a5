// The handles by which any call names nodes, LOGs with those of their entries, for them to be replaced.
#pragma once

#include "proto/rpc/log_alias.h"
#include "proto/schema/tusk.pb.h"

namespace tusk::client {

template <class Visit>
void for_each_handle_of_call(schema::Request& request, const Visit& visit) {
  using Request = schema::Request;
  switch (request.operation_case()) {
    case Request::kLog:
      for (Request& entry : *request.mutable_log()->mutable_entries()) rpc::for_each_handle(entry, visit);
      return;
    case Request::kLookup:
      return visit(*request.mutable_lookup()->mutable_parent());
    case Request::kGetattr:
      return visit(*request.mutable_getattr()->mutable_handle());
    case Request::kReaddir:
      return visit(*request.mutable_readdir()->mutable_handle());
    case Request::kOpen:
      return visit(*request.mutable_open()->mutable_handle());
    case Request::kRead:
      return visit(*request.mutable_read()->mutable_handle());
    case Request::kCommit:
      return visit(*request.mutable_commit()->mutable_handle());
    case Request::kReadlink:
      return visit(*request.mutable_readlink()->mutable_handle());
    case Request::kStatfs:
      return visit(*request.mutable_statfs()->mutable_handle());
    case Request::kGetxattr:
      return visit(*request.mutable_getxattr()->mutable_handle());
    case Request::kListxattr:
      return visit(*request.mutable_listxattr()->mutable_handle());
    case Request::kSeek:
      return visit(*request.mutable_seek()->mutable_handle());
    case Request::kCopyRange:
      visit(*request.mutable_copy_range()->mutable_source());
      return visit(*request.mutable_copy_range()->mutable_target());
    case Request::kLock:
      return visit(*request.mutable_lock()->mutable_handle());
    case Request::kWalk:
      for (auto& start : *request.mutable_walk()->mutable_starts()) visit(*start.mutable_handle());
      return;
    case Request::kReadFiles:
      for (auto& folder : *request.mutable_read_files()->mutable_folders()) visit(*folder.mutable_handle());
      return;
    case Request::kAcquire:
      for (std::string& handle : *request.mutable_acquire()->mutable_handles()) visit(handle);
      return;
    default:
      return rpc::for_each_handle(request, visit);
  }
}

}  // namespace tusk::client
