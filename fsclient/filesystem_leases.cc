// Filesystem: what the server takes back, and what the mount rests on.
#include "fsclient/filesystem.h"

namespace tusk::client {

void Filesystem::take_terms(const schema::AttachReply& attached) {
  const bool usable = options_.confirmed != nullptr;
  trust_->set_terms(std::chrono::milliseconds(usable ? attached.lease_ms() : 0), attached.lease_floor(),
                    std::chrono::milliseconds(attached.exclusive_ms()));
  if (attached.exclusive_over() != 0) core_.log.take_back(attached.exclusive_over(), [] {});
  grace_ends_ = core_.scheduler.now() + std::chrono::milliseconds(attached.grace_ms());
  core_.clock.set(attached.unix_time_ns());
  special_bits_stripped_ = attached.special_bits_stripped();
  watching_ = usable && attached.lease_ms() != 0 ? attached.watching() : schema::WATCH_NONE;
}

void Filesystem::handle_pushed(const schema::Request& request, std::move_only_function<void()> answer) {
  if (!request.has_invalidate()) return answer();
  const auto push = std::make_shared<PushAnswer>(std::move(answer));
  push->await_open();  // of any item: what is said of one may give the answer for all
  // Nobody waits for what has changed already.
  const auto pages =
      request.invalidate().changed() ? Facts::Pages::kDroppedBesideReads : Facts::Pages::kDropped;
  for (const auto& item : request.invalidate().items()) take_back(item, pages, push);
  push->handle_opened();
  if (request.invalidate().exclusive_over() != 0)
    return core_.log.take_back(request.invalidate().exclusive_over(),
                               [this, push] { give_when_dropped(push); });
  if (request.invalidate().lease_floor() != 0) {
    core_.log.take_back_all();
    trust_->raise_floor(request.invalidate().lease_floor());
    return take_back_all(push);
  }
  if (request.invalidate().changed()) look_again(request.invalidate());
  give_when_dropped(push);
}

// Behind all that the kernel has been asked to drop, names and pages.
void Filesystem::give_when_dropped(const std::shared_ptr<PushAnswer>& answer) {
  core_.scheduler.post_name_notification(
      [this, answer] { core_.scheduler.post_notification([answer] { answer->let_go(); }); });
}

// Until then a removal would take the file away from who has it open.
void Filesystem::answer_when_open(Inode& inode, const std::shared_ptr<PushAnswer>& answer) {
  const std::lock_guard lock(inode.mutex);
  if (inode.file) inode.file->opens_meanwhile.hold_back(answer);
}

void Filesystem::take_back(const schema::InvalidateRequest::Item& item, Facts::Pages pages,
                           const std::shared_ptr<PushAnswer>& answer) {
  facts_.note_taken_back(item.handle());
  const InodePointer inode = core_.inodes.find(item.handle());
  if (!inode) return;
  std::vector<std::string> names;
  std::vector<InodePointer> nodes{inode};
  if (!item.name().empty()) names.push_back(item.name());
  // Where the server sees names only, it does not know whose attributes went with a name.
  if (!item.name().empty())
    if (auto named = names_.last_known(*inode, item.name())) nodes.push_back(std::move(named));
  for (auto& [name, known] : facts_.forget(*inode, item.data(), item.entries(), pages)) {
    names.push_back(name);
    if (known.inode) nodes.push_back(std::move(known.inode));
  }
  for (std::size_t i = 1; i < nodes.size(); ++i) (void)facts_.forget(*nodes[i], false, false);
  // From here on nobody opens them without the server.
  for (const InodePointer& node : nodes) answer_when_open(*node, answer);
  if (!item.name().empty()) names_.taken_back(*inode, item.name());
  if (!names.empty() || item.data()) Facts::answer_when_busy(*inode, answer);
  core_.loans.drop_attributes(std::move(nodes), answer);
  if (!item.name().empty() || item.entries()) facts_.drop_kernel_names(inode, std::move(names));
}

namespace {

// Somebody has listed it, and listing it again costs no more than a question.
bool lists_few(Inode& directory) {
  constexpr std::size_t kFew = 256;
  const std::lock_guard lock(directory.mutex);
  if (!directory.directory || !directory.directory->listing) return false;
  if (directory.directory->listed_beside_name || directory.directory->streamed != 0) return false;
  const Listing& listing = *directory.directory->listing;
  return listing.complete && listing.entries.size() <= kFew;
}

}  // namespace

void Filesystem::look_again(const schema::InvalidateRequest& request) {
  constexpr int kItemsMax = 8;  // of more, most are not looked at by anybody
  if (request.items_size() > kItemsMax) return;
  for (const auto& item : request.items()) {
    const InodePointer inode = core_.inodes.find(item.handle());
    if (!inode || !core_.inodes.find(inode->id)) continue;  // no program has come to it
    if (item.data()) files_ahead_.fetch_again(inode);
    ask_attributes({}, inode, [](const Result<bool>&) {});
    if (item.name().empty() && !item.entries()) continue;
    if (!item.name().empty()) ask_name({}, inode, item.name(), 0, [](const Result<NameLearnt>&) {});
    if (lists_few(*inode)) (void)names_.begin({}, inode);
  }
}

// The leases are over: whatever the kernel was told under them, it must ask again.
void Filesystem::take_back_all(const std::shared_ptr<PushAnswer>& answer) {
  core_.foresight.forget(core_.scheduler.now());
  core_.scheduler.post([this, answer] {
    const std::vector<InodePointer> inodes = core_.inodes.all_remembered();
    if (answer)
      for (const InodePointer& inode : inodes) answer_when_open(*inode, answer);
    core_.loans.drop_attributes(inodes, answer);
    for (const InodePointer& inode : inodes) {
      std::vector<std::string> names;
      bool open = false;
      {
        const std::lock_guard lock(inode->mutex);
        open = !inode->open_files.empty();
        if (inode->file) {
          // A push about the bytes may be among what was missed.
          inode->file->taken_back_at = core_.scheduler.now();
          inode->file->data.disown(kWholeFile);
        }
        if (inode->directory)
          for (const auto& [name, known] : inode->directory->names) names.push_back(name);
      }
      if (answer && !names.empty()) Facts::answer_when_busy(*inode, answer);
      facts_.drop_kernel_names(inode, std::move(names));
      // Who has it open reads on without asking: if the bytes are others now, their pages go.
      if (open) ask_attributes({}, inode, [](const Result<bool>&) {});
    }
    pages_.watch_all();
    if (answer) give_when_dropped(answer);
  });
}

// The server says so: what was told before is for those who have the right to mount.
void Filesystem::handle_right_ended() {
  if (right_ended_.exchange(true)) return;
  trust_->forget_leases(core_.scheduler.now());
  take_back_all(nullptr);
}

Duration Filesystem::grace_remaining() const {
  return std::max(Duration::zero(), grace_ends_.load() - core_.scheduler.now());
}

std::string Filesystem::coherence() const {
  switch (watching_.load()) {
    case schema::WATCH_FANOTIFY:
      return "leases (fanotify)";
    case schema::WATCH_INOTIFY:
      return "leases (inotify)";
    default:
      return "lifetimes";
  }
}

std::size_t Filesystem::leases_held() {
  std::size_t held = 0;
  const TimePoint now = core_.scheduler.now();
  for (const InodePointer& inode : core_.inodes.all_remembered()) {
    const std::lock_guard lock(inode->mutex);
    if (trust_->covered(inode->attributes.learnt(), now)) ++held;
  }
  return held;
}

}  // namespace tusk::client
