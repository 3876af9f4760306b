// SPDX-License-Identifier: BSD-3-Clause
// What a user may ask a network to do to packets, and the text that says it.
//
//   spec      = [ "rx" | "tx" ] ( "none" | rule { ";" rule } [ ";" ] )
//   rule      = "drop" which
//             | "duplicate" which
//             | "corrupt" which
//             | "mark" which                                      -- congestion experienced
//             | "reorder" which ( "distance" N [ "flush" TIME ] | "delay" TIME [ jitter ] )
//             | "delay" TIME [ jitter ] [ which ]
//             | "rate" RATE [ "queue" PACKETS ] [ "ecn" PACKETS ] [ selectors ]
//             | "blackhole" [ selectors ]                       -- also black-hole; drop all
//   which     = [ trigger ] [ selectors ]                       -- at least one of them
//   trigger   = PERCENT | "all"
//             | "burst" "p" PERCENT "r" PERCENT [ "bad" PERCENT ] [ "good" PERCENT ]
//             | ( "nth" | "every" | "first" ) N [ "per-qp" ]
//   selectors = { "kind" KIND { "," KIND } | "peer" IPV4 | "qpn" N | "path" N | "plane" N
//               | "source-port" N | "last-packet"
//             | "first-attempt" | "once" | "from" TIME [ "to" TIME ] | "to" TIME }
//   jitter    = "jitter" TIME [ "uniform" | "normal" | "exponential" ]
//   KIND      = any | data | write | send | read-request | read-response | atomic
//             | atomic-request | atomic-response | ack | other
//   TIME      = number and ns, us, ms or s       RATE = number and bit, Kbit, Mbit, Gbit or Tbit
//
// After a rule's first words its clauses may come in any order, each at most once. Spaces between a
// number and its unit are free.
//
// Meaning. Rules apply in the order written, and each sees the packets that those before it left:
// `nth` does not count what an earlier rule dropped. Everything about a packet is decided when it
// arrives. Times add up.
//  - burst: Gilbert-Elliott. Before each packet a good state turns bad with probability p, a bad
//  one
//    good with r; a packet is hit with probability `bad` (100%) in the bad state, `good` (0%) in
//    the good one.
//  - nth N hits one packet, every N each Nth, first N the first N; per-qp counts for each pair of
//    peer and destination QP by itself.
//  - once: a packet that this rule has hit passes when it comes again (same peer, QP, PSN).
//  - path N: packets that take that path of the switch (switch_spec.h), from 1; without one there
//    are none.
//  - last-packet: the packets that end a message of several or one.
//  - from, to: time since the stage saw its first packet.
//  - reorder distance N: the packet waits until N later ones that the rule's selectors match have
//    overtaken it, or until none came for the flush time.
//  - reorder delay: the packet alone is late, others overtake it.
//  - delay: never reorders what its selectors match; a late packet holds up those behind it.
//  - jitter: +-TIME uniform (default), standard deviation TIME, or exponential of mean TIME on top.
//  - rate: a link of that speed with a queue of so many packets; what finds it full is dropped.
//    ecn: what finds at least so many packets there is marked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/impair/packet_info.h"
#include "protocol/types.h"

namespace hostnic::impair {

inline constexpr size_t kMaxRules = 16;
inline constexpr uint32_t kMaxDistance = 4096;
inline constexpr uint32_t kMaxPaths = 64;   // of a switch
inline constexpr uint32_t kMaxPlanes = 16;  // of a switch
inline constexpr uint32_t kMaxRateQueue = 65536;
inline constexpr uint64_t kMaxDurationNs = 24ull * 3600 * 1'000'000'000;  // a day
inline constexpr uint64_t kMinRateBitsPerSecond = 1'000;
inline constexpr uint64_t kMaxRateBitsPerSecond = 10'000'000'000'000;
inline constexpr uint64_t kDefaultFlushNs = 200'000;
inline constexpr uint32_t kDefaultRateQueue = 256;
inline constexpr TimeNs kForever = std::numeric_limits<TimeNs>::max();

enum class Direction : uint8_t { kRx, kTx };
enum class Action : uint8_t { kDrop, kDuplicate, kReorder, kCorrupt, kMark, kDelay, kRate };
enum class TriggerKind : uint8_t { kAlways, kUniform, kBurst, kNth, kEvery, kFirst };
enum class Distribution : uint8_t { kUniform, kNormal, kExponential };

// Says which of the selected packets are hit. Probabilities are in parts per billion.
struct Trigger {
  TriggerKind kind = TriggerKind::kAlways;
  uint32_t probability_ppb = 0;                            // kUniform
  uint32_t to_bad_ppb = 0, to_good_ppb = 0;                // kBurst: p and r
  uint32_t hit_bad_ppb = 1'000'000'000, hit_good_ppb = 0;  // kBurst
  uint64_t count = 0;                                      // kNth, kEvery, kFirst; at least 1
  bool per_qp = false;                                     // kNth, kEvery, kFirst
  bool operator==(const Trigger&) const = default;
};

struct Selectors {
  KindMask kinds = kAnyKind;
  std::optional<Ipv4Address> peer;
  std::optional<Qpn> qpn;
  std::optional<uint32_t> path, plane;  // of the switch, from 1
  std::optional<uint16_t> source_port;  // of UDP
  bool last_packet = false;
  bool first_attempt = false;
  bool once = false;
  TimeNs from_ns = 0, to_ns = kForever;  // [from, to), since the first packet
  bool operator==(const Selectors&) const = default;
  // Whether any selector is about the packet; times are not.
  bool looks_at_packets() const {
    return kinds != kAnyKind || peer || qpn || path || plane || source_port || last_packet ||
           first_attempt || once;
  }
};

struct DelayModel {
  uint64_t base_ns = 0;
  uint64_t jitter_ns = 0;
  Distribution distribution = Distribution::kUniform;
  bool operator==(const DelayModel&) const = default;
};

struct Rule {
  Action action = Action::kDrop;
  Trigger trigger;
  Selectors selectors;
  DelayModel delay;                            // kDelay; kReorder when distance is 0
  uint32_t distance = 0;                       // kReorder, packets
  uint64_t flush_ns = kDefaultFlushNs;         // kReorder with a distance
  uint64_t rate_bits_per_second = 0;           // kRate
  uint32_t queue_packets = kDefaultRateQueue;  // kRate
  uint32_t marks_from_packets = 0;             // kRate: in the queue; 0: nothing is marked
  bool operator==(const Rule&) const = default;
  // Whether the rule is "drop P%", whatever the packet and the time.
  bool is_plain_loss() const {
    return action == Action::kDrop && trigger.kind == TriggerKind::kUniform &&
           selectors == Selectors{};
  }
};

struct Spec {
  std::optional<Direction> direction;  // when the text began with rx or tx
  std::vector<Rule> rules;             // if there are none packets pass untouched
  bool operator==(const Spec&) const = default;
};

// The place where a text stops making sense. `column` counts bytes from 1.
struct SpecError {
  size_t column = 0;
  std::string found;     // as written, or "the end"
  std::string expected;  // what would have been right there
  // The message for people: "column 6: found "1x", expected a percentage such as 1%"
  std::string message() const;
};

// Parses a text; may be called by any thread. An empty text means no impairment. It throws nothing
// except for lack of memory.
Expected<Spec, SpecError> parse_spec(std::string_view text);

// The canonical text of a spec, one line; parse_spec of it gives an equal Spec.
std::string to_string(const Spec& spec);
std::string to_string(const Rule& rule);

// A few lines for --help and for error messages.
std::string_view spec_help();

}  // namespace hostnic::impair
