// SPDX-License-Identifier: BSD-3-Clause
// By which path each packet of a PSN space went (docs/transport.md rule 37), and what that says
// about the missing ones: packets of one path keep their order for the most part, those of
// different paths don't, since one path is slower than the other. So what has overtaken a packet is
// counted path by path. Beside that only time tells: packets leave the NIC in order, so from when
// the first one of any path has overtaken it, a packet may take as much longer as its path does.
//
// No clock: times come in. The driver half's lock covers it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "protocol/psn.h"
#include "protocol/repeat_cause.h"
#include "protocol/transport/path_table.h"
#include "protocol/types.h"

namespace hostnic {

class PathOrder {
 public:
  // For `window` PSNs, a power of two. `table` hears what arrives and what is lost. This allocates;
  // not for the hot path.
  PathOrder(uint32_t window, PathTable& table) : table_(&table), sent_(window), mask_(window - 1) {}

  uint8_t path(Psn psn) const { return at(psn).path; }

  // A packet leaves by the path. `in_order`: it overtakes nothing that waits in the NIC.
  void note_sent(Psn psn, uint8_t path, bool in_order) {
    settle(psn);
    Line& line = lines_[path];
    at(psn) = {.number = in_order ? line.next++ : line.next,
               .path = path,
               .in_order = in_order,
               .is_out = true};
    table_->note_sent(path);
  }
  // Nothing more is expected of the last transmission of a PSN: it has arrived, it is lost, or it
  // is forgotten. Says so once.
  void settle(Psn psn) {
    Sent& sent = at(psn);
    if (sent.is_out) table_->note_settled(sent.path);
    sent.is_out = false;
  }
  // The last transmission of a PSN has arrived.
  void note_arrived(Psn psn) {
    const Sent& sent = at(psn);
    table_->note_arrived(sent.path);
    Line& line = lines_[sent.path];
    if (sent.in_order && before(line.newest, sent.number)) line.newest = sent.number;
  }
  // The last transmission of a PSN counts as lost.
  void note_lost(Psn psn, RepeatCause cause) {
    settle(psn);
    if (cause != RepeatCause::gap) return;
    const Sent& sent = at(psn);
    table_->note_lost(sent.path, /*in_silence=*/!before(sent.number, lines_[sent.path].newest));
  }
  // Says that all of a report has been taken, at this time, after which the newest transmission
  // that has arrived, whatever its path, is `sequence`.
  void end_report(uint32_t sequence, TimeNs now_ns);

  // Whether so many packets that went later, by the same path, have arrived.
  bool overtaken_by(Psn psn, uint32_t count) const {
    const Sent& sent = at(psn);
    return before(sent.number + (count - 1), lines_[sent.path].newest);
  }
  // Until when a packet may still come, whose transmission `sequence` something has overtaken:
  // as much longer as its path takes, and some quarters of a round trip more.
  TimeNs may_come_until_ns(Psn psn, uint32_t sequence, uint64_t srtt_ns, uint32_t quarters) const;

 private:
  // A packet's place among those of its path. Numbers are serial.
  struct Sent {
    uint32_t number = 0;
    uint8_t path = 0;
    bool in_order = true;
    bool is_out = false;
  };
  // The packets that have gone by one path.
  struct Line {
    uint32_t next = 1, newest = 0;  // newest: that has arrived
  };
  // The newest transmission that had arrived, and since when.
  struct Moment {
    uint32_t sequence = 0;
    TimeNs at_ns = 0;
  };
  static constexpr uint32_t kMoments = 64;
  // Moments are so far from each other that all of them together are longer than any wait.
  static constexpr uint32_t kSpacingShift = 3;

  static bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(b - a) > 0; }
  TimeNs overtaken_ns(uint32_t sequence) const;
  Sent& at(Psn psn) { return sent_[psn.value() & mask_]; }
  const Sent& at(Psn psn) const { return sent_[psn.value() & mask_]; }
  const Moment& moment(uint32_t index) const { return moments_[index % kMoments]; }

  PathTable* table_;
  std::vector<Sent> sent_;
  uint32_t mask_;
  std::array<Line, kMostPaths> lines_{};
  std::array<Moment, kMoments> moments_{};  // a ring, the oldest first
  uint32_t first_moment_ = 0, end_moment_ = 0;
};

}  // namespace hostnic
