// SPDX-License-Identifier: BSD-3-Clause
// A perfect NIC in one process, in place of libibverbs, and ways to spoil it: what hostnic-verify
// must accept, and what it must find.
#pragma once

namespace hostnic::verify::fake {

enum class Fault {
  kNone,
  kLoseByte,       // the last byte of a WRITE
  kWriteBeyond,    // one byte after a WRITE's target
  kLosePiece,      // the last SGE of a received message
  kWrongReadByte,  // the first byte that a READ brings
  kAddTwice,       // an atomic executed twice
  kAddNever,       // an atomic that returns its value and leaves the memory alone
  kLateWrite,      // a WRITE's bytes arrive after those of the next one
  kSendOvertakes,  // a WRITE is placed after the following message completed
  kReadSource,     // payload fetched after the completion, not before
  kWrongImm,
  kWrongLength,
  kWrongWrId,
  kLoseCompletion,  // once
  kRepeatCompletion,
  kLoseEvent,
  kEventUnsolicited,  // an event although only solicited completions should make one
};

// The fault strikes each suitable operation from the `after`th on; kNone: never.
void set_fault(Fault fault, unsigned after);
// How often it struck.
unsigned struck();

}  // namespace hostnic::verify::fake
