#include "fsclient/file_data.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "proto/base/check.h"

namespace tusk::client {
namespace {

// A WRITE that fills less of its buffer is kept as a copy: else the bound would not count the rest of the buffer.
constexpr ByteCount kKeptShare = 2;

// Buffers of small files are multiples of it, as the kernel's pages are.
constexpr ByteCount kBufferGrain = 4096;

constexpr ByteCount round_up(ByteCount value, ByteCount grain) { return (value + grain - 1) / grain * grain; }
constexpr ByteCount round_down(ByteCount value, ByteCount grain) { return value / grain * grain; }

constexpr Interval clip(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : Interval{};
}

}  // namespace

FileData::FileData(BlockCache& cache, std::weak_ptr<Inode> inode) : cache_(cache), inode_(std::move(inode)) {}

FileData::~FileData() {
  for (auto& [index, block] : blocks_) cache_.remove(block.position);
}

// ---------------------------------------------------------------- blocks and their memory

FileData::Block& FileData::block_at(std::uint64_t index) {
  const auto [place, inserted] = blocks_.try_emplace(index);
  if (inserted) place->second.position = cache_.insert(inode_, index);
  return place->second;
}

std::span<std::byte> FileData::memory(std::uint64_t index, Block& block, Interval range) {
  return block.buffer->bytes().subspan(range.begin - extent_of(index).begin, range.size());
}

// Room up to `end` (an offset in the file). `whole`: more is likely to follow soon.
void FileData::reserve(std::uint64_t index, Block& block, ByteCount end, bool whole) {
  const ByteCount needed = end - extent_of(index).begin;
  if (block.buffer && block.buffer->capacity() >= needed) return;
  const ByteCount capacity = whole          ? kBlockSize
                             : block.buffer ? std::bit_ceil(std::max(needed, kBufferGrain))
                                            : round_up(needed, kBufferGrain);
  replace_buffer(index, block, std::min(capacity, kBlockSize));
}

void FileData::replace_buffer(std::uint64_t index, Block& block, std::size_t capacity) {
  auto fresh = std::make_shared<BlockBuffer>(cache_.budget(), capacity);
  const ByteCount base = extent_of(index).begin;
  if (block.buffer) {
    for (const Interval& part : valid_.overlap(base, base + std::min(capacity, block.buffer->capacity())))
      std::memcpy(fresh->bytes().data() + (part.begin - base),
                  block.buffer->bytes().data() + (part.begin - base), part.size());
  }
  for (const auto& fetch : block.fetches) fetch->into_block = false;
  block.buffer = std::move(fresh);
}

bool FileData::fetched_into(const Block& block, Interval range) {
  return std::ranges::any_of(block.fetches, [&](const auto& fetch) {
    return fetch->into_block && !clip(fetch->range, range).empty();
  });
}

bool FileData::in_use_elsewhere(const Block& block, Interval range) {
  if (block.buffer->being_read()) return true;
  if (block.sending && !clip(*block.sending, range).empty()) return true;
  return fetched_into(block, range);
}

void FileData::drop_if_empty(std::uint64_t index) {
  const auto place = blocks_.find(index);
  if (place == blocks_.end()) return;
  const Block& block = place->second;
  const Interval extent = extent_of(index);
  if (block.sending || !block.fetches.empty() || block.holds > 0) return;
  if (!valid_.overlap(extent.begin, extent.end).empty()) return;
  cache_.remove(block.position);
  blocks_.erase(place);
}

// ---------------------------------------------------------------- reading

std::vector<SharedBytes> FileData::lend(Interval range) {
  TUSK_CHECK(has(range));
  std::vector<SharedBytes> pieces;
  while (!range.empty()) {
    const std::uint64_t index = index_of(range.begin);
    const Interval extent = extent_of(index);
    const Interval part = clip(range, extent);
    pieces.push_back(BlockBuffer::lend(blocks_.at(index).buffer, part.begin - extent.begin, part.size()));
    range.begin = part.end;
  }
  return pieces;
}

bool FileData::has_settled(Interval range) const {
  const std::vector<Interval> here = parts(range);
  if (here.empty() || all_settled()) return !here.empty();
  IntervalSet ours;
  for (const Interval& part : dirty_.overlap(range.begin, range.end)) ours.add(part.begin, part.end);
  const auto last = unsettled_.upper_bound(index_of(range.end - 1));
  for (auto place = unsettled_.lower_bound(index_of(range.begin)); place != last; ++place)
    if (const auto& sending = blocks_.at(*place).sending) ours.add(sending->begin, sending->end);
  return !std::ranges::all_of(here, [&](const Interval& part) { return ours.covers(part.begin, part.end); });
}

std::vector<std::shared_ptr<Fetch>> FileData::begin_fetches(Interval range, ByteCount grain, ByteCount limit,
                                                            ByteCount call_max) {
  std::vector<std::shared_ptr<Fetch>> begun;
  for (std::uint64_t index = index_of(range.begin); !range.empty() && index <= index_of(range.end - 1);
       ++index) {
    const Interval extent = clip(extent_of(index), {0, std::max(limit, range.end)});
    const Interval wanted = clip(extent, range);
    if (valid_.covers(wanted.begin, wanted.end)) continue;
    Block& block = block_at(index);
    IntervalSet taken;
    for (const Interval& part : valid_.overlap(extent.begin, extent.end)) taken.add(part.begin, part.end);
    for (const auto& fetch : block.fetches) taken.add(fetch->range.begin, fetch->range.end);
    reserve(index, block, extent.end, extent.size() == kBlockSize);
    for (const Interval& gap : taken.gaps(extent.begin, extent.end)) {
      const Interval missing = clip(gap, wanted);
      if (missing.empty()) continue;
      Interval piece = clip(gap, {round_down(missing.begin, grain), round_up(missing.end, grain)});
      for (; !piece.empty(); piece.begin += std::min(call_max, piece.size())) {
        auto fetch = std::make_shared<Fetch>();
        fetch->range = {piece.begin, std::min(piece.end, piece.begin + call_max)};
        fetch->target = {block.buffer, memory(index, block, fetch->range)};
        block.fetches.push_back(fetch);
        begun.push_back(std::move(fetch));
      }
    }
  }
  return begun;
}

ByteCount FileData::missing(Interval range) const {
  IntervalSet known;
  for (const Interval& part : valid_.overlap(range.begin, range.end)) known.add(part.begin, part.end);
  for (const auto& fetch : fetches_of(range)) {
    const Interval part = clip(fetch->range, range);
    known.add(part.begin, part.end);
  }
  return range.size() - known.total();
}

std::vector<std::shared_ptr<Fetch>> FileData::fetches_of(Interval range) const {
  std::vector<std::shared_ptr<Fetch>> found;
  if (range.empty()) return found;
  const auto last = blocks_.upper_bound(index_of(range.end - 1));
  for (auto place = blocks_.lower_bound(index_of(range.begin)); place != last; ++place)
    for (const auto& fetch : place->second.fetches)
      if (!clip(fetch->range, range).empty()) found.push_back(fetch);
  return found;
}

// Before valid bytes of that change are added to it.
void FileData::note_change(std::uint64_t index, Block& block, std::uint64_t change) {
  const Interval extent = extent_of(index);
  const bool first = valid_.overlap(extent.begin, extent.end).empty();
  if (first || block.change != change) block.change = first ? change : 0;
}

std::uint64_t FileData::change_of(std::uint64_t block) const {
  const auto place = blocks_.find(block);
  return place == blocks_.end() ? 0 : place->second.change;
}

void FileData::end_fetch(const std::shared_ptr<Fetch>& fetch, ByteCount filled, ByteCount zero_end,
                         std::uint64_t change) {
  if (fetch->stale) return;  // its block does not know it any more
  const std::uint64_t index = index_of(fetch->range.begin);
  Block& block = blocks_.at(index);
  std::erase(block.fetches, fetch);
  const Interval arrived{fetch->range.begin, fetch->range.begin + std::min(filled, fetch->range.size())};
  if (!arrived.empty() || zero_end > arrived.end) note_change(index, block, change);
  if (!arrived.empty()) {
    if (fetch->into_block)
      valid_.add(arrived.begin, arrived.end);
    else
      fill_gaps(index, block, arrived, fetch->target.bytes.first(arrived.size()));
  }
  const Interval zeros = clip(fetch->range, {arrived.end, zero_end});
  if (!zeros.empty()) {
    reserve(index, block, zeros.end, false);
    for (const Interval& gap : valid_.gaps(zeros.begin, zeros.end)) {
      const auto bytes = memory(index, block, gap);
      std::memset(bytes.data(), 0, bytes.size());
      valid_.add(gap.begin, gap.end);
    }
  }
  drop_if_empty(index);
}

// Gaps are nobody's: whoever reads or sends from this buffer uses valid bytes only.
void FileData::fill_gaps(std::uint64_t index, Block& block, Interval range,
                         std::span<const std::byte> bytes) {
  reserve(index, block, range.end, false);
  for (const Interval& gap : valid_.gaps(range.begin, range.end)) {
    std::memcpy(memory(index, block, gap).data(), bytes.data() + (gap.begin - range.begin), gap.size());
    valid_.add(gap.begin, gap.end);
  }
}

void FileData::fill(ByteCount offset, std::span<const std::byte> bytes, std::uint64_t change) {
  Interval range{offset, offset + bytes.size()};
  while (!range.empty()) {
    const std::uint64_t index = index_of(range.begin);
    const Interval part = clip(range, extent_of(index));
    Block& block = block_at(index);
    // A fetch into the same bytes would write to them once they are somebody's to read.
    if (fetched_into(block, part)) replace_buffer(index, block, block.buffer->capacity());
    note_change(index, block, change);
    fill_gaps(index, block, part, bytes.subspan(part.begin - offset, part.size()));
    range.begin = part.end;
  }
}

void FileData::hold(Interval range) {
  if (range.empty()) return;
  for (std::uint64_t index = index_of(range.begin); index <= index_of(range.end - 1); ++index)
    ++block_at(index).holds;
}

void FileData::release(Interval range) {
  if (range.empty()) return;
  for (std::uint64_t index = index_of(range.begin); index <= index_of(range.end - 1); ++index) {
    --blocks_.at(index).holds;
    drop_if_empty(index);
  }
}

void FileData::note_spent(Interval range) {
  for (auto place = blocks_.lower_bound(index_of(range.begin)); place != blocks_.end() && !range.empty();
       ++place) {
    if (extent_of(place->first).end > range.end) break;
    cache_.note_spent(place->second.position);
  }
}

void FileData::touch(Interval range) {
  for (auto place = blocks_.lower_bound(index_of(range.begin)); place != blocks_.end(); ++place) {
    if (extent_of(place->first).begin >= range.end) break;
    cache_.touch(place->second.position);
  }
}

// ---------------------------------------------------------------- writing

ByteCount FileData::write(ByteCount offset, std::span<const std::byte> bytes,
                          const std::shared_ptr<OpenFile>& writer) {
  ByteCount newly_dirty = 0;
  Interval range{offset, offset + bytes.size()};
  while (!range.empty()) {
    const std::uint64_t index = index_of(range.begin);
    const Interval part = clip(range, extent_of(index));
    Block& block = block_at(index);
    reserve(index, block, part.end, index > 0);
    if (in_use_elsewhere(block, part)) replace_buffer(index, block, block.buffer->capacity());
    std::memcpy(memory(index, block, part).data(), bytes.data() + (part.begin - offset), part.size());
    if (!dirty(index)) block.dirty_generation = block.turn_generation = generation_;
    valid_.add(part.begin, part.end);
    newly_dirty += dirty_.add(part.begin, part.end);
    block.writer = writer;
    block.change = 0;
    unsettled_.insert(index);
    cache_.touch(block.position);
    range.begin = part.end;
  }
  dirty_bytes_ += newly_dirty;
  return newly_dirty;
}

bool FileData::dirty(std::uint64_t block) const {
  const Interval extent = extent_of(block);
  return !dirty_.overlap(extent.begin, extent.end).empty();
}

bool FileData::lies_dirty(std::uint64_t block) const { return !blocks_.at(block).sending && dirty(block); }

bool FileData::dirty_since(std::uint64_t block, std::uint64_t generation) const {
  return dirty(block) && blocks_.at(block).dirty_generation <= generation;
}

bool FileData::written_to_the_end(std::uint64_t block) const {
  return dirty_.contains(extent_of(block).end - 1);
}

std::optional<OutgoingWrite> FileData::begin_write(std::uint64_t index, ByteCount call_max) {
  const auto place = blocks_.find(index);
  if (place == blocks_.end() || place->second.sending) return std::nullopt;
  Block& block = place->second;
  const auto extents = dirty_.overlap(extent_of(index).begin, extent_of(index).end);
  if (extents.empty()) return std::nullopt;
  auto next =
      std::ranges::find_if(extents, [&](const Interval& extent) { return extent.end > block.cursor; });
  if (next == extents.end()) {
    // What was dirty when this turn began has all been sent.
    next = extents.begin();
    block.cursor = next->begin;
    block.dirty_generation = std::exchange(block.turn_generation, generation_);
  }
  const ByteCount begin = next->size() <= call_max ? next->begin : std::max(next->begin, block.cursor);
  const Interval range{begin, std::min(next->end, begin + call_max)};
  block.cursor = range.end;
  dirty_.remove(range.begin, range.end);
  dirty_bytes_ -= range.size();
  sending_bytes_ += range.size();
  block.sending = range;
  block.sending_generation = block.dirty_generation;
  const ByteCount at = range.begin - extent_of(index).begin;
  SharedBytes bytes;
  if (range.size() * kKeptShare > block.buffer->capacity()) {
    bytes = BlockBuffer::keep(block.buffer, at, range.size());
  } else {
    const auto own = std::make_shared<BlockBuffer>(cache_.budget(), range.size());
    std::memcpy(own->bytes().data(), block.buffer->bytes().data() + at, range.size());
    bytes = BlockBuffer::keep(own, 0, range.size());
  }
  return OutgoingWrite{index, range, std::move(bytes), block.writer};
}

std::shared_ptr<OpenFile> FileData::end_write(std::uint64_t index, bool success) {
  Block& block = blocks_.at(index);
  TUSK_CHECK(block.sending.has_value());
  const Interval range = *block.sending;
  block.sending.reset();
  sending_bytes_ -= range.size();
  const bool disowned = std::exchange(block.disowned, false);
  if (disowned) --disowned_;
  if (!success || disowned)
    for (const Interval& lost : dirty_.gaps(range.begin, range.end)) valid_.remove(lost.begin, lost.end);
  if (disowned) leave_kept(index, block);
  std::shared_ptr<OpenFile> writer;
  if (!dirty(index)) {
    unsettled_.erase(index);
    writer = std::move(block.writer);
  }
  drop_if_empty(index);
  return writer;
}

void FileData::let_writers_go() {
  for (const std::uint64_t index : unsettled_) blocks_.at(index).writer.reset();
}

bool FileData::settled(std::uint64_t generation) const {
  return std::ranges::none_of(unsettled_, [&](std::uint64_t index) {
    const Block& block = blocks_.at(index);
    return (block.sending && block.sending_generation <= generation) || dirty_since(index, generation);
  });
}

// ---------------------------------------------------------------- changes made elsewhere

// The fetches of the block that touch `range` will bring nothing; the memory they write to is theirs.
void FileData::make_stale(Block& block, Interval range) {
  std::erase_if(block.fetches, [&](const auto& fetch) {
    if (clip(fetch->range, range).empty()) return false;
    fetch->stale = true;
    return true;
  });
}

void FileData::forget(Interval range) {
  valid_.remove(range.begin, range.end);
  for (const Interval& ours : dirty_.overlap(range.begin, range.end)) valid_.add(ours.begin, ours.end);
  for (auto place = blocks_.lower_bound(index_of(range.begin)); place != blocks_.end();) {
    const auto here = place++;
    const std::uint64_t index = here->first;
    Block& block = here->second;
    if (extent_of(index).begin >= range.end) break;
    if (block.sending) {
      const Interval ours = clip(*block.sending, range);
      if (!ours.empty()) valid_.add(ours.begin, ours.end);
    }
    const std::size_t fetches_before = block.fetches.size();
    make_stale(block, range);
    if (block.fetches.size() != fetches_before)
      replace_buffer(index, block, block.buffer->capacity());
    else
      leave_kept(index, block);
    drop_if_empty(index);
  }
}

// Bytes in it are kept and are not the file's any more, maybe: what comes from the server goes elsewhere.
void FileData::leave_kept(std::uint64_t index, Block& block) {
  if (!block.buffer || !block.buffer->kept() || block.sending) return;
  const Interval extent = extent_of(index);
  if (valid_.overlap(extent.begin, extent.end).empty() && block.fetches.empty())
    block.buffer.reset();
  else
    replace_buffer(index, block, block.buffer->capacity());
}

void FileData::disown(Interval range) {
  for (const std::uint64_t index : unsettled_) {
    Block& block = blocks_.at(index);
    if (block.disowned || !block.sending || clip(*block.sending, range).empty()) continue;
    block.disowned = true;
    ++disowned_;
  }
}

ByteCount FileData::truncate(ByteCount size) {
  constexpr ByteCount kForever = ~ByteCount{0};
  const ByteCount lost = dirty_.remove(size, kForever);
  dirty_bytes_ -= lost;
  for (auto place = unsettled_.lower_bound(index_of(size)); place != unsettled_.end();) {
    const std::uint64_t index = *place++;
    if (!blocks_.at(index).sending && !dirty(index)) {
      blocks_.at(index).writer.reset();
      unsettled_.erase(index);
    }
  }
  disown({size, kForever});
  forget({size, kForever});
  return lost;
}

bool FileData::evict(std::uint64_t index) {
  const auto place = blocks_.find(index);
  if (place == blocks_.end()) return false;
  const Block& block = place->second;
  if (block.sending || !block.fetches.empty() || block.holds > 0 || dirty(index)) return false;
  if (block.buffer && block.buffer->kept()) return false;
  valid_.remove(extent_of(index).begin, extent_of(index).end);
  cache_.remove(block.position);
  blocks_.erase(place);
  return true;
}

}  // namespace tusk::client
