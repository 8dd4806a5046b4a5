#include "tests/system/wan/settings.h"

#include <string>

#include "tests/system/wan/quantity.h"

namespace tusk::wan {
namespace {

using support::LinkParameters;

template <auto Member, auto Parse>
Result<void> assign(LinkParameters& parameters, std::string_view text) {
  TUSK_ASSIGN(parameters.*Member, Parse(text));
  return {};
}

// One limit at a time: a queue is so long, or so large.
Result<void> assign_queue(LinkParameters& parameters, std::string_view text) {
  if (const Result<Duration> time = parse_duration(text); time && *time > 0ns) {
    parameters.queue_time = *time;
    parameters.queue_bytes = 0;
    return {};
  }
  if (const Result<ByteCount> bytes = parse_size(text); bytes && *bytes > 0) {
    parameters.queue_time = 0ns;
    parameters.queue_bytes = *bytes;
    return {};
  }
  return fail(ErrorCode::kBadConfig, "\"" + std::string(text) + "\" is not a queue such as 100ms or 256kb");
}

Result<void> assign_burst_length(LinkParameters& parameters, std::string_view text) {
  TUSK_ASSIGN(parameters.burst_length, parse_number(text, 1));
  return {};
}

Result<void> assign_outage(LinkParameters& parameters, std::string_view text) {
  if (text != "on" && text != "off") {
    return fail(ErrorCode::kBadConfig, "\"" + std::string(text) + "\" is neither on nor off");
  }
  parameters.outage = text == "on";
  return {};
}

constexpr Setting kSettings[] = {
    {"rate", "1gbit", "bottleneck, counted in bytes of IP packets; unlimited: none",
     assign<&LinkParameters::rate, parse_rate>},
    {"queue", "100ms", "drop-tail queue at the bottleneck: a waiting time or a size (256kb)", assign_queue},
    {"ecn", "5ms", "mark ECN-capable packets that wait longer; 0: never",
     assign<&LinkParameters::ecn_threshold, parse_duration>},
    {"policer", "100mbit", "drop what exceeds this rate, without a queue (token bucket); unlimited: none",
     assign<&LinkParameters::policer_rate, parse_rate>},
    {"policer-burst", "64kb", "the policer's bucket", assign<&LinkParameters::policer_burst, parse_size>},
    {"loss", "0.1%", "random loss, each packet on its own", assign<&LinkParameters::loss, parse_fraction>},
    {"burst-loss", "1%", "loss in bursts (Gilbert): the share of all packets",
     assign<&LinkParameters::burst_loss, parse_fraction>},
    {"burst-length", "8", "mean number of packets in such a burst", assign_burst_length},
    {"delay", "50ms", "one way", assign<&LinkParameters::delay, parse_duration>},
    {"jitter", "2ms", "wanders between 0 and this, on top of the delay; keeps the order",
     assign<&LinkParameters::jitter, parse_duration>},
    {"reorder", "1%", "share of packets held back, so that others overtake",
     assign<&LinkParameters::reorder, parse_fraction>},
    {"reorder-min", "2ms", "held back by at least this",
     assign<&LinkParameters::reorder_min, parse_duration>},
    {"reorder-max", "10ms", "held back by less than this",
     assign<&LinkParameters::reorder_max, parse_duration>},
    {"duplicate", "0.1%", "share of packets that arrive twice",
     assign<&LinkParameters::duplicate, parse_fraction>},
    {"corrupt", "0.1%", "share of packets with a payload byte changed; UDP programs get to see it",
     assign<&LinkParameters::corrupt, parse_fraction>},
    {"outage", "on", "drop everything that enters", assign_outage},
};

Result<void> apply_one(PathParameters& parameters, std::string_view change) {
  const std::size_t equals = change.find('=');
  if (equals == std::string_view::npos) {
    return fail(ErrorCode::kBadConfig, "\"" + std::string(change) + "\" is not NAME=VALUE");
  }
  const std::string_view value = change.substr(equals + 1);
  std::string_view name = change.substr(0, equals);
  const bool only_ab = name.starts_with("ab-");
  const bool only_ba = name.starts_with("ba-");
  if (only_ab || only_ba) name.remove_prefix(3);
  for (const Setting& setting : kSettings) {
    if (setting.name != name) continue;
    if (!only_ba) TUSK_TRY(setting.apply(parameters.ab, value));
    if (!only_ab) TUSK_TRY(setting.apply(parameters.ba, value));
    return {};
  }
  return fail(ErrorCode::kBadConfig, "no setting is called \"" + std::string(name) + "\"");
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

Result<PathParameters> with_changes(PathParameters parameters, std::string_view changes) {
  while (!changes.empty()) {
    const std::size_t comma = changes.find(',');
    TUSK_TRY(apply_one(parameters, changes.substr(0, comma)));
    changes.remove_prefix(comma == std::string_view::npos ? changes.size() : comma + 1);
  }
  for (const LinkParameters* link : {&parameters.ab, &parameters.ba}) {
    if (link->reorder_min > link->reorder_max) {
      return fail(ErrorCode::kBadConfig, "reorder-min is above reorder-max");
    }
  }
  return parameters;
}

}  // namespace tusk::wan
