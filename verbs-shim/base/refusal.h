// SPDX-License-Identifier: BSD-3-Clause
// Why a call is refused. A verb says EINVAL or ENOMEM and no more; the place that refuses notes the
// reason and its numbers, and the verb's entry point tells them on stderr: in a lab each reason
// once per process, with HOSTNIC_LOG=info each time, but for what posting says, which is once.
//
// For any thread: the note is the thread's own. Nothing is allocated; errno stays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hostnic {

// The numbers that a reason is about are named behind it: `given`, `limit`.
enum class Reason : uint8_t {
  kNone,
  // Posting.
  kSendState,     // state
  kReceiveState,  // state
  kReceiveOfShared,
  kOperation,      // opcode
  kNotOfThisType,  // opcode
  kNotByMrc,       // opcode
  kNoDestination,
  kSges,          // elements, granted
  kMessageBytes,  // bytes, most
  kInlineBytes,   // bytes, granted
  kInlineRead,
  kNoReads,
  kAtomicBytes,           // bytes
  kSendQueueFull,         // signalled, granted
  kSendQueueUnsignalled,  // 0, granted
  kReceiveQueueFull,      // 0, granted
  kSharedQueueFull,       // 0, granted
  kBatchTooLong,          // requests, free slots
  // Changing a queue pair's state.
  kUnknownState,       // state
  kCurrentState,       // state said, state
  kNoTransition,       // from, to
  kMissingAttributes,  // from, to; mask: which
  kExtraAttributes,    // from, to; mask: which
  kAttribute,          // text: what is wrong
  // Addresses.
  kPort,       // port_num
  kPkeyIndex,  // pkey_index
  kPathMtu,    // bytes, most
  kSgidIndex,  // index, entries of the table
  kNoGrh,
  kNoHost,
  kGidFamily,  // index
  kGroup,
  // Making objects.
  kQpType,     // type
  kMaxSendWr,  // asked for, most
  kMaxRecvWr,
  kMaxSendSge,
  kMaxRecvSge,
  kMaxInline,
  kCqEntries,
  kCqHolds,  // completions that wait or are due, entries asked for
  kCompletionVector,
  kSharedWr,     // asked for, most
  kSharedSge,    // asked for, most
  kMaxRdAtomic,  // asked for, most; text: the attribute
  kNobody,       // text: the address
  kNotOfDevice,  // text: the object
  kNoObject,     // text: the object
  kNotOffered,   // text: what the device does not do
  kArgument,     // text: what is wrong
  kSharedLimit,  // asked for, entries
  kWindowType,   // type
  kBindType,     // type of the window
  // Questions.
  kGidIndex,  // index, entries of the table
  // Destroying objects.
  kInUse,  // text: by which objects
  kWindowsBound,
  // Memory.
  kAccessFlags,         // flags
  kFlushFlags,          // flags
  kRemoteWithoutLocal,  // flags
  kRegionBytes,         // bytes, most
  kMemory,              // text: what stands in the way
  kCount
};

struct Refusal {
  Reason reason = Reason::kNone;
  uint64_t given = 0, limit = 0;
  uint32_t mask = 0;           // of IBV_QP_..., for attributes
  const char* text = nullptr;  // outlives the call
};

// Notes a refusal; returns the errno value that goes with it.
int refuse(const Refusal& refusal) noexcept;

// Tells what was last noted on this thread, if it goes with `error`, which the verb `call` returns;
// `qpn` is the queue pair's, 0: none. Takes the note away.
void tell_refusal(const char* call, uint32_t qpn, int error) noexcept;

// All of it for a call that refuses by itself: notes, tells, sets errno and returns it.
int refuse_call(const char* call, uint32_t qpn, const Refusal& refusal) noexcept;

// Says of an object that others use it: `count` of what `user` names, in the singular. Returns
// EBUSY.
int refuse_in_use(const char* call, uint32_t qpn, size_t count, const char* user) noexcept;

// Describes a refusal in one line; `bytes` are the room there.
void describe(const Refusal& refusal, char* line, size_t bytes) noexcept;

}  // namespace hostnic
