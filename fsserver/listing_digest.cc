#include "fsserver/listing_digest.h"

#include <sys/stat.h>

#include <cstring>
#include <string>

#include "proto/base/shared_bytes.h"
#include "proto/crypto/primitives.h"

namespace tusk::server {
namespace {

// With its length before it, so that no two sequences are the same bytes.
void append_counted(std::string& all, std::string_view part) {
  for (std::size_t i = 0; i < sizeof(std::uint32_t); ++i) all += static_cast<char>(part.size() >> (8 * i));
  all += part;
}

}  // namespace

std::uint64_t listing_digest(std::string_view handle,
                             const google::protobuf::RepeatedPtrField<schema::DirEntry>& entries) {
  std::string all;
  append_counted(all, handle);
  schema::DirEntry entry;
  std::string bytes;
  for (const schema::DirEntry& told : entries) {
    entry = told;
    if (entry.has_node()) {
      schema::Attr& attr = *entry.mutable_node()->mutable_attr();
      attr.clear_cover();
      if (!S_ISREG(attr.mode())) {
        attr.clear_atime_s();
        attr.clear_atime_ns();
      }
    }
    entry.SerializeToString(&bytes);
    append_counted(all, bytes);
  }
  // With a weaker one, who makes files there could make two listings that are told apart by nobody.
  const crypto::Sha256Digest sha = crypto::sha256(as_byte_span(all));
  std::uint64_t digest = 0;
  std::memcpy(&digest, sha.data(), sizeof digest);
  return digest == 0 ? 1 : digest;
}

}  // namespace tusk::server
