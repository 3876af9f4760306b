// SPDX-License-Identifier: BSD-3-Clause
// Requests of peers are executed: what verbs mean at the responder, for all transports. A transport
// decides which packet may be executed now and what is said to the peer; here nobody knows of
// acknowledgements, and a PSN is no more than a packet's name for early writes and transfers.
//
// The parts are a parameter for tests, which have parts of their own.
//
// The NIC's lcore.
#pragma once

#include <rte_branch_prediction.h>

#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/execute/atomic_record.h"
#include "dataplane/nic/execute/outcome.h"
#include "dataplane/nic/execute/split_atomic.h"
#include "dataplane/nic/memory/atomics.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reports.h"
#include "protocol/message_limits.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Which packet it is whose payload is placed, and what precedes it.
struct PacketPlace {
  Psn psn;
  bool ahead = false;    // packets before it are missing
  uint32_t packets = 1;  // several, from `psn` on, whose payloads follow each other
};

// Where the payload of a WRITE's packet goes.
struct WritePart {
  uint32_t key = 0;
  VirtualAddress va = 0;
  uint64_t checked_bytes = 0;  // how much memory from there on the key must be good for
  bool is_last = true;         // of its message
  bool takes_receive = false;  // the message has immediate data, and this is its last packet
  uint32_t sn = 0;             // of the receive
};

// Where the payload of a SEND's packet goes.
struct SendPart {
  uint32_t sn = 0;  // of the receive
  uint64_t offset_bytes = 0;
  uint64_t message_bytes = 0;  // how long the message is, as far as is known
  bool invalidates = false;
  uint32_t invalidate_key = 0;
  std::span<const std::byte> header = {};  // goes to the receive before the payload
};

// What is to be looked at of a READ's memory.
struct ReadPart {
  wire::Reth read;
  uint32_t offset_bytes = 0, length_bytes = 0;  // the range of it that is to be answered
  Psn psn;
};

// How a message ends that has taken a receive.
struct MessageKind {
  bool is_write = false, has_imm = false, has_inv = false;
};

// What a message's last packet says to the program that posted the receive.
inline ReceiveEnd receive_end_of(const wire::Packet& p, const MessageKind& kind,
                                 uint64_t message_bytes) {
  ReceiveEnd end;
  end.byte_len = static_cast<uint32_t>(message_bytes);
  if (p.solicited) end.flags |= kRecvSolicited;
  if (kind.is_write) end.flags |= kRecvIsWriteImm;
  if (kind.has_imm) {
    end.flags |= kRecvHasImm;
    end.imm_data = p.imm_data;
  }
  if (kind.has_inv) {
    end.flags |= kRecvHasInv;
    end.imm_data = p.invalidate_rkey;
  }
  return end;
}

// Whether one more READ or atomic would be more than the peer may have outstanding (InfiniBand
// 9.7.4.1.2), beside `outstanding` that are not answered yet.
inline bool is_one_read_too_many(const QpContext& qp, int64_t outstanding) {
  return qp.responder_resources == 0 || outstanding >= qp.responder_resources;
}

// The parts of the NIC that requests are executed with.
struct ExecutorParts {
  Placement& placement;
  WindowTable& windows;
  ReceiveQueues& receives;
  Reports& reports;
  Counters& counters;
  SplitAtomic& split_atomic;
};

template <class Parts>
class BasicRequestExecutor {
 public:
  explicit BasicRequestExecutor(const Parts& parts) : parts_(parts) {}

  // Tells the program, once, that a connection is established whose queue pair is still in RTR
  // (InfiniBand 9.7.1, IBV_EVENT_COMM_EST).
  void note_arrival(QpContext& qp) {
    if (likely(qp.state != QpState::kRtr || qp.comm_established)) return;
    qp.comm_established = true;
    parts_.reports.publish_event(qp, kEventCommEstablished);
  }

  // Whether receive `sn` is posted: if not, the peer is told to wait (RNR), or its message is lost.
  Outcome check_receive(QpContext& qp, uint32_t sn, bool ahead) {
    if (parts_.receives.is_there(qp, sn, ahead)) return {};
    return {.kind = Outcome::kNoReceive};
  }

