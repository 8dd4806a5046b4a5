#include "fsclient/filesystem.h"

#include <algorithm>

namespace tusk::client {
namespace {

Duration lifetime_of(const schema::AttachReply& attached, const std::optional<Duration>& wanted) {
  return wanted.value_or(std::chrono::milliseconds(attached.attr_lifetime_ms()));
}

// A server that names no limit takes whole blocks.
ByteCount call_max_of(const schema::AttachReply& attached) {
  constexpr ByteCount kCallMin = 4096;
  ByteCount most = kBlockSize;
  if (attached.max_read() != 0) most = std::min<ByteCount>(most, attached.max_read());
  if (attached.max_write() != 0) most = std::min<ByteCount>(most, attached.max_write());
  return std::max(most, kCallMin);
}

}  // namespace

Filesystem::Filesystem(rpc::Caller& caller, Scheduler& scheduler, KernelCache& kernel,
                       const schema::AttachReply& attached, Options options)
    : options_(std::move(options)),
      trust_(std::make_unique<LeaseTrust>(lifetime_of(attached, options_.lifetime), options_.confirmed)),
      remote_(caller, scheduler, core_.path, attached),
      log_(remote_, scheduler),
      core_{remote_,
            log_,
            scheduler,
            *trust_,
            kernel,
            PathEstimate(options_.path, scheduler, options_.silence_max),
            BlockCache(options_.cache_bytes_first, options_.cache_bytes),
            InodeTable(attached.root().handle()),
            call_max_of(attached)},
      facts_(core_),
      kept_(core_, facts_, options_.disk),
      kept_listings_(scheduler, options_.disk),
      names_(core_, facts_),
      tree_(core_, facts_, names_, kept_listings_),
      pages_(
          core_, facts_,
          [this](const InodePointer& inode, Done<bool> done) { ask_attributes({}, inode, std::move(done)); }),
      reader_(
          core_, facts_, kept_, pages_,
          [this](const InodePointer& inode, Done<bool> done) { ask_behind_writes(inode, std::move(done)); }),
      files_ahead_(core_, facts_, names_, tree_, kept_, reader_),
      write_behind_(core_, facts_, pages_),
      redo_(caller, core_,
            {.failed = [this](const UncommittedChange& change,
                              const Error& error) { not_redone(change, error); }}),
      exclusive_use_(scheduler, options_.speak_often),
      owner_uid_(attached.owner_uid()),
      owner_gid_(attached.owner_gid()) {
  if (options_.disk != nullptr)
    options_.disk->on_trouble([this](const std::string& what) { core_.last_error.set(what); });
  core_.loans.when_ending([this] { pages_.watch_all(); });
  keep_uncommitted();
  core_.foresight.choose(lifetime_of(attached, options_.lifetime));
  take_terms(attached);
  learn_root(attached);
}

// A program that comes to a fresh mount does not wait to hear what is in its root.
void Filesystem::learn_root(const schema::AttachReply& attached) {
  Told told(core_.scheduler.now());
  told.lease = attached.root_lease();
  facts_.learn(*core_.inodes.root(), attached.root().attr(), told.about(attached.root().attr()));
  root_told_ = told.lease != 0 && attached.root().attr().cover() == schema::COVER_LEASE;
  if (told.lease == 0 || !attached.has_root_listing()) return;
  told.cover = attached.root_listing().names();
  names_.learn_beside_name(core_.inodes.root(), attached.root_listing(), told);
}

Result<Filesystem::InodePointer> Filesystem::inode_of(NodeId node) {
  ++core_.counters.operations;
  InodePointer inode = core_.inodes.find(node);
  if (!inode) return fail(from_errno(ESTALE), "an inode the kernel had forgotten");
  const std::lock_guard lock(inode->mutex);
  if (const Result<void> made = made_locked(*inode); !made) return std::unexpected(made.error());
  return inode;
}

// With the inode's mutex held.
Result<void> Filesystem::made_locked(const Inode& inode) {
  if (!inode.log.failed) return {};
  core_.untold.tell(inode.log.failure);
  return std::unexpected(*inode.log.failed);
}

Duration Filesystem::attributes_lifetime(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return attributes_lifetime_locked(inode);
}

Duration Filesystem::attributes_lifetime_locked(Inode& inode) {
  const TimePoint now = core_.scheduler.now();
  if (inode.log.assumed_under != 0 && !core_.log.stands(inode.log.assumed_under)) {
    inode.log.assumed_under = 0;
    inode.attributes.expire(now);
  }
  if (!core_.trust.may_use(Fact::kAttributes, inode.attributes.learnt(), now))
    inode.attributes.use(core_.foresight, now);
  return core_.trust.remaining(Fact::kAttributes, inode.attributes.learnt(), now);
}

// Remembered first: what is taken back from now on is called back from the kernel, too.
EntryReply Filesystem::entry_for(const InodePointer& inode, Duration entry_lifetime) {
  core_.inodes.remember(inode);
  const AttributesReply known = attributes_for(*inode);
  return {inode->id, known.attr, entry_lifetime, known.lifetime};
}

void Filesystem::after_pages_dropped(Inode& inode, std::move_only_function<void()> answer) {
  if (!facts_.pages_being_dropped(inode)) return answer();
  facts_.drop_passed_over(inode);
  core_.scheduler.post_notification(std::move(answer));
}

AttributesReply Filesystem::attributes_for(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  inode.told_size = inode.size();
  const bool usable = attributes_lifetime_locked(inode) > Duration::zero();
  return {options_.identity.to_local(inode.shown()),
          usable ? core_.loans.attributes_locked(inode) : Duration::zero()};
}

AttributesReply Filesystem::changed_attributes(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  inode.told_size = inode.size();
  return {options_.identity.to_local(inode.shown()), Loans::unsettled(attributes_lifetime_locked(inode))};
}

EntryReply Filesystem::changed_entry(const InodePointer& inode, Learnt learnt) {
  core_.inodes.remember(inode);
  const AttributesReply known = changed_attributes(*inode);
  return {inode->id, known.attr, core_.loans.name(Fact::kEntry, learnt), known.lifetime};
}

// This mount changed something of the file that the answer did not tell: links, names.
void Filesystem::touched(const InodePointer& inode) {
  if (!inode) return;
  const std::lock_guard lock(inode->mutex);
  inode->attributes.expire(core_.scheduler.now());
  if (inode->directory) inode->log.assume_no_more();
  core_.loans.withdraw_locked(*inode);
  if (inode->file) inode->file->touch();
}

void Filesystem::handle_attached(const schema::AttachReply& attached) {
  right_ended_ = false;
  remote_.handle_attached(attached);
  redo_.handle_attached(attached.resumed());
  const bool leases_kept = attached.resumed() && attached.lease_floor() <= trust_->floor();
  if (!attached.resumed()) trust_->forget_leases(core_.scheduler.now());
  take_terms(attached);
  trust_->resume();
  if (!leases_kept) {
    core_.log.take_back_all();
    take_back_all(nullptr);
  }
  settle_locks(attached);
}

// ---------------------------------------------------------------- the disk cache

namespace {

std::unexpected<Error> no_disk_cache() {
  return fail(ErrorCode::kUnsupported, "the mount has no disk cache: mount it with -o cache=DIR");
}

}  // namespace

Result<void> Filesystem::pin(const std::string& path) {
  if (kept_.disk() == nullptr) return no_disk_cache();
  return kept_.disk()->pin(path);
}

Result<void> Filesystem::unpin(const std::string& path) {
  if (kept_.disk() == nullptr) return no_disk_cache();
  return kept_.disk()->unpin(path);
}

}  // namespace tusk::client
