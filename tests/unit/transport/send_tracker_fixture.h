// SPDX-License-Identifier: BSD-3-Clause
// A tracker, and what is asked of it in several places.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "protocol/transport/send_tracker.h"

namespace hostnic {

inline constexpr uint64_t kRtt = 100'000;
inline constexpr uint64_t kReorderWindow = kRtt + kRtt / 4;

inline PsnBits bits(std::initializer_list<Psn> psns) {
  PsnBits result;
  for (const Psn psn : psns) result.set(psn);
  return result;
}
inline PsnBits bits(Psn from, uint32_t count) {
  PsnBits result;
  for (uint32_t i = 0; i < count; ++i) result.set(from + i);
  return result;
}

// All PSNs that are lost, as runs say.
inline std::vector<uint32_t> lost(const SendTracker& tracker) {
  std::vector<uint32_t> psns;
  Psn from = tracker.una(), first;
  uint32_t count = 0;
  while (tracker.next_lost_run(from, 16, first, count)) {
    EXPECT_LE(count, 16u);
    for (uint32_t i = 0; i < count; ++i) psns.push_back((first + i).value());
    from = first + count;
  }
  EXPECT_EQ(psns.size(), tracker.lost_count());
  return psns;
}
using Psns = std::vector<uint32_t>;

class Tracker : public testing::TestWithParam<uint32_t> {
 protected:
  // Every directed test runs in the middle of the number space and over its wrap.
  Psn at(uint32_t offset) const { return Psn(GetParam()) + offset; }
  void start(uint32_t sent, uint32_t window = 1024, TimeNs now_ns = 0) {
    tracker_.reset(at(0), window);
    tracker_.on_first_send(sent, now_ns);
  }
  SendTracker tracker_;
};

}  // namespace hostnic
