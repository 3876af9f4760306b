// SPDX-License-Identifier: BSD-3-Clause
// What a program's side knows of its messages while they are traced (docs/operate.md, trace
// points): when each was posted, and when its completion was polled. The library writes these into
// the segment's event ring while SegmentHeader::message_events asks for them; the NIC hands them to
// whoever traces, together with what it has seen itself. Values of untrusted programs: nothing
// depends on them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "protocol/hostif/descriptors.h"

namespace hostnic {

enum class MessageEventKind : uint8_t { kPosted = 1, kPolled = 2 };

struct MessageEvent {
  MessageEventKind kind;
  SendOp op;          // posted
  uint8_t signalled;  // posted: 1: it has a completion of its own if it succeeds
  uint8_t reserved;
  uint32_t qpn;
  uint64_t ticks;  // of the TSC, when it happened
  uint64_t wr_id;
  uint32_t number;  // of the request in its send queue: how many were posted up to it, since RESET
  uint32_t sequence;  // how many events of this device were there before, those that found the ring
                      // full included
  uint32_t session;   // SegmentHeader::message_events when it happened
  uint32_t status;    // polled: ibv_wc_status
  // The members from here on are of kPosted. A message has the PSNs [first_psn, first_psn + psns);
  // of a READ or atomic by the native transport, answers have PSNs of their own.
  uint32_t first_psn, psns;
  uint32_t first_answer, answers;
  uint32_t length_bytes;
  uint32_t reserved_word;
};
static_assert(sizeof(MessageEvent) == 64 && std::is_trivially_copyable_v<MessageEvent>);

}  // namespace hostnic
