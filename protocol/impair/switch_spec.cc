// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/switch_spec.h"

#include <algorithm>
#include <array>
#include <bit>

#include "protocol/impair/random.h"
#include "protocol/impair/spec_reader.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::impair {

namespace {

constexpr const char* kPlanesExpected = "planes 1, 2, 4, 8 or 16";
constexpr const char* kQueueExpected = "a number of packets from 1 to 4096";

// Parses a switch, as Parser (spec_parse.cc) does impairments.
class SwitchParser : private SpecReader {
 public:
  explicit SwitchParser(std::string_view text) : SpecReader(text) {}

  Expected<SwitchSpec, SpecError> parse() {
    SwitchSpec spec;
    if (!parse_into(spec)) return Unexpected(take_error());
    return spec;
  }

 private:
  // What may be said once; the order is that of kWords.
  enum Clause { kQueue, kEcn, kPaths, kPlanes, kPathRate, kPathQueue, kTrim, kClauses };
  static constexpr std::array<std::string_view, kClauses> kWords{
      "queue", "ecn", "paths", "planes", "path-rate", "path-queue", "trim"};

  bool parse_into(SwitchSpec& spec);
  bool parse_clause(SwitchSpec& spec);
  bool check(SwitchSpec& spec);
  bool has(Clause clause) const { return (seen_ & (1u << clause)) != 0; }
  bool rate(uint64_t& bits_per_second);

  unsigned seen_ = 0;
};

bool SwitchParser::parse_into(SwitchSpec& spec) {
  if (at_end()) return true;
  if (peek().is("none")) {
    take();
    return at_end() || fail_here("the end after none");
  }
  if (!peek().is("rate")) return fail_here("rate, as in rate 10Gbit queue 128, or none");
  take();
  if (!rate(spec.rate_bits_per_second)) return false;
  while (!at_end()) {
    if (!parse_clause(spec)) return false;
  }
  return check(spec);
}

bool SwitchParser::parse_clause(SwitchSpec& spec) {
  unsigned clause = 0;
  while (clause < kClauses && !peek().is(kWords[clause])) ++clause;
  if (clause == kClauses)
    return fail_here("queue, ecn, paths, planes, path-rate, path-queue, trim, or the end");
  if (has(static_cast<Clause>(clause)))
    return fail_here(std::string(kWords[clause]) + " only once");
  seen_ |= 1u << clause;
  take();
  switch (static_cast<Clause>(clause)) {
    case kQueue:
      return integer(spec.queue_packets, 1, kMaxSwitchQueue, kQueueExpected);
    case kEcn:
      return integer(spec.marks_from_packets, 1, kMaxSwitchQueue, kQueueExpected);
    case kPaths:
      return integer(spec.plan.paths, 1, kMaxPaths, "a number of paths from 1 to 64");
    case kPlanes:
      return integer(spec.plan.planes, 1, kMaxPlanes, kPlanesExpected);
    case kPathRate:
      return rate(spec.path_bits_per_second);
    case kPathQueue:
      return integer(spec.path_queue_packets, 1, kMaxSwitchQueue, kQueueExpected);
    default:
      return spec.trims = true;
  }
}

// Checks what only the whole shows, and fills in what was not said.
bool SwitchParser::check(SwitchSpec& spec) {
  PathPlan& plan = spec.plan;
  if (has(kPlanes) && !std::has_single_bit(plan.planes)) return fail_here(kPlanesExpected);
  if (has(kPlanes) && !has(kPaths)) plan.paths = plan.planes;
  if (plan.paths % plan.planes != 0)
    return fail_here("paths that planes " + std::to_string(plan.planes) + " divides");
  if (plan.paths == 0 && (has(kPathRate) || has(kPathQueue)))
    return fail_here("paths N, which path-rate and path-queue are about");
  if (plan.paths != 0 && !has(kPathRate))
    spec.path_bits_per_second =
        std::max(spec.rate_bits_per_second / plan.planes, kMinRateBitsPerSecond);
  if (plan.paths != 0 && !has(kPathQueue)) spec.path_queue_packets = spec.queue_packets;
  const uint32_t shortest =
      plan.paths == 0 ? spec.queue_packets : std::min(spec.queue_packets, spec.path_queue_packets);
  if (spec.marks_from_packets >= shortest)
    return fail_here("ecn below the queue's " + std::to_string(shortest) + " packets");
  return true;
}

bool SwitchParser::rate(uint64_t& bits_per_second) {
  const size_t offset = peek().offset;
  const auto value = quantity(kRateUnits);
  if (!value || *value < kMinRateBitsPerSecond || *value > kMaxRateBitsPerSecond)
    return fail(offset, "a rate such as 10Gbit, from 1Kbit to 10Tbit");
  bits_per_second = *value;
  return true;
}

}  // namespace

Expected<SwitchSpec, SpecError> parse_switch(std::string_view text) {
  return SwitchParser(text).parse();
}

std::string to_string(const SwitchSpec& spec) {
  if (!spec.is_there()) return "none";
  std::string text = "rate " + with_unit(spec.rate_bits_per_second, kRateUnits) + " queue " +
                     std::to_string(spec.queue_packets);
  if (spec.marks_from_packets != 0) text += " ecn " + std::to_string(spec.marks_from_packets);
  const PathPlan& plan = spec.plan;
  if (plan.paths != 0) {
    text += " paths " + std::to_string(plan.paths);
    if (plan.planes != 1) text += " planes " + std::to_string(plan.planes);
    if (spec.path_bits_per_second != spec.rate_bits_per_second || plan.planes != 1)
      text += " path-rate " + with_unit(spec.path_bits_per_second, kRateUnits);
    if (spec.path_queue_packets != spec.queue_packets)
      text += " path-queue " + std::to_string(spec.path_queue_packets);
  }
  return text + (spec.trims ? " trim" : "");
}

uint32_t path_of(Ipv4Address source, Ipv4Address destination, uint16_t source_port,
                 const PathPlan& plan) {
  if (plan.paths == 0) return 0;
  // A path is the same in both directions: an answer that leaves by the port of what it answers
  // takes it back, as where paths are planes.
  const uint32_t low = std::min(raw(source), raw(destination));
  const uint32_t high = std::max(raw(source), raw(destination));
  const uint64_t addresses = uint64_t{low} << 32 | high;
  const uint64_t hash = Random::mix(Random::mix(addresses) ^ source_port);
  // The upper 32 bits, scaled: no division.
  const uint32_t in_plane = plan.planes == 1 ? plan.paths : plan.paths_of_plane();
  return 1 + (plan.plane_of(source_port) - 1) * in_plane +
         static_cast<uint32_t>((hash >> 32) * in_plane >> 32);
}

std::string why_no_path(const Spec& rules, const SwitchSpec& network_switch) {
  const auto why = [](const std::optional<uint32_t>& wanted, const char* what, uint32_t there) {
    if (!wanted || *wanted <= there) return std::string();
    const std::string it = what + (" " + std::to_string(*wanted)) + ": ";
    if (there == 0)
      return it + "there is no switch with " + what + "s (start with --switch 'rate 10Gbit " +
             what + "s 4')";
    return it + "the switch has " + what + "s 1 to " + std::to_string(there);
  };
  const PathPlan& plan = network_switch.plan;
  for (const Rule& rule : rules.rules) {
    if (std::string text = why(rule.selectors.path, "path", plan.paths); !text.empty()) return text;
    const uint32_t planes = plan.planes > 1 ? plan.planes : 0;
    if (std::string text = why(rule.selectors.plane, "plane", planes); !text.empty()) return text;
  }
  return {};
}

}  // namespace hostnic::impair
