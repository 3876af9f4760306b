// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/path_table.h"

#include <cassert>

namespace hostnic {
namespace {

constexpr uint32_t kWhole = 1 << 16;         // a loss of 1
constexpr uint32_t kLossShift = 7;           // the last 128 packets count for most of it
constexpr uint32_t kMostLoss = kWhole / 8;   // one that loses more is avoided
constexpr uint32_t kForgiven = kWhole / 64;  // one that loses less has no past
constexpr TimeNs kAtOnce = 1;

// The first of `these` behind a path, around; `these` is not 0.
uint8_t first_behind(uint8_t path, uint32_t these) {
  const uint32_t behind = these & ~((2u << path) - 1);
  return static_cast<uint8_t>(std::countr_zero(behind != 0 ? behind : these));
}

}  // namespace

void PathTable::reset(uint32_t count) {
  assert(count != 0 && count <= kMostPaths);
  *this = PathTable{};
  count_ = count;
  good_ = static_cast<uint16_t>((1u << count) - 1);
  loss_shift_ = kLossShift + static_cast<uint32_t>(std::bit_width(count) - 1);
}

// The path of `these`, which are not 0, with the fewest packets on their way; of equals the first
// behind another, around. One that is congested, slow or black delivers late what it has, and so
// gets less.
uint8_t PathTable::emptiest(uint8_t behind, uint32_t these) const {
  uint8_t best = first_behind(behind, these), path = best;
  for (uint32_t rest = these & ~(1u << best); rest != 0; rest &= ~(1u << path)) {
    path = first_behind(path, rest);
    if (paths_[path].out < paths_[best].out) best = path;
  }
  return best;
}

uint8_t PathTable::other_than(uint8_t last) {
  const uint32_t others = good_ & ~(1u << last);
  again_at_ = emptiest(again_at_, others != 0 ? others : uint32_t{good_});
  return again_at_;
}

void PathTable::note_arrived(uint32_t number) {
  Path& path = paths_[number];
  path.loss -= path.loss >> kLossShift;
  loss_ -= loss_ >> loss_shift_;
  path.lost_in_row = 0;
  if (is_good(number)) {
    if (path.loss < kForgiven) path.probe_shift = 0;
    return;
  }
  if (!path.is_probed) return;
  path.is_probed = false;
  path.next_probe_ns = kAtOnce;
  if (++path.arrived_in_trial == kTrialPackets) come_back(number);
}

void PathTable::note_lost(uint32_t number, bool in_silence) {
  ++paths_[number].lost;
  ++changes_;
  miss(number, in_silence);
}

void PathTable::suspect(uint32_t number) {
  if (number == at_) left_ = 0;
  miss(number, /*in_silence=*/true);
}

void PathTable::miss(uint32_t number, bool in_silence) {
  Path& path = paths_[number];
  path.loss += (kWhole - path.loss) >> kLossShift;
  loss_ += (kWhole - loss_) >> loss_shift_;
  if (in_silence) ++path.lost_in_row;
  if (!is_good(number)) return;  // it went before the path was avoided
  const bool is_silent = path.lost_in_row >= kSilentPackets && is_another_heard(number);
  if (is_silent || (path.loss > kMostLoss && is_worse_than_others(number))) avoid(number);
}

// Whether a good path exists whose last packets have arrived.
bool PathTable::is_another_heard(uint32_t number) const {
  for (uint32_t rest = good_ & ~(1u << number); rest != 0; rest &= rest - 1)
    if (paths_[static_cast<uint32_t>(std::countr_zero(rest))].lost_in_row == 0) return true;
  return false;
}

// A loss that hits all paths alike is none of theirs.
bool PathTable::is_worse_than_others(uint32_t number) const {
  return good_count() > 1 && paths_[number].loss > loss_ + loss_ / 2;
}

void PathTable::avoid(uint32_t number) {
  Path& path = paths_[number];
  good_ = static_cast<uint16_t>(good_ & ~(1u << number));
  path.is_probed = false;
  path.arrived_in_trial = 0;
  path.next_probe_ns = 0;
  ++changes_;
}

void PathTable::come_back(uint32_t number) {
  Path& path = paths_[number];
  good_ = static_cast<uint16_t>(good_ | 1u << number);
  path.loss = kMostLoss / 2;
  path.probe_shift = std::min(path.probe_shift + 1, kMostProbeShift);  // until it does well
  path.shortest_ns = UINT64_MAX;                                       // the way may be another now
  ++changes_;
}

uint32_t PathTable::find_due_probe(TimeNs now_ns) {
  const uint32_t all = (1u << count_) - 1;
  for (uint32_t rest = all & ~uint32_t{good_}; rest != 0; rest &= rest - 1) {
    const auto number = static_cast<uint32_t>(std::countr_zero(rest));
    Path& path = paths_[number];
    if (path.next_probe_ns == 0) path.next_probe_ns = now_ns + (kProbeNs << path.probe_shift);
    if (now_ns < path.next_probe_ns) continue;
    if (path.is_probed) {
      path.is_probed = false;
      path.arrived_in_trial = 0;
      path.probe_shift = std::min(path.probe_shift + 1, kMostProbeShift);
    }
    return number;
  }
  return kNone;
}

void PathTable::note_probe(uint32_t number, Psn psn, uint8_t attempt, TimeNs now_ns) {
  Path& path = paths_[number];
  path.is_probed = true;
  path.probe_psn = psn;
  path.probe_attempt = attempt;
  path.probe_sent_ns = now_ns;
  path.next_probe_ns = now_ns + (kProbeNs << path.probe_shift);
}

uint32_t PathTable::find_probe(Psn psn, uint8_t attempt, TimeNs now_ns) {
  for (uint32_t number = 0; number < count_; ++number) {
    const Path& path = paths_[number];
    if (!path.is_probed || path.probe_psn != psn || path.probe_attempt != attempt) continue;
    note_rtt(number, now_ns - std::min(now_ns, path.probe_sent_ns));
    note_arrived(number);
    return number;
  }
  return kNone;
}

uint64_t PathTable::note_rtt(uint32_t number, uint64_t rtt_ns) {
  Path& path = paths_[number];
  path.rtt.sample(rtt_ns);
  path.shortest_ns = std::min(path.shortest_ns, rtt_ns);
  shortest_ns_ = UINT64_MAX;
  longest_ns_ = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    if (!paths_[i].rtt.valid()) continue;
    shortest_ns_ = std::min(shortest_ns_, paths_[i].rtt.srtt_ns());
    longest_ns_ = std::max(longest_ns_, paths_[i].rtt.srtt_ns());
  }
  ++changes_;
  return rtt_ns - path.shortest_ns;
}

}  // namespace hostnic
