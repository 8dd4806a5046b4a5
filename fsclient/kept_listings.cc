// A kept listing on the disk: the length of the plain WalkListing (4 bytes, little endian), then the listing,
// as it is or, if it is shorter so, as one zstd frame.
#include "fsclient/kept_listings.h"

#include <sys/stat.h>

#include <cstring>
#include <mutex>
#include <ranges>

#include "fsclient/kept_blocks.h"
#include "proto/rpc/compression.h"

namespace tusk::client {
namespace {

constexpr std::size_t kLengthBytes = 4;

// Empty: too large.
SharedBytes pack(const schema::WalkListing& told) {
  schema::WalkListing listing;
  *listing.mutable_entries() = told.entries();
  for (schema::DirEntry& entry : *listing.mutable_entries())
    if (entry.has_node()) entry.mutable_node()->mutable_attr()->clear_cover();
  const std::string plain = listing.SerializeAsString();
  if (plain.size() > KeptListings::kPlainMax) return {};
  const auto shorter = rpc::compress_if_it_helps(as_byte_span(plain));
  const std::span<const std::byte> body = shorter ? shorter->bytes : as_byte_span(plain);
  if (kLengthBytes + body.size() > KeptListings::kPackedMax) return {};
  const MutableSharedBytes packed = allocate_bytes(kLengthBytes + body.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    packed.bytes[i] = static_cast<std::byte>(plain.size() >> (8 * i));
  if (!body.empty()) std::memcpy(packed.bytes.data() + kLengthBytes, body.data(), body.size());
  return packed.first(packed.size());
}

std::optional<schema::WalkListing> unpack(const SharedBytes& packed, ByteCount& plain_bytes) {
  if (packed.size() < kLengthBytes) return std::nullopt;
  plain_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    plain_bytes |= std::to_integer<ByteCount>(packed.bytes[i]) << (8 * i);
  if (plain_bytes > KeptListings::kPlainMax) return std::nullopt;
  SharedBytes plain = packed.subspan(kLengthBytes);
  if (plain.size() != plain_bytes) {
    Result<SharedBytes> unpacked = rpc::decompress(plain.bytes, plain_bytes);
    if (!unpacked) return std::nullopt;
    plain = std::move(*unpacked);
  }
  schema::WalkListing listing;
  if (!listing.ParseFromArray(plain.bytes.data(), static_cast<int>(plain.size()))) return std::nullopt;
  return listing;
}

}  // namespace

struct KeptListings::Gathering {
  std::mutex mutex;               // the disk's threads, and who has waited for them long enough
  std::vector<std::string> left;  // handles, next last
  ByteCount bytes_max = 0;
  Gathered found;
  Done done;  // null: it has ended

  // What is below comes next, its first one first.
  void put_in_front(const schema::WalkListing& listing) {
    for (const schema::DirEntry& entry : std::views::reverse(listing.entries()))
      if (S_ISDIR(entry.node().attr().mode())) left.push_back(entry.node().handle());
  }
};

bool KeptListings::has(const Inode& directory) const {
  return disk_ != nullptr && directory.on_server() && disk_->find(directory.handle(), kBlock).has_value();
}

void KeptListings::keep(Inode& directory, const schema::WalkListing& told) {
  if (disk_ == nullptr || told.digest() == 0) return;
  const auto there = disk_->find(directory.handle(), kBlock);
  if (there && there->change == told.digest()) return;
  SharedBytes packed = pack(told);
  if (packed.empty()) return;
  disk_->store(
      {directory.handle(), told.digest(), kBlock}, [&] { return std::move(packed); }, path_later(directory));
}

// ---------------------------------------------------------------- from the disk

void KeptListings::gather(std::vector<std::string> handles, ByteCount bytes_max, Done done) {
  if (disk_ == nullptr) return done({});
  auto gathering = std::make_shared<Gathering>();
  gathering->left.assign(std::make_move_iterator(handles.rbegin()), std::make_move_iterator(handles.rend()));
  gathering->bytes_max = std::min(bytes_max, kGatheredBytesMax);
  gathering->done = std::move(done);
  go_on(gathering);
  scheduler_.post_after(kGatherTimeMax, [gathering] { end(*gathering); });
}

// One after the other: the next ones are told by those before.
void KeptListings::go_on(const std::shared_ptr<Gathering>& gathering) {
  std::string handle;
  std::optional<DiskCache::Found> there;
  {
    const std::lock_guard lock(gathering->mutex);
    const Gathered& found = gathering->found;
    std::vector<std::string>& left = gathering->left;
    if (!gathering->done) return;
    while (!there && !left.empty() && found.listings.size() < kGatheredMax) {
      handle = std::move(left.back());
      left.pop_back();
      if (!found.listings.contains(handle)) there = disk_->find(handle, kBlock);
      if (there && there->length > kPackedMax) there.reset();
    }
  }
  if (!there) return end(*gathering);
  const MutableSharedBytes packed = allocate_bytes(there->length);
  disk_->read({handle, there->change, kBlock}, 0, packed, nullptr,
              [this, gathering, handle, digest = there->change, packed](const Result<void>& outcome) {
                if (outcome) take_in(*gathering, {handle, digest, kBlock}, packed.first(packed.size()));
                go_on(gathering);
              });
}

void KeptListings::take_in(Gathering& gathering, const DiskKey& key, const SharedBytes& packed) {
  ByteCount bytes = 0;
  auto listing = unpack(packed, bytes);
  if (!listing) return disk_->forget(key);
  const std::lock_guard lock(gathering.mutex);
  Gathered& found = gathering.found;
  if (!gathering.done) return;
  if (found.bytes + bytes > gathering.bytes_max) {
    found.cut_short = true;
    return gathering.left.clear();
  }
  gathering.put_in_front(*listing);
  found.bytes += bytes;
  found.listings.emplace(key.handle, Kept{key.change, std::move(*listing)});
}

void KeptListings::end(Gathering& gathering) {
  Done done;
  Gathered found;
  {
    const std::lock_guard lock(gathering.mutex);
    done = std::exchange(gathering.done, nullptr);
    found = std::exchange(gathering.found, {});
  }
  if (done) done(std::move(found));
}

}  // namespace tusk::client
