// SPDX-License-Identifier: BSD-3-Clause
// The fault rules of a run, in memory that `hostnic fault` and its like share with the programs
// that they start: the rules, and how often each has met what it is about, and has fired. Rules may
// be added and removed while programs run (`fault add` at the prompt): a place is used once.
//
// Programs write the counts only, any thread of any process. They may write anything: whoever
// prints the counts believes nothing else.
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/faults/fault_spec.h"

namespace hostnic {

inline constexpr uint32_t kFaultMagic = 0x544c4648;  // "HFLT"
inline constexpr uint32_t kFaultVersion = 2;
// The variable that names the file of the board to programs.
inline constexpr const char* kFaultBoardVariable = "HOSTNIC_FAULT_BOARD";

struct FaultBoardRule {
  std::atomic<uint64_t> met{0};      // that it could have hit, whatever its count or percentage
  std::atomic<uint64_t> fired{0};    // that it has hit
  std::atomic<uint32_t> removed{0};  // 1: it is not in force any more
  char text[faults::kMaxFaultBytes + 1] = {};  // canonical; ends in 0
};

struct FaultBoard {
  uint32_t magic = kFaultMagic;
  uint32_t version = kFaultVersion;
  uint64_t seed = 1;
  std::atomic<uint32_t> rules{0};      // that are there: what is before does not change
  std::atomic<uint32_t> processes{0};  // that made calls with the rules in force
  FaultBoardRule rule[faults::kMaxFaults];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hostnic
