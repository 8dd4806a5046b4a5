// Three clients with leases and a program on the server change one small directory at random. What a client
// shows without asking must be what is there: at once after a change by a client, soon after one by the
// program.
//
// Real Filesystems, a real FileService and real inotify in one process; messages overtake each other.
// A failure prints the seed; TUSK_SEED=N replays it, TUSK_STEPS=N shortens or lengthens it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "proto/io/clock.h"
#include "tests/fuse/mounted/mounted_export.h"

namespace tusk::test {
namespace {

constexpr std::size_t kClients = 3;
constexpr int kStepsByDefault = 300;
constexpr std::uint64_t kNames = 4;

struct NoKernel final : client::KernelCache {
  void invalidate_inode(client::NodeId) override {}
  void invalidate_from(client::NodeId, ByteCount) override {}
  void invalidate_range(client::NodeId, Interval) override {}
  bool invalidate_attributes(client::NodeId) override { return true; }
  void invalidate_entry(client::NodeId, const std::string&) override {}
};

// What there is under a name.
struct Seen {
  bool exists = false;
  std::uint32_t mode = 0;
  std::string content;
  bool operator==(const Seen&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  if (!seen.exists) return out << "nothing";
  return out << std::oct << seen.mode << std::dec << " \"" << seen.content << "\"";
}

class LeaseClient {
 public:
  // `on_disk`: keeps next to nothing in memory, but file data on the disk.
  LeaseClient(server::FileService& service, LoopbackClients& clients, crypto::Fingerprint key, char session,
              std::uint64_t seed, bool on_disk)
      : clients_(clients),
        caller_(service, {.delay = std::chrono::microseconds(100),
                          .jitter = std::chrono::microseconds(400),
                          .seed = seed,
                          .client_key = key}) {
    schema::AttachRequest attach;
    attach.set_export_name("data");
    attach.set_session(std::string(16, session));
    attach.set_version(1);
    attach.set_identity_real(true);
    attach.set_leases(true);
    attach.set_knows_exclusive_ms(true);
    clients_.add(caller_);
    const auto attached = caller_.attach(attach);
    EXPECT_TRUE(attached);
    client::Filesystem::Options options{.confirmed = io::now};
    if (on_disk) {
      disk_ = std::make_unique<client::DiskCache>(
          client::DiskCache::Options{.folder = disk_folder_.path(), .bytes_max = 64 * 1024 * 1024},
          disk_threads_);
      options.cache_bytes = options.cache_bytes_first = kLittleMemory;
      options.disk = disk_.get();
    }
    filesystem_ =
        std::make_unique<client::Filesystem>(caller_, scheduler_, kernel_, *attached, std::move(options));
    caller_.on_push([this](const schema::Request& request, std::move_only_function<void()> answer) {
      filesystem_->handle_pushed(request, std::move(answer));
    });
  }
  ~LeaseClient() {
    clients_.remove(caller_);
    disk_threads_.stop();
    caller_.close();
    scheduler_.stop();
    filesystem_.reset();
  }
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;

  [[nodiscard]] client::Filesystem& filesystem() { return *filesystem_; }
  [[nodiscard]] std::uint64_t calls() const { return caller_.calls(); }
  [[nodiscard]] std::uint64_t disk_hits() const { return disk_->stats().hits; }

  Seen look(const std::string& name) {
    const auto entry = wait<client::EntryReply>(
        [&](auto done) { filesystem_->lookup({}, client::kRootNode, name, std::move(done)); });
    if (!entry || entry->node == client::NodeId()) return {};
    Seen seen{.exists = true, .mode = entry->attr.mode};
    if (const auto attr = wait<client::AttributesReply>(
            [&](auto done) { filesystem_->attributes({}, entry->node, std::move(done)); }))
      seen.mode = attr->attr.mode;
    const auto opened = wait<client::OpenReply>(
        [&](auto done) { filesystem_->open({}, entry->node, O_RDONLY, std::move(done)); });
    if (opened) {
      const auto pieces = wait<client::ReadPieces>(
          [&](auto done) { filesystem_->read({}, opened->handle, 0, 1000, std::move(done)); });
      if (pieces)
        for (const SharedBytes& piece : *pieces) seen.content += as_text(piece.bytes);
      filesystem_->release(opened->handle, false);
    }
    filesystem_->forget(entry->node, 1);
    return seen;
  }

