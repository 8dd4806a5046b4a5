#include "fsserver/handle_codec.h"

#include <cstring>
#include <vector>

#include "fsserver/kernel_handle.h"
#include "proto/base/check.h"
#include "proto/base/shared_bytes.h"

namespace tusk::server {
namespace {

constexpr std::size_t kPayloadHeadBytes = 13;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}

template <class T>
T take(std::string_view& in) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= std::uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  in.remove_prefix(sizeof(T));
  return static_cast<T>(value);
}

std::string to_payload(const FileIdentity& identity) {
  TUSK_CHECK(identity.bytes.size() <= FileIdentity::kBytesMax);
  std::string payload;
  put(payload, static_cast<std::uint8_t>(identity.kind));
  put(payload, identity.device);
  put(payload, identity.type);
  return payload + identity.bytes;
}

bool handle_from_kernel(const Fd& fd, int flags, FileIdentity& identity) {
  KernelHandle raw{.handle_bytes = FileIdentity::kBytesMax};
  int mount_id = 0;
  if (::name_to_handle_at(fd.number(), "", reinterpret_cast<file_handle*>(&raw), &mount_id,
                          AT_EMPTY_PATH | flags) != 0)
    return false;
  identity.type = raw.handle_type;
  identity.bytes.assign(reinterpret_cast<const char*>(raw.f_handle), raw.handle_bytes);
  return true;
}

}  // namespace

Result<FileIdentity> identify(const Fd& fd, const Status& status, std::uint64_t root_device) {
  FileIdentity identity;
  const std::uint64_t device = device_of(status);
  identity.device = device == root_device ? 0 : device;
  if (handle_from_kernel(fd, 0, identity)) {
    identity.kind = FileIdentity::Kind::kOpenable;
    return identity;
  }
  // EOPNOTSUPP (overlayfs, some FUSE), EOVERFLOW (longer than ours may be), ENOSYS, EPERM (containers).
  put(identity.bytes, std::uint64_t{status.stx_ino});
  if (status.stx_mask & STATX_BTIME) {
    put(identity.bytes, std::int64_t{status.stx_btime.tv_sec});
    put(identity.bytes, std::uint32_t{status.stx_btime.tv_nsec});
  }
  return identity;
}

HandleCodec::HandleCodec(const crypto::Secret& secret, std::string_view export_name,
                         const FileIdentity& root) {
  std::string label = to_payload(root);
  put(label, std::uint64_t{export_name.size()});
  label += export_name;
  const crypto::Sha256Digest digest = crypto::hmac_sha256(secret.bytes, as_byte_span(label));
  key_.bytes = digest;
}

std::string HandleCodec::encode(const FileIdentity& identity) const {
  const std::string payload = to_payload(identity);
  const crypto::Sha256Digest mac = crypto::hmac_sha256(key_.bytes, as_byte_span(payload));
  return std::string(as_text(std::span(mac).first(kHandleMacBytes))) + payload;
}

Result<FileIdentity> HandleCodec::decode(std::string_view handle) const {
  if (handle.size() < kHandleMacBytes + kPayloadHeadBytes || handle.size() > kHandleBytesMax)
    return fail(from_errno(ESTALE), "not a handle");
  std::string_view payload = handle.substr(kHandleMacBytes);
  const crypto::Sha256Digest mac = crypto::hmac_sha256(key_.bytes, as_byte_span(payload));
  if (!crypto::constant_time_equal(std::span(mac).first(kHandleMacBytes),
                                   as_byte_span(handle.substr(0, kHandleMacBytes))))
    return fail(from_errno(ESTALE), "not a handle of this export");

  FileIdentity identity;
  identity.kind = static_cast<FileIdentity::Kind>(take<std::uint8_t>(payload));
  identity.device = take<std::uint64_t>(payload);
  identity.type = take<std::int32_t>(payload);
  identity.bytes = payload;
  return identity;
}

}  // namespace tusk::server