  // Places a WRITE's packet in the case that is nearly always met. Returns false if nothing has
  // happened: place_write() says why, or does it.
  [[gnu::always_inline]] inline bool place_write_at_once(QpContext& qp, const WritePart& part,
                                                         const PacketPlace& place,
                                                         std::span<const std::byte> payload) {
    const RemoteRange range = parts_.placement.remote_range(qp.scope(), part.key, part.va,
                                                            part.checked_bytes, kAccessRemoteWrite);
    return range.region != nullptr &&
           parts_.placement.place_at_once(request_of(qp, place, part.is_last), *range.region,
                                          range.iova, payload);
  }
  Outcome place_write(QpContext& qp, const WritePart& part, const PacketPlace& place,
                      std::span<const std::byte> payload);
  // Places a WRITE's packet whose key has been looked at.
  PlaceResult place_checked(QpContext& qp, const RemoteRange& range, bool is_last,
                            const PacketPlace& place, std::span<const std::byte> payload) {
    const PlaceRequest request = request_of(qp, place, is_last);
    if (parts_.placement.place_at_once(request, *range.region, range.iova, payload))
      return PlaceResult::kDone;
    return parts_.placement.place(request, *range.region, range.iova, payload);
  }
  Outcome place_send(QpContext& qp, const SendPart& part, const PacketPlace& place,
                     std::span<const std::byte> payload);
  // Ends the receive of a message that has arrived, or that was refused.
  void complete(QpContext& qp, uint32_t sn, const ReceiveEnd& end,
                RecvStatus status = RecvStatus::kSuccess) {
    parts_.receives.complete(qp, sn, end, status);
  }

  // Looks at the memory before its bytes are promised: answers can't say that it is missing.
  Outcome look_at_read(QpContext& qp, const ReadPart& part);
  // Executes an atomic, and records what it found. One whose word has been read by
  // begin_split_atomic() is ended; while another is begun it is put off.
  Outcome execute_atomic(QpContext& qp, const wire::AtomicEth& atomic, bool compare_swap, Psn psn,
                         uint64_t& before);
  // Reads the word of an atomic that is executed later, but for memory in which it can't be
  // executed in two steps. Returns whether it has: then no other atomic of the device is executed
  // until this one is, or end_split_atomic() says that it will not be.
  bool begin_split_atomic(QpContext& qp, const wire::AtomicEth& atomic, Psn psn, TimeNs until_ns);
  // The atomic of the queue pair that has been begun; null: none has.
  const SplitAtomic* split_atomic_of(const QpContext& qp) const {
    return parts_.split_atomic.qp == &qp ? &parts_.split_atomic : nullptr;
  }
  void end_split_atomic(const QpContext& qp) {
    if (parts_.split_atomic.qp == &qp) parts_.split_atomic = {};
  }

  // Ends the receive `sn` if the refused request has taken it. Returns what else the refusal means.
  const RefusalMeaning& refuse(QpContext& qp, uint32_t sn, Refusal refusal) {
    const RefusalMeaning& meaning = meaning_of(refusal);
    if (meaning.recv_status) parts_.receives.complete(qp, sn, {}, *meaning.recv_status);
    return meaning;
  }

 private:
  static PlaceRequest request_of(QpContext& qp, const PacketPlace& place, bool tail) {
    return {.early_writes = qp.requests.early_writes,
            .window = qp.requests.window,
            .psn = place.psn,
            .ahead = place.ahead,
            .tail = tail,
            .packets = place.packets};
  }
  // Ends an atomic whose word has been read. Where packets behind it are placed already it is
  // executed at once: they may have written the word, which then must be found.
  AtomicResult execute_begun(QpContext& qp, const RemoteRange& range,
                             const AtomicOperation& operation, Psn psn, uint64_t& before) {
    const SplitAtomic begun = std::exchange(parts_.split_atomic, {});
    if (begun.psn != psn || !qp.requests.early_writes.empty())
      return execute_atomic_on(*range.region, range.iova, operation, {&qp, psn.value()}, before);
    before = begun.before;
    return store_atomic_on(*range.region, range.iova, operation, before);
  }
  static Outcome outcome_of(MemoryAccess access) {
    if (access == MemoryAccess::kDone) return {};
    return access == MemoryAccess::kNotNow ? Outcome{.kind = Outcome::kNotNow}
                                           : refused(Refusal::kAccess);
  }

  Parts parts_;
};

template <class Parts>
inline Outcome BasicRequestExecutor<Parts>::place_write(QpContext& qp, const WritePart& part,
                                                        const PacketPlace& place,
                                                        std::span<const std::byte> payload) {
  // Only the last packet of a WRITE with immediate data looks for a receive.
  if (part.takes_receive) {
    if (const Outcome there = check_receive(qp, part.sn, place.ahead); !there.done()) return there;
  }
  if (payload.empty()) return {};
  const Refusal refusal = part.takes_receive ? Refusal::kReceiveAccess : Refusal::kAccess;
  const RemoteRange range = parts_.placement.remote_range(qp.scope(), part.key, part.va,
                                                          part.checked_bytes, kAccessRemoteWrite);
  if (range.region == nullptr) return refused(refusal);
  switch (place_checked(qp, range, part.is_last, place, payload)) {
    case PlaceResult::kDone:
      return {};
    case PlaceResult::kNotNow:
      return {.kind = Outcome::kNotNow};
    case PlaceResult::kMemoryGone:
      break;
  }
  return refused(refusal);
}