  void change(Random& random, const std::string& what) {
    const std::string name = "f" + std::to_string(random.below(kNames));
    const std::string other = "f" + std::to_string(random.below(kNames));
    switch (random.below(4)) {
      case 0:
        write(name, what);
        break;
      case 1:
        (void)wait<void>(
            [&](auto done) { filesystem_->remove({}, client::kRootNode, name, false, std::move(done)); });
        break;
      case 2:
        (void)wait<void>([&](auto done) {
          filesystem_->rename({}, client::kRootNode, name, client::kRootNode, other, 0, std::move(done));
        });
        break;
      default:
        chmod(name, random.chance(0.5) ? 0600 : 0640);
    }
  }

 private:
  template <class T, class Begin>
  Result<T> wait(Begin begin) {
    std::promise<Result<T>> promise;
    begin([&promise](Result<T> result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  void write(const std::string& name, const std::string& what) {
    const auto created = wait<client::CreateReply>([&](auto done) {
      filesystem_->create({}, client::kRootNode, name, 0644, O_RDWR | O_TRUNC, std::move(done));
    });
    if (!created) return;
    (void)wait<std::uint32_t>([&](auto done) {
      filesystem_->write({}, created->open.handle, 0, as_byte_span(what), false, std::move(done));
    });
    (void)wait<void>([&](auto done) { filesystem_->flush({}, created->open.handle, 0, std::move(done)); });
    filesystem_->release(created->open.handle, false);
    filesystem_->forget(created->entry.node, 1);
  }
  void chmod(const std::string& name, std::uint32_t mode) {
    const auto entry = wait<client::EntryReply>(
        [&](auto done) { filesystem_->lookup({}, client::kRootNode, name, std::move(done)); });
    if (!entry || entry->node == client::NodeId()) return;
    (void)wait<client::AttributesReply>([&](auto done) {
      filesystem_->set_attributes({}, entry->node, std::nullopt, {.mode = mode}, std::move(done));
    });
    filesystem_->forget(entry->node, 1);
  }

  static constexpr ByteCount kLittleMemory = 4;

  LoopbackClients& clients_;
  LoopbackCaller caller_;
  TempDir disk_folder_;
  std::unique_ptr<client::DiskCache> disk_;
  client::ThreadScheduler scheduler_;
  client::ThreadScheduler disk_threads_;
  NoKernel kernel_;
  std::unique_ptr<client::Filesystem> filesystem_;
};

class LeaseReference : public testing::Test {
 protected:
  explicit LeaseReference(bool on_disk = false) {
    if (const char* const given = std::getenv("TUSK_SEED")) seed_ = std::strtoull(given, nullptr, 10);
    if (const char* const given = std::getenv("TUSK_STEPS")) steps_ = std::atoi(given);
    crypto::Fingerprint key;
    key.bytes.fill(std::byte{7});
    server::ExportSettings settings;
    settings.name = "data";
    settings.path = dir_.path();
    settings.access = server::Access::kReadWrite;
    settings.clients = {key};
    auto exported = server::Export::open(settings, crypto::Secret::random());
    EXPECT_TRUE(exported);
    server::FileServiceOptions options;
    options.exports = {*exported};
    // Uncovered facts would hide what is wrong by being asked for again.
    options.attr_lifetime_ms = 3'600'000;
    options.watch = [](server::Export& of, server::ChangeWatch::Events events) {
      auto watch = server::start_inotify(of, std::move(events));
      EXPECT_TRUE(watch);
      return watch ? std::move(*watch) : nullptr;
    };
    service_ = std::make_unique<server::FileService>(std::move(options));
    service_->reach_clients_by(&outbound_);
    for (std::size_t i = 0; i < kClients; ++i)
      clients_.push_back(std::make_unique<LeaseClient>(*service_, outbound_, key, static_cast<char>('a' + i),
                                                       seed_ * 10 + i, on_disk));
  }
  ~LeaseReference() override {
    clients_.clear();
    service_->reach_clients_by(nullptr);
  }

  Seen there(const std::string& name) {
    struct stat st {};
    if (::lstat((dir_ / name).c_str(), &st) != 0) return {};
    return {.exists = true, .mode = st.st_mode, .content = read_file(dir_ / name)};
  }
  void change_locally(Random& random, const std::string& what) {
    const auto name = dir_ / ("f" + std::to_string(random.below(kNames)));
    const auto other = dir_ / ("f" + std::to_string(random.below(kNames)));
    std::error_code ignored;
    switch (random.below(4)) {
      case 0:
        write_file(name, what);
        break;
      case 1:
        std::filesystem::remove(name, ignored);
        break;
      case 2:
        std::filesystem::rename(name, other, ignored);
        break;
      default:
        (void)!::chmod(name.c_str(), random.chance(0.5) ? 0600 : 0640);
    }
  }
  void expect_the_same(const std::string& when, bool at_once) {
    for (std::uint64_t i = 0; i < kNames; ++i) {
      const std::string name = "f" + std::to_string(i);
      const Seen real = there(name);
      for (std::size_t c = 0; c < kClients; ++c) {
        const bool right = at_once ? clients_[c]->look(name) == real
                                   : eventually([&] { return clients_[c]->look(name) == real; });
        ASSERT_TRUE(right) << "TUSK_SEED=" << seed_ << ", " << when << ": client " << c << " sees of " << name
                           << " " << clients_[c]->look(name) << ", there is " << real;
      }
    }
  }

  std::uint64_t seed_ = 1;
  int steps_ = kStepsByDefault;
  TempDir dir_;
  LoopbackClients outbound_;
  std::unique_ptr<server::FileService> service_;
  std::vector<std::unique_ptr<LeaseClient>> clients_;
};

TEST_F(LeaseReference, AChangeByAClientIsSeenByAllAtOnce) {
  Random random(seed_);
  for (int step = 0; step < steps_; ++step) {
    const auto by = random.below(kClients);
    clients_[by]->change(random, "step " + std::to_string(step));
    expect_the_same("step " + std::to_string(step) + " by client " + std::to_string(by), true);
    if (HasFatalFailure()) return;
  }
}

TEST_F(LeaseReference, AChangeByALocalProgramIsSeenByAllSoon) {
  Random random(seed_);
  for (int step = 0; step < steps_; ++step) {
    const auto by = random.below(kClients + 1);
    const std::string what = "step " + std::to_string(step);
    if (by < kClients)
      clients_[by]->change(random, what);
    else
      change_locally(random, what);
    expect_the_same(what + (by < kClients ? " by client " + std::to_string(by) : " locally"), false);
    if (HasFatalFailure()) return;
  }
}

class LeaseReferenceOnDisk : public LeaseReference {
 protected:
  LeaseReferenceOnDisk() : LeaseReference(true) {}
  [[nodiscard]] std::uint64_t hits() const {
    std::uint64_t hits = 0;
    for (const auto& client : clients_) hits += client->disk_hits();
    return hits;
  }
};

TEST_F(LeaseReferenceOnDisk, AChangeByAClientIsSeenByAllAtOnce) {
  Random random(seed_);
  for (int step = 0; step < steps_; ++step) {
    const auto by = random.below(kClients);
    clients_[by]->change(random, "step " + std::to_string(step));
    for (const bool again : {false, true}) {
      expect_the_same("step " + std::to_string(step) + (again ? ", again" : ""), true);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(hits(), static_cast<std::uint64_t>(steps_)) << "the disk takes part";
}

TEST_F(LeaseReferenceOnDisk, AChangeByALocalProgramIsSeenByAllSoon) {
  Random random(seed_);
  for (int step = 0; step < steps_; ++step) {
    change_locally(random, "step " + std::to_string(step));
    for (const bool again : {false, true}) {
      expect_the_same("step " + std::to_string(step) + (again ? ", again" : ""), again);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(hits(), static_cast<std::uint64_t>(steps_)) << "the disk takes part";
}

TEST_F(LeaseReference, AfterChangesByAllAtOnceAllSeeTheSame) {
  for (int round = 0; round < steps_ / 30; ++round) {
    std::vector<std::jthread> threads;
    for (std::size_t c = 0; c < kClients; ++c)
      threads.emplace_back([this, c, round] {
        Random random(seed_ * 1000 + static_cast<std::uint64_t>(round) * 10 + c);
        for (int step = 0; step < 10; ++step) {
          const std::string name = "f" + std::to_string(random.below(kNames));
          if (random.chance(0.5))
            clients_[c]->change(random, "round " + std::to_string(round) + " by " + std::to_string(c));
          else
            (void)clients_[c]->look(name);
        }
      });
    threads.clear();
    expect_the_same("round " + std::to_string(round), false);
    if (HasFatalFailure()) return;
  }
}

TEST_F(LeaseReference, WhatIsCoveredCostsNothing) {
  for (std::uint64_t i = 0; i < kNames; ++i) write_file(dir_ / ("f" + std::to_string(i)), "x");
  const auto look_at_all = [this] {
    for (std::uint64_t i = 0; i < kNames; ++i) (void)clients_[0]->look("f" + std::to_string(i));
  };
  look_at_all();
  // Once the writing is known everywhere: the opens, and the closes of these and of those before; neither
  // names nor attributes nor bytes.
  EXPECT_TRUE(eventually([&] {
    const std::uint64_t before = clients_[0]->calls();
    look_at_all();
    return clients_[0]->calls() - before <= 3 * kNames;
  }));
}

}  // namespace
}  // namespace tusk::test
