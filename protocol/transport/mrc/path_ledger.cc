// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/mrc/path_ledger.h"

#include <algorithm>
#include <cassert>

#include "protocol/transport/receive_window.h"

namespace hostnic::mrc {
namespace {
// After so many arrivals a path is believed to keep its order better than was thought.
constexpr uint32_t kQuietArrivals = 1024;
}  // namespace

void PathLedger::reset(uint32_t window) {
  assert(window != 0 && window <= kWindowLimit && (window & (window - 1)) == 0);
  slots_.assign(window, Slot{});
  lines_ = {};
  touched_ = {};
  mask_ = window - 1;
  overtakers_ = 1;
  quiet_ = 0;
}

void PathLedger::note_sent(Psn psn, uint32_t path, bool again, TimeNs now_ns) {
  assert(path < kMostPaths);
  const uint16_t index = index_of(psn);
  Slot& slot = slots_[index];
  leave_line(slot);
  Line& line = lines_[path];
  slot = {.sent_ns = now_ns,
          .psn = psn.value(),
          .number = ++line.sent,
          .before = line.last,
          .path = static_cast<uint8_t>(path),
          .waits = true,
          .again = again};
  (line.last == kEnd ? line.first : slots_[line.last].behind) = index;
  line.last = index;
}

uint32_t PathLedger::note_come(Psn psn, uint64_t shortest_ns, TimeNs now_ns) {
  Slot& slot = slots_[index_of(psn)];
  if (slot.psn != psn.value() || !slot.waits) return kNoPath;
  leave_line(slot);
  if (overtakers_ > 1 && ++quiet_ >= kQuietArrivals) {
    overtakers_ /= 2;
    quiet_ = 0;
  }
  if (slot.again && now_ns - slot.sent_ns < shortest_ns) return kNoPath;
  Line& line = lines_[slot.path];
  line.score -= std::min<uint16_t>(line.score, kArrivalScore);
  if (static_cast<int32_t>(slot.number - line.newest_come) > 0) line.newest_come = slot.number;
  touched_[slot.path / 64] |= uint64_t{1} << slot.path % 64;
  return slot.path;
}

uint32_t PathLedger::give_up(Psn psn) {
  Slot& slot = slots_[index_of(psn)];
  if (slot.psn != psn.value() || !slot.waits) return kNoPath;
  leave_line(slot);
  Line& line = lines_[slot.path];
  line.score = std::min<uint16_t>(line.score + kLossScore, kBadScore);
  return slot.path;
}

void PathLedger::forget(Psn psn) {
  Slot& slot = slots_[index_of(psn)];
  if (slot.psn == psn.value()) leave_line(slot);
}

void PathLedger::note_spurious() {
  quiet_ = 0;
  overtakers_ = std::min(overtakers_ * 2, kMostOvertakers);
}

void PathLedger::leave_line(Slot& slot) {
  if (!slot.waits) return;
  slot.waits = false;
  Line& line = lines_[slot.path];
  (slot.before == kEnd ? line.first : slots_[slot.before].behind) = slot.behind;
  (slot.behind == kEnd ? line.last : slots_[slot.behind].before) = slot.before;
}

}  // namespace hostnic::mrc
