// A server in a few lines: one directory of files in memory. It answers a call when the test says so, in
// the order the test says, or with the error the test says.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/rpc/caller.h"

namespace tusk::client {

class FakeServer final : public rpc::Caller {
 public:
  struct File {
    std::string content;
    std::uint64_t change = 1;
    std::uint64_t change_before = 0;
    std::uint32_t mode = S_IFREG | 0644;
    std::uint32_t links = 1;
    std::int64_t mtime_s = 1000;
  };

  struct Pending {
    rpc::CallId id;
    rpc::CallRequest request;
    rpc::Completion done;
  };

  FakeServer();

  [[nodiscard]] schema::AttachReply attached() const;

  // As somebody on the server would: every change moves the change counter.
  void put(const std::string& name, std::string content);
  void chmod(const std::string& name, std::uint32_t mode) {
    names_.at(name)->mode = mode;
    ++names_.at(name)->change;
  }
  void erase(const std::string& name) { names_.erase(name); }
  [[nodiscard]] const std::string& content(const std::string& name) const { return names_.at(name)->content; }
  [[nodiscard]] bool has(const std::string& name) const { return names_.contains(name); }
  [[nodiscard]] std::size_t open_files() const { return open_.size(); }
  // Another name for it.
  void link(const std::string& name, const std::string& other) {
    names_[other] = names_.at(name);
    ++names_.at(name)->links;
  }
  void restart_machine() { boot_id_ += "'"; }
  // The machine's power is cut: all is as it was when the last COMMIT was answered (or the server was made).
  void cut_power();
  // As a disk that writes by itself would: a cut keeps what there is now.
  void reach_disk();

  // Makes a name a directory; all directories have the same names in them.
  void put_directory(const std::string& name) {
    put(name, "");
    names_[name]->mode = S_IFDIR | 0755;
  }
  [[nodiscard]] schema::Node node_of(const std::string& name) { return node(names_.at(name)); }
  // The answer to WALK, with its body; without it this is an older server.
  std::function<void(const schema::WalkRequest&, schema::WalkReply&, std::string& body)> walk;
  // What is told of whatever is looked up, to who asks for its listing.
  std::optional<schema::WalkListing> listing_beside_name;
  bool no_xattrs = false;  // told of every file
  // Not 0: everything is told under this lease.
  std::uint64_t lease = 0;
  // As the answers to questions that are asked while somebody changes what they tell.
  bool being_changed = false;

  // What becomes of a call instead of an answer.
  std::function<std::optional<Error>(const schema::Request&)> fault;

  // Every call is refused at once, on the thread of the caller: the channel is closed.
  bool closed = false;

  // COMMITs of all are among those that wait; else they are answered when all are.
  bool show_commits = false;
  // Calls that have not been answered, oldest first.
  [[nodiscard]] const std::deque<Pending>& waiting() const { return waiting_; }
  [[nodiscard]] std::vector<schema::Request::OperationCase> waiting_kinds() const;
  // Carries out and answers one of them.
  void answer(std::size_t which = 0);
  bool answer_all();
  // Carries out a call now but keeps its answer until deliver().
  void execute(std::size_t which);
  void deliver(std::size_t which = 0);
  // As when the channel closes: no answer will come.
  void drop_calls() {
    waiting_.clear();
    executed_.clear();
    commits_.clear();
    held_.clear();
  }
  [[nodiscard]] std::uint64_t seen(schema::Request::OperationCase kind) const;

  rpc::CallId call(rpc::CallRequest request, rpc::Completion done) override;
  void cancel(rpc::CallId id) override;
  void hold_calls() override;
  void release_calls(rpc::Renewal renew) override;
  [[nodiscard]] std::size_t held() const { return held_.size(); }

 private:
  struct Executed {
    rpc::Completion done;
    Result<rpc::CallReply> reply;
  };

  struct Disk {
    std::map<std::string, std::shared_ptr<File>> names;
    std::map<std::shared_ptr<File>, File> files;
  };

  [[nodiscard]] Result<rpc::CallReply> run(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> run_redo(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> make_again(const schema::Request& message);
  [[nodiscard]] Result<rpc::CallReply> remove_again(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> rename_again(rpc::CallRequest& request);
  // COMMIT of one file, or a WRITE that asked for it: it and its names, as the file systems of Linux do.
  void store(const std::shared_ptr<File>& file, bool data_only);
  void tell_cover(schema::Reply& reply) const;
  [[nodiscard]] Result<rpc::CallReply> set_attributes(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> open(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> create(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> read(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> write(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> allocate(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> commit(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> list(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> remove(rpc::CallRequest& request);
  [[nodiscard]] Result<rpc::CallReply> read_files(rpc::CallRequest& request);
  [[nodiscard]] Result<std::shared_ptr<File>> by_handle(const std::string& handle);
  [[nodiscard]] schema::Node node(const std::shared_ptr<File>& file);
  [[nodiscard]] schema::Attr attr(const File& file) const;
  void touch(File& file);

  std::map<std::string, std::shared_ptr<File>> names_;
  std::map<std::string, std::shared_ptr<File>> handles_;
  std::map<const File*, std::string> handle_of_;
  std::map<std::uint64_t, std::shared_ptr<File>> open_;
  std::deque<Pending> waiting_;
  std::deque<Pending> held_;
  std::deque<Pending> commits_;
  std::vector<std::shared_ptr<File>> ever_;  // no two files have the same address
  bool holds_ = false;
  Disk disk_;
  std::deque<Executed> executed_;
  std::map<int, std::uint64_t> seen_;
  std::uint64_t next_call_ = 1;
  std::uint64_t next_open_ = 1;
  std::uint64_t next_change_ = 10;
  std::map<std::uint64_t, std::string> aliases_;
  std::string boot_id_ = "boot";
};

}  // namespace tusk::client
