// SPDX-License-Identifier: BSD-3-Clause
// What left by which path, and what its arrival says of the paths (docs/mrc.md, "Paths that lose").
// A path keeps the order of its packets, so that what a path has brought says that what left before
// by the same path is lost: paths of different lengths don't disturb that. Where packets do change
// places on a path, which repetitions without need show, more of them have to come first.
//
// Each path has a score: a loss adds to it, an arrival takes away from it. One that loses a fifth
// of its packets or more comes to the limit sooner or later, one that loses all with the third
// packet, one that loses one in a hundred hardly ever. No clock: times come in. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "protocol/psn.h"
#include "protocol/types.h"

namespace hostnic::mrc {

class PathLedger {
 public:
  static constexpr uint32_t kMostPaths = 256;
  static constexpr uint32_t kNoPath = UINT32_MAX;
  // What a loss adds and an arrival takes away, and the score of a path that is not to be used.
  static constexpr uint32_t kLossScore = 4, kArrivalScore = 1, kBadScore = 3 * kLossScore;
  // How many packets of a path have to overtake one before that is lost, at most.
  static constexpr uint32_t kMostOvertakers = 4;

  // Starts anew. `window` is the most PSNs that are out, a power of two up to kWindowLimit. This
  // allocates; not for the hot path.
  void reset(uint32_t window);

  // The path by which the PSN left last, and when; PSNs of a window ago and older are forgotten.
  uint32_t path_of(Psn psn) const { return slot(psn).path; }
  TimeNs sent_ns(Psn psn) const { return slot(psn).sent_ns; }
  // Whether nobody knows yet what has become of the PSN's last transmission.
  bool is_waited_for(Psn psn) const { return slot(psn).waits && slot(psn).psn == psn.value(); }
  uint32_t score(uint32_t path) const { return lines_[path].score; }
  uint32_t overtakers() const { return overtakers_; }

  // The PSN leaves by a path, for the first time or again.
  void note_sent(Psn psn, uint32_t path, bool again, TimeNs now_ns);
  // The PSN is known to have come. Of a repetition that came sooner than `shortest_ns` after it
  // left it is the transmission before that has: that says nothing of this one's path. Returns the
  // path that has brought it; kNoPath: nobody knows which.
  uint32_t note_come(Psn psn, uint64_t shortest_ns, TimeNs now_ns);
  // The PSN's last transmission is known to be lost, or late, by others than find_lost(). Returns
  // the path; kNoPath: that was known.
  uint32_t give_up(Psn psn);
  // The PSN was not taken, though it came: that is no loss, and nothing is waited for.
  void forget(Psn psn);
  // A repetition of what was found lost here was not needed.
  void note_spurious();
  // Begins a path's score anew.
  void clear_score(uint32_t path) { lines_[path].score = 0; }

  // Calls lost(psn, path) for each PSN that note_comes() since the last call show to be lost.
  template <class Lost>
  void find_lost(Lost lost) {
    for (uint32_t word = 0; word < touched_.size(); ++word) {
      for (; touched_[word] != 0; touched_[word] &= touched_[word] - 1) {
        const uint32_t path = word * 64 + static_cast<uint32_t>(__builtin_ctzll(touched_[word]));
        const Line& line = lines_[path];
        while (line.first != kEnd &&
               static_cast<int32_t>(line.newest_come - slots_[line.first].number) >=
                   static_cast<int32_t>(overtakers_)) {
          const Psn psn(slots_[line.first].psn);
          give_up(psn);
          lost(psn, path);
        }
      }
    }
  }

 private:
  static constexpr uint16_t kEnd = UINT16_MAX;
  // The last transmission of a PSN. Those that are waited for are in their path's line, oldest
  // first.
  struct Slot {
    TimeNs sent_ns = 0;
    uint32_t psn = 0;
    uint32_t number = 0;  // among its path's, from 1 on
    uint16_t before = kEnd, behind = kEnd;
    uint8_t path = 0;
    bool waits = false, again = false;
  };
  struct Line {
    uint16_t first = kEnd, last = kEnd;
    uint16_t score = 0;
    uint32_t sent = 0;         // the number of the newest
    uint32_t newest_come = 0;  // the highest number that has come
  };

  uint16_t index_of(Psn psn) const { return static_cast<uint16_t>(psn.value() & mask_); }
  const Slot& slot(Psn psn) const { return slots_[index_of(psn)]; }
  void leave_line(Slot& slot);

  std::vector<Slot> slots_{1};
  std::array<Line, kMostPaths> lines_{};
  std::array<uint64_t, kMostPaths / 64> touched_{};  // paths that have brought something
  uint32_t mask_ = 0;
  uint32_t overtakers_ = 1;
  uint32_t quiet_ = 0;  // arrivals since the last repetition without need
};

}  // namespace hostnic::mrc
