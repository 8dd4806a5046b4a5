#include "fsclient/read_ahead.h"

#include <algorithm>

namespace tusk::client {

ReadAhead::Stream* ReadAhead::follow(ByteCount offset, ByteCount length) {
  for (Stream& stream : streams_) {
    if (stream.used == 0) continue;
    const bool close_behind = offset <= stream.next && offset + length + kSkipMax >= stream.next;
    const bool skips_a_little = offset > stream.next && offset - stream.next <= kSkipMax;
    const bool reordered = length >= kReorderedReadMin && offset <= stream.next + kReorderSlack &&
                           offset + kReorderSlack >= stream.next;
    if ((close_behind && offset >= stream.start) || skips_a_little || reordered) return &stream;
  }
  return nullptr;
}

ReadAhead::Stream& ReadAhead::begin_stream(ByteCount offset, ByteCount length) {
  Stream& oldest = *std::ranges::min_element(streams_, {}, &Stream::used);
  oldest = {.start = offset, .next = offset + length};
  return oldest;
}

Interval ReadAhead::observe(ByteCount offset, ByteCount length, ByteCount size,
                            const ReadAheadLimits& limits) {
  Stream* stream = follow(offset, length);
  if (stream != nullptr) {
    stream->next = std::max(stream->next, offset + length);
    stream->start = std::min(stream->start, offset);
  } else {
    stream = &begin_stream(offset, length);
  }
  stream->used = ++uses_;
  newest_ = static_cast<std::size_t>(stream - streams_.data());

  const ByteCount consumed = stream->next - stream->start;
  const bool believed = stream->start == 0 || consumed >= kProof;
  if (!believed) return {};
  stream->window = std::min(stream->window == 0 ? kWindowFirst : stream->window * 4, limits.window_max);

  const ByteCount end = std::min(size, stream->next + stream->window);
  const Interval ahead{std::max(stream->requested, stream->next), end};
  if (ahead.empty()) return {};
  // Small steps would become small calls: wait until a quarter of the window is due, or the end.
  if (end < size && ahead.begin > stream->next && ahead.size() < stream->window / 4) return {};
  stream->requested = end;
  return ahead;
}

}  // namespace tusk::client
