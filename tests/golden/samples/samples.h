// One example of every form that goes over the wire: frames, packet headers, messages.
//
// The golden files pin their bytes; unit tests cut them short; fuzzers start from them.
#pragma once

#include <string>
#include <vector>

#include "proto/schema/tusk.pb.h"
#include "tests/golden/samples/wire_text.h"

namespace tusk::golden {

struct FrameSample {
  std::string name;   // of its golden file
  wire::Frame frame;  // its spans point to memory that lives for ever
  BodyForm form = BodyForm::kSized;
};
struct ShortHeaderSample {
  std::string name;
  wire::ShortHeader header;
};
struct LongHeaderSample {
  std::string name;
  wire::LongHeader header;
};
struct MessageSample {
  std::string name;
  schema::Request request;
  bool compressed = false;  // the bytes depend on zstd's version, so only their meaning is pinned
};

[[nodiscard]] const std::vector<FrameSample>& frame_samples();
[[nodiscard]] const std::vector<ShortHeaderSample>& short_header_samples();
[[nodiscard]] const std::vector<LongHeaderSample>& long_header_samples();
[[nodiscard]] const std::vector<MessageSample>& message_samples();

}  // namespace tusk::golden
