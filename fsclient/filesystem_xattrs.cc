// Filesystem: extended attributes, ACLs among them.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "fsclient/caller_rights.h"
#include "fsclient/filesystem.h"
#include "fsclient/minimal_acl.h"

namespace tusk::client {
namespace {

// The kernel asks for it before every write, to take a written program's privileges away.
constexpr std::string_view kCapability = "security.capability";
constexpr std::string_view kAcl = "system.posix_acl_";
constexpr std::string_view kAccessAcl = "system.posix_acl_access";
constexpr std::string_view kDefaultAcl = "system.posix_acl_default";
// SELinux's. Where it is at work, its kernel answers by itself.
constexpr std::string_view kLabel = "security.selinux";

// Other people's labels, and numbers in ACLs, mean nothing here. And ls asks for them with every file, unless
// it is told once that there can be none.
bool not_for_us(std::string_view xattr, const IdentityMap& identity) {
  return xattr == kLabel || (xattr.starts_with(kAcl) && !identity.is_real());
}

// Of names that end with a NUL each.
std::string for_us(std::string_view names, const IdentityMap& identity) {
  std::string kept;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('\0'));
    if (!not_for_us(name, identity)) kept.append(name).push_back('\0');
    names.remove_prefix(std::min(names.size(), name.size() + 1));
  }
  return kept;
}

// Removed by this mount, and the server has forgotten it: programs here may still have it open.
bool gone_with_its_attributes(Inode& inode, const Error& error) {
  const std::lock_guard lock(inode.mutex);
  return error.code == from_errno(ESTALE) && inode.removed();
}

}  // namespace

bool Filesystem::known_without_xattrs(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.attributes.value().no_xattrs && attributes_lifetime_locked(inode) > Duration::zero();
}

void Filesystem::xattr(Asker asker, NodeId node, std::string name, Done<std::string> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if (not_for_us(name, options_.identity))
    return done(fail(from_errno(EOPNOTSUPP), "labels stay on the server, and ACLs need identity=real"));
  const InodePointer inode = *found;
  const bool capability = name == kCapability;
  bool absent = known_without_xattrs(*inode);
  if (capability && !absent) {
    const std::lock_guard lock(inode->mutex);
    absent = inode->file && inode->file->capability_absent;
  }
  if (absent) return done(fail(from_errno(ENODATA), "getxattr"));
  behind_log<Done<std::string>>(
      asker, inode, std::move(done),
      [this, asker, inode, name = std::move(name), capability](Done<std::string> then) mutable {
        ask_xattr(asker, inode, std::move(name), capability, std::move(then));
      });
}

void Filesystem::ask_xattr(const Asker& asker, const InodePointer& inode, std::string name, bool capability,
                           Done<std::string> done) {
  if (known_without_xattrs(*inode)) return done(fail(from_errno(ENODATA), "getxattr"));  // by now
  schema::Request request;
  request.mutable_getxattr()->set_handle(inode->handle());
  request.mutable_getxattr()->set_name(std::move(name));
  remote_.ask(asker, std::move(request), schema::Reply::kXattr,
              [inode, capability, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                if (reply) return done(std::move(*reply->message.mutable_xattr()->mutable_value()));
                if (gone_with_its_attributes(*inode, reply.error()))
                  return done(fail(from_errno(ENODATA), "of a removed file"));
                if (capability && reply.error().code == from_errno(ENODATA)) {
                  const std::lock_guard lock(inode->mutex);
                  if (inode->file) inode->file->capability_absent = true;
                }
                done(std::unexpected(reply.error()));
              });
}

void Filesystem::list_xattrs(Asker asker, NodeId node, Done<std::string> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if (known_without_xattrs(**found)) return done(std::string());
  behind_log<Done<std::string>>(asker, *found, std::move(done),
                                [this, asker, inode = *found](Done<std::string> then) mutable {
                                  ask_xattr_names(asker, inode, std::move(then));
                                });
}