template <class Parts>
inline Outcome BasicRequestExecutor<Parts>::place_send(QpContext& qp, const SendPart& part,
                                                       const PacketPlace& place,
                                                       std::span<const std::byte> payload) {
  if (const Outcome there = check_receive(qp, part.sn, place.ahead); !there.done()) return there;
  PostedReceive receive;
  if (!parts_.receives.load(qp, part.sn, receive)) return refused(Refusal::kReceiveMemory);
  if (part.message_bytes > receive.capacity_bytes || part.message_bytes > kMaxMessageBytes)
    return refused(Refusal::kReceiveTooLong);
  MemoryWindow* invalidated = nullptr;
  if (part.invalidates) {  // never placed ahead: what precedes it may use the window
    invalidated = parts_.windows.invalidatable(qp.scope(), part.invalidate_key);
    if (invalidated == nullptr) return refused(Refusal::kReceiveAccess);
  }
  parts_.receives.prefetch(qp, part.sn);
  LocalError error = LocalError::kNone;
  const PlaceRequest request = request_of(qp, place, /*tail=*/false);
  PlaceResult result = PlaceResult::kDone;
  if (unlikely(!part.header.empty()))
    result = parts_.placement.scatter(qp.receive_scope(), request, receive.list(), 0, part.header,
                                      error);
  if (likely(error == LocalError::kNone && result == PlaceResult::kDone))
    result = parts_.placement.scatter(qp.receive_scope(), request, receive.list(),
                                      part.offset_bytes + part.header.size(), payload, error);
  if (error == LocalError::kLength) return refused(Refusal::kReceiveTooLong);
  if (error != LocalError::kNone || result == PlaceResult::kMemoryGone)
    return refused(Refusal::kReceiveMemory);
  if (result == PlaceResult::kNotNow) return {.kind = Outcome::kNotNow};
  if (invalidated != nullptr) parts_.windows.unbind(*invalidated);
  return {};
}

template <class Parts>
inline Outcome BasicRequestExecutor<Parts>::look_at_read(QpContext& qp, const ReadPart& part) {
  if (part.read.length_bytes > kMaxMessageBytes) return refused(Refusal::kMessageTooLong);
  // A READ of nothing succeeds whatever its key (InfiniBand 9.7.4.1.4).
  if (part.read.length_bytes == 0) return {};
  const RemoteRange range = parts_.placement.remote_range(
      qp.scope(), part.read.key, part.read.va, part.read.length_bytes, kAccessRemoteRead);
  if (range.region == nullptr) return refused(Refusal::kAccess);
  return outcome_of(has_memory(*range.region, range.iova + part.offset_bytes, part.length_bytes,
                               {&qp, part.psn.value()}));
}

template <class Parts>
inline Outcome BasicRequestExecutor<Parts>::execute_atomic(QpContext& qp,
                                                           const wire::AtomicEth& atomic,
                                                           bool compare_swap, Psn psn,
                                                           uint64_t& before) {
  if (atomic.va % wire::kAtomicOperandBytes != 0) return refused(Refusal::kMisaligned);
  const RemoteRange range = parts_.placement.remote_range(
      qp.scope(), atomic.rkey, atomic.va, wire::kAtomicOperandBytes, kAccessRemoteAtomic);
  // In an on-demand region nothing would be atomic with the CPU's accesses (IBV_ODP_SUPPORT_ATOMIC
  // is not advertised).
  if (range.region == nullptr || (range.region->access & kAccessOnDemand) != 0)
    return refused(Refusal::kAccess);
  const AtomicOperation operation{compare_swap, atomic.swap_or_add, atomic.compare};
  const bool one_is_begun = unlikely(parts_.split_atomic.qp != nullptr);
  if (one_is_begun && parts_.split_atomic.qp != &qp) return {.kind = Outcome::kNotNow};
  switch (one_is_begun ? execute_begun(qp, range, operation, psn, before)
                       : execute_atomic_on(*range.region, range.iova, operation, {&qp, psn.value()},
                                           before)) {
    case AtomicResult::kDone:
      break;
    case AtomicResult::kBusy:
      return {.kind = Outcome::kNotNow};
    case AtomicResult::kMemoryGone:
      return refused(Refusal::kAccess);
  }
  parts_.counters.add(Counter::atomics_executed);
  record_atomic(qp, psn, before);
  return {};
}

template <class Parts>
inline bool BasicRequestExecutor<Parts>::begin_split_atomic(QpContext& qp,
                                                            const wire::AtomicEth& atomic, Psn psn,
                                                            TimeNs until_ns) {
  if (parts_.split_atomic.qp != nullptr || atomic.va % wire::kAtomicOperandBytes != 0) return false;
  const RemoteRange range = parts_.placement.remote_range(
      qp.scope(), atomic.rkey, atomic.va, wire::kAtomicOperandBytes, kAccessRemoteAtomic);
  if (range.region == nullptr || (range.region->access & kAccessOnDemand) != 0) return false;
  uint64_t before = 0;
  if (load_atomic_on(*range.region, range.iova, before) != AtomicResult::kDone) return false;
  parts_.split_atomic = {&qp, psn, before, until_ns};
  return true;
}

using RequestExecutor = BasicRequestExecutor<ExecutorParts>;

}  // namespace hostnic
