#include "fsserver/acting.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "proto/base/check.h"

namespace tusk::server {
namespace {

constexpr int kGroupsMax = 65536;  // NGROUPS_MAX
constexpr uid_t kNobody = 65534;   // the kernel's own word for whom it does not know

thread_local const Credentials* current = nullptr;  // nullptr: the server itself
thread_local bool obeying_limits = false;

using CapabilityWords = std::array<__user_cap_data_struct, 2>;

CapabilityWords thread_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  CapabilityWords words{};
  TUSK_CHECK(::syscall(SYS_capget, &header, words.data()) == 0);
  return words;
}

void change_capabilities(const CapabilityWords& words) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  TUSK_CHECK(::syscall(SYS_capset, &header, words.data()) == 0);
}

void drop(CapabilityWords& words, int capability) {
  words[CAP_TO_INDEX(capability)].effective &= ~CAP_TO_MASK(capability);
}

void raise_all_permitted() {
  CapabilityWords words = thread_capabilities();
  for (auto& word : words) word.effective = word.permitted;
  if (obeying_limits) drop(words, CAP_SYS_RESOURCE);
  change_capabilities(words);
}

// setfsuid to another user than root has taken away the capabilities about files; these are what a
// file system also asks for: exceeding quotas and reserves, trusted xattrs.
void drop_remaining() {
  CapabilityWords words = thread_capabilities();
  for (const int capability : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) drop(words, capability);
  change_capabilities(words);
}

// The raw calls: glibc's setgroups changes every thread of the process.
void change_groups(const std::vector<gid_t>& groups) {
  TUSK_CHECK(::syscall(SYS_setgroups, groups.size(), groups.data()) == 0);
}

// False: the kernel knows no such id (in this user namespace), or does not let us have it. Then either may
// have changed.
bool try_ids(uid_t uid, gid_t gid) {
  constexpr auto kAsk = static_cast<uid_t>(-1);  // an invalid id changes nothing and answers the present one
  if (uid == kAsk || gid == kAsk) return false;
  ::setfsgid(gid);
  ::setfsuid(uid);
  return static_cast<uid_t>(::setfsuid(kAsk)) == uid && static_cast<gid_t>(::setfsgid(kAsk)) == gid;
}

void change_ids(uid_t uid, gid_t gid) { TUSK_CHECK(try_ids(uid, gid)); }

const Credentials& server_credentials() {
  static const Credentials credentials = Credentials::own();
  return credentials;
}

void become(const Credentials* next) {
  if (next == current) return;
  const Credentials& own = server_credentials();
  if (current != nullptr) {
    raise_all_permitted();
    change_ids(own.uid, own.gid);
    raise_all_permitted();
    change_groups(own.groups);
  }
  if (next != nullptr) {
    change_groups(next->groups);
    change_ids(next->uid, next->gid);
    if (next->uid != 0) drop_remaining();
  }
  current = next;
}

}  // namespace

bool can_act_as_others() { return ::geteuid() == 0; }

Credentials Credentials::own() {
  Credentials own{.uid = ::geteuid(), .gid = ::getegid(), .groups = {}};
  std::vector<gid_t> groups(kGroupsMax);
  const int count = ::getgroups(kGroupsMax, groups.data());
  TUSK_CHECK(count >= 0);
  own.groups.assign(groups.begin(), groups.begin() + count);
  return own;
}

Result<Credentials> Credentials::of_user(const std::string& user) {
  std::vector<char> buffer(1 << 16);
  passwd entry{};
  passwd* found = nullptr;
  uid_t number = 0;
  const char* const end = user.data() + user.size();
  if (const auto parsed = std::from_chars(user.data(), end, number);
      parsed.ec == std::errc() && parsed.ptr == end)
    ::getpwuid_r(number, &entry, buffer.data(), buffer.size(), &found);
  else
    ::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) return fail(ErrorCode::kBadConfig, "there is no user '" + user + "' on this machine");

  Credentials credentials{.uid = found->pw_uid, .gid = found->pw_gid, .groups = {}};
  std::vector<gid_t> groups(kGroupsMax);
  int count = kGroupsMax;
  if (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0)
    return fail(ErrorCode::kBadConfig, "user '" + user + "' is in too many groups");
  credentials.groups.assign(groups.begin(), groups.begin() + count);
  return credentials;
}

ActingAs::ActingAs(const Credentials* credentials) : outer_(current) { become(credentials); }

ActingAs::~ActingAs() { become(outer_); }

ObeyingLimits::ObeyingLimits(bool wanted) : changed_(wanted && !std::exchange(obeying_limits, wanted)) {
  if (changed_ && current == nullptr) raise_all_permitted();
}

ObeyingLimits::~ObeyingLimits() {
  if (!changed_) return;
  obeying_limits = false;
  if (current == nullptr) raise_all_permitted();
}

SparingReserve::SparingReserve(bool wanted)
    : changed_(wanted && current == nullptr && server_credentials().uid == 0) {
  if (!changed_) return;
  ::setfsuid(kNobody);
  raise_all_permitted();
}

SparingReserve::~SparingReserve() {
  if (!changed_) return;
  change_ids(server_credentials().uid, server_credentials().gid);
  raise_all_permitted();
}

Result<CreatingFor> CreatingFor::begin(std::optional<Owner> owner) {
  if (!owner || (owner->uid == 0 && owner->gid == 0)) return CreatingFor(false);
  TUSK_CHECK(current == nullptr);
  CreatingFor scope(true);  // puts back what a refused change has changed
  const bool changed = try_ids(owner->uid, owner->gid);
  raise_all_permitted();
  if (!changed)
    return fail(from_errno(EINVAL), "this server has no user " + std::to_string(owner->uid) + " or group " +
                                        std::to_string(owner->gid));
  return scope;
}

CreatingFor::~CreatingFor() {
  if (!changed_) return;
  const Credentials& own = server_credentials();
  change_ids(own.uid, own.gid);
  raise_all_permitted();
}

}  // namespace tusk::server
