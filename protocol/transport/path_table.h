// SPDX-License-Identifier: BSD-3-Clause
// The paths of a native queue pair that sprays its packets (docs/transport.md rule 37): what the
// requester knows of each, which one the next packets take, which ones are avoided, and how an
// avoided one comes back. A path is a UDP source port of the connection: a number below kMostPaths,
// which is in the port's lower four bits (wire/flow_tag.h).
//
// Packets go in runs by one path, then by another, so that most of them stay in order. A path that
// loses too many, or all for a while, is avoided while others do better: then nothing goes by it
// but a probe now and then. No clock: times come in. Nothing is allocated, and nothing divided. The
// driver half's lock covers it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "protocol/psn.h"
#include "protocol/transport/rtt_estimator.h"
#include "protocol/types.h"

namespace hostnic {

class PathTable {
 public:
  // Packets that go by one path before another has its turn.
  static constexpr uint32_t kRunPackets = 16;
  // A path is silent when so many packets in a row are lost.
  static constexpr uint32_t kSilentPackets = 8;
  // Probes that have to arrive, one after the other, until a path is good again.
  static constexpr uint32_t kTrialPackets = 4;
  // The time from avoiding a path to its first probe; twice as long behind each that is lost.
  static constexpr uint64_t kProbeNs = 10'000'000;
  static constexpr uint32_t kMostProbeShift = 6;
  static constexpr uint32_t kNone = kMostPaths;

  struct Choice {
    uint8_t path = 0;
    uint32_t most_packets = kRunPackets;
  };

  // Starts with `count` paths, 1 to kMostPaths, all of them good.
  void reset(uint32_t count);

  uint32_t count() const { return count_; }
  uint32_t good_count() const { return static_cast<uint32_t>(std::popcount(good_)); }
  bool is_good(uint32_t path) const { return (good_ >> path & 1) != 0; }
  // The paths that are not avoided, a bit each.
  uint16_t good() const { return good_; }
  uint32_t lost(uint32_t path) const { return paths_[path].lost; }
  const RttEstimator& rtt(uint32_t path) const { return paths_[path].rtt; }
  // The smoothed round trips of the fastest and the slowest path; 0: none is measured.
  uint64_t shortest_ns() const { return shortest_ns_; }
  uint64_t longest_ns() const { return longest_ns_; }
  // Changes with whatever people are told.
  uint32_t changes() const { return changes_; }

  // The path that the next packets take, and how many may; take() says how many have.
  Choice next() {
    if (left_ == 0 || !is_good(at_)) begin_run();
    return {at_, left_};
  }
  void take(uint32_t packets) { left_ -= std::min(packets, left_); }
  // A good path for what goes again: another than it went by last, if there is one; in turn.
  uint8_t other_than(uint8_t last);
  uint32_t out(uint32_t path) const { return paths_[path].out; }

  // The avoided path to which a probe is due; kNone: none. The sender of it says so, with a packet
  // that only the probe is; a probe that is not answered until the next is due is lost.
  uint32_t due_probe(TimeNs now_ns) {
    return good_count() == count_ ? kNone : find_due_probe(now_ns);
  }
  void note_probe(uint32_t path, Psn psn, uint8_t attempt, TimeNs now_ns);
  // An ACK echoes a packet. Returns the path of the probe that it is; kNone: it is no probe.
  uint32_t take_echo(Psn psn, uint8_t attempt, TimeNs now_ns) {
    return good_count() == count_ ? kNone : find_probe(psn, attempt, now_ns);
  }

  // A packet goes by the path; and nothing more is expected of it.
  void note_sent(uint32_t path) { ++paths_[path].out; }
  void note_settled(uint32_t path) { --paths_[path].out; }
  // A packet that went by the path has arrived.
  void note_arrived(uint32_t path);
  // A packet that went by the path is lost: others that were sent later have arrived.
  // `in_silence`: none of these came by the same path.
  void note_lost(uint32_t path, bool in_silence);
  // Nobody knows whether a packet that went by the path is lost, since nothing is heard at all. The
  // next ones take another.
  void suspect(uint32_t path);
  // Takes a sample of the path's round trip. Returns by how much it exceeds the path's shortest:
  // the time that packets wait in queues, whatever the path's length.
  uint64_t note_rtt(uint32_t path, uint64_t rtt_ns);

 private:
  struct Path {
    uint32_t loss = 0;  // what part is lost, of kWhole, smoothed
    uint32_t lost_in_row = 0;
    uint32_t lost = 0;
    uint32_t out = 0;  // packets that are on their way by it, or wait in the NIC
    uint64_t shortest_ns = UINT64_MAX;
    RttEstimator rtt;
    // The members from here on are those of a path that is avoided, or was.
    bool is_probed = false;  // a probe is on its way, this one:
    uint8_t probe_attempt = 0;
    Psn probe_psn;
    TimeNs probe_sent_ns = 0;
    TimeNs next_probe_ns = 0;  // 0: the time begins when somebody asks
    uint32_t arrived_in_trial = 0;
    uint32_t probe_shift = 0;
  };

  uint8_t emptiest(uint8_t behind, uint32_t these) const;
  void begin_run() {
    at_ = emptiest(at_, good_);
    left_ = kRunPackets;
  }
  void miss(uint32_t path, bool in_silence);
  bool is_worse_than_others(uint32_t path) const;
  bool is_another_heard(uint32_t path) const;
  void avoid(uint32_t path);
  void come_back(uint32_t path);
  uint32_t find_due_probe(TimeNs now_ns);
  uint32_t find_probe(Psn psn, uint8_t attempt, TimeNs now_ns);

  std::array<Path, kMostPaths> paths_{};
  uint32_t count_ = 1;
  uint16_t good_ = 1;
  uint8_t at_ = 0, again_at_ = 0;  // of new packets, and of those that go again
  uint32_t left_ = kRunPackets;    // of at_'s run
  uint32_t loss_ = 0;              // of all paths, as each one's
  uint32_t loss_shift_ = 0;
  uint64_t shortest_ns_ = 0, longest_ns_ = 0;
  uint32_t changes_ = 0;
};

}  // namespace hostnic
