// SPDX-License-Identifier: BSD-3-Clause
// What the rdma_cm device of programs says to hostnicd. After kOpenCm the control connection *is*
// the program's file: its descriptors are dup()ed, inherited and closed with it.
//
//   program to hostnicd: CmCommand, then the command as the program wrote it
//     (rdma/rdma_user_cm.h); with it the descriptor on which the answer is awaited, so that
//     processes that share the file need not know of each other
//   answer, on that descriptor: CmAnswer, then the response for the program
//   hostnicd to program: one datagram of one byte while an event waits, so that poll() tells the
//     truth. Who takes it asks for the event (GET_EVENT), and gets another if there are more.
#pragma once

#include <cstdint>

namespace hostnic {

inline constexpr uint32_t kMaxCmBytes = 4096;

struct OpenCmRequest {
  uint64_t visible_devices;  // bit k: device k is visible
};

struct OpenCmReply {
  uint64_t file;  // names the file for MIGRATE_ID
};

// An answer beside those to the commands of rdma_user_cm.h: the datagram was taken although no
// event is wanted.
inline constexpr uint32_t kCmTokenTaken = 0x10000;

struct CmCommand {
  uint32_t command;
  uint32_t reserved;
  uint64_t other_file;  // MIGRATE_ID
};

// There is no event any more: the datagram must be taken away from the file that the command was
// given to, or from the other one that MIGRATE_ID names.
inline constexpr uint32_t kCmTokenStale = 1 << 0, kCmOtherTokenStale = 1 << 1;

struct CmAnswer {
  int32_t error;   // errno value
  uint32_t stale;  // of the bits above
};

}  // namespace hostnic