void Filesystem::ask_xattr_names(const Asker& asker, const InodePointer& inode, Done<std::string> done) {
  if (known_without_xattrs(*inode)) return done(std::string());
  schema::Request request;
  request.mutable_listxattr()->set_handle(inode->handle());
  remote_.ask(asker, std::move(request), schema::Reply::kXattr,
              [this, inode, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                if (!reply && gone_with_its_attributes(*inode, reply.error())) return done(std::string());
                if (!reply) return done(std::unexpected(reply.error()));
                done(for_us(reply->message.xattr().value(), options_.identity));
              });
}

// An ACL also changes the mode, and the change counter moves: what is known is to be asked for again.
void Filesystem::xattrs_changed(const InodePointer& inode) {
  touched(inode);
  const std::lock_guard lock(inode->mutex);
  inode->attributes.adjust([](Attributes& attr) { attr.no_xattrs = false; });
  if (inode->file) inode->file->capability_absent = false;
}

void Filesystem::set_xattr(Asker asker, NodeId node, std::string name, std::string value, std::uint32_t flags,
                           Done<void> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  // cp -p gives every file such an ACL.
  if (const auto permissions = name == kAccessAcl ? permissions_of_minimal_acl(value) : std::nullopt;
      permissions && flags == 0 && options_.identity.is_real() && known_without_xattrs(**found)) {
    const std::uint32_t mode = attributes_of(**found).mode;
    // Who may keep the bit is decided where the ACL is set.
    if ((mode & S_ISGID) == 0)
      return set_attributes(asker, node, {}, {.mode = (mode & (S_ISUID | S_ISVTX)) | *permissions},
                            [done = std::move(done)](const Result<AttributesReply>& reply) mutable {
                              if (!reply) return done(std::unexpected(reply.error()));
                              done({});
                            });
  }
  if (name == kDefaultAcl) give_up_names(**found);
  if (in_log({*found}))
    return after_log<Done<void>>(asker, std::move(done),
                                 [this, asker, node, name, value, flags](Done<void> then) {
                                   set_xattr(asker, node, name, value, flags, std::move(then));
                                 });
  const bool may_lock_out = name == kAccessAcl;
  const bool is_default_acl = name == kDefaultAcl;
  schema::Request request;
  schema::SetXattrRequest& set = *request.mutable_setxattr();
  if (const Attributes attr = attributes_of(**found); may_lock_out && (attr.mode & S_ISGID) != 0)
    set.set_kill_set_group_id(!may_keep_set_group_id(asker.pid, attr.gid));
  set.set_handle((*found)->handle());
  set.set_name(std::move(name));
  set.set_value(std::move(value));
  set.set_flags(flags);
  open_first(asker, may_lock_out ? *found : nullptr,
             [this, asker, inode = *found, request = std::move(request), is_default_acl,
              done = std::move(done)](Result<NoOpens> no_opens) mutable {
               if (!no_opens) return done(std::unexpected(no_opens.error()));
               remote_.mutate(asker, std::move(request), schema::Reply::kEmpty,
                              [this, inode, is_default_acl, no_opens = std::move(*no_opens),
                               done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                                xattrs_changed(inode);
                                if (is_default_acl) give_up_names(*inode);
                                if (!reply) return done(std::unexpected(reply.error()));
                                done({});
                              });
             });
}

void Filesystem::remove_xattr(Asker asker, NodeId node, std::string name, Done<void> done) {
  const Result<InodePointer> found = inode_of(node);
  if (!found) return done(std::unexpected(found.error()));
  if (name.starts_with(kAcl) && options_.identity.is_real() && known_without_xattrs(**found)) return done({});
  if (in_log({*found}))
    return after_log<Done<void>>(asker, std::move(done), [this, asker, node, name](Done<void> then) {
      remove_xattr(asker, node, name, std::move(then));
    });
  schema::Request request;
  request.mutable_removexattr()->set_handle((*found)->handle());
  request.mutable_removexattr()->set_name(std::move(name));
  remote_.mutate(asker, std::move(request), schema::Reply::kEmpty,
                 [this, inode = *found, done = std::move(done)](Result<rpc::CallReply> reply) mutable {
                   xattrs_changed(inode);
                   if (!reply) return done(std::unexpected(reply.error()));
                   done({});
                 });
}

}  // namespace tusk::client
