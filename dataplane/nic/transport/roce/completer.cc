// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/roce/completer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "dataplane/nic/client/qp_status_update.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/transport/answer_bytes.h"
#include "dataplane/nic/transport/packetizer.h"

namespace hostnic {
namespace {

using wire::AckKind;
using wire::NakCode;
using wire::Opcode;

constexpr uint32_t kNoNak = 0;
constexpr uint32_t kGap =
    make_nak(static_cast<uint32_t>(AckKind::kNak), static_cast<uint32_t>(NakCode::kPsnSequence));

bool is_read_response(Opcode opcode) {
  return opcode >= Opcode::kRcReadFirst && opcode <= Opcode::kRcReadOnly;
}

// The oldest PSN of a READ or atomic whose answer has not come.
Psn next_answer(const QpContext& qp, const RoceRequest& request) {
  return before(qp.una, request.first) ? request.first : qp.una;
}

}  // namespace

// Returns the oldest PSN that is not acknowledged when everything before `end` is, as far as that
// can be: an acknowledgement of what is behind an answer that has not come says that the answer was
// sent, and so that it is lost.
Psn RoceCompleter::acknowledge(QpContext& qp, Psn end, bool& gap) {
  RoceConnection& connection = *qp.roce;
  if (connection.requests.empty()) return end;
  const RoceRequest& oldest = connection.requests.front();
  gap = distance(oldest.first, end) > 0;
  return gap ? next_answer(qp, oldest) : end;
}

// Tells the driver what is acknowledged, and of a NAK that is about the first PSN that is not.
void RoceCompleter::report(QpContext& qp, Psn una, uint32_t nak) {
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  const bool progress = distance(qp.una, una) > 0;
  qp.una = una;
  status.una_psn = status.sack_end_psn = una.value();
  status.highest_acceptable_psn = (una + (kWindowLimit - 1)).value();
  if (progress) {
    qp.note_progress(now_);
    status.nak = kNoNak;
    qp.roce->gap_told = false;
  }
  // An answer that is missing is said once, however many come behind it.
  const bool known = nak == kGap && qp.roce->gap_told;
  if (nak != kNoNak && !known) {
    status.nak = nak;
    status.nak_psn = status.nak_sn = una.value();
    ++status.nak_count;
    qp.roce->gap_told = nak == kGap;
  }
  ++status.ack_count;
  reports_.add(qp);
}

void RoceCompleter::receive_ack(QpContext& qp, const wire::Packet& p) {
  counters_.add(Counter::acks_received);
  const bool is_nak = p.aeth.kind != AckKind::kAck;
  // A NAK names the PSN that was refused, and acknowledges those before it.
  const Psn end = is_nak ? p.psn : p.psn + 1;
  if (distance(qp.una, end) < 0 || distance(end, qp.transmitted) < 0) return;
  bool gap = false;
  const Psn una = acknowledge(qp, end, gap);
  uint32_t nak = gap ? kGap : kNoNak;
  if (is_nak && !gap) {
    counters_.add(p.aeth.kind == AckKind::kRnrNak ? Counter::rnr_nak_received
                                                  : Counter::nak_received);
    nak = make_nak(static_cast<uint32_t>(p.aeth.kind), p.aeth.code);
    qp.roce->gap_told = false;  // the peer says so itself
  }
  report(qp, una, nak);
}

void RoceCompleter::receive_answer(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  counters_.add(Counter::acks_received);
  if (distance(qp.una, p.psn) < 0 || distance(p.psn, qp.transmitted) <= 0) {
    counters_.add(Counter::duplicate_request);
    return;
  }
  RoceConnection& connection = *qp.roce;
  if (connection.requests.empty() || before(p.psn, connection.requests.front().first)) {
    counters_.add(Counter::duplicate_request);
    return;
  }
  // An answer says that all before it have been sent, also those of older requests.
  const RoceRequest request = connection.requests.front();
  const Psn expected = next_answer(qp, request);
  if (p.psn != expected) {
    counters_.add(Counter::out_of_sequence);
    report(qp, expected, kGap);
    return;
  }
  bool not_now = false;
  const LocalError error = place(qp, p, request, payload_of(packet, p), not_now);
  if (not_now) return;  // as if it were lost
  if (error != LocalError::kNone) {
    QpStatusUpdate update(*qp.status);
    qp.status->response_error = static_cast<uint32_t>(error);
    qp.status->response_error_read = request.read_number;
    reports_.add(qp);
    return;
  }
  if (expected + 1 == request.end()) connection.requests.pop_front();
  report(qp, expected + 1, kNoNak);
}

// Places an answer. Which of First, Middle, Last and Only it is depends on how its READ was asked
// for, perhaps more than once; its PSN says which bytes it must have.
LocalError RoceCompleter::place(QpContext& qp, const wire::Packet& p, const RoceRequest& request,
                                std::span<const std::byte> payload, bool& not_now) {
  if (qp.read_destination_entries == 0) return LocalError::kProtection;
  const ReadDestination& shared =
      qp.read_destinations[request.read_number & (qp.read_destination_entries - 1u)];
  const uint32_t sge_count = shared.sge_count;
  if (shared.read_number != request.read_number || sge_count > kMaxSge) {
    not_now = true;
    return LocalError::kNone;
  }
  std::array<std::byte, wire::kAtomicOperandBytes> atomic_bytes;
  if (request.is_atomic) {
    std::memcpy(atomic_bytes.data(), &p.atomic_before, atomic_bytes.size());
    payload = atomic_bytes;
  }
  const Psn expected = next_answer(qp, request);
  const uint64_t offset =
      uint64_t{static_cast<uint32_t>(distance(request.first, expected))} * qp.mtu_bytes;
  const uint64_t bytes = std::min<uint64_t>(qp.mtu_bytes, request.length_bytes - offset);
  const bool fits = request.is_atomic ? p.opcode == Opcode::kRcAtomicAck
                                      : is_read_response(p.opcode) && payload.size() == bytes;
  if (!fits) return LocalError::kBadResponse;
  if (payload.empty()) return LocalError::kNone;
  const PlaceRequest place_request{.early_writes = qp.responses.early_writes,
                                   .window = qp.responses.window,
                                   .psn = p.psn,
                                   .ahead = false,
                                   .tail = expected + 1 == request.end(),
                                   .watched = true};
  return place_answer(qp, placement_, place_request, shared, sge_count, offset, payload, not_now);
}

void RoceCompleter::receive_congestion_notification(QpContext& qp) {
  counters_.add(Counter::cnp_received);
  ++qp.roce->notifications;
  QpStatusUpdate update(*qp.status);
  ++qp.status->mark_count;
  reports_.add(qp);
}

// A rate is cut once for each notification at most, and recovers once from each cut.
void RoceCompleter::count_rate_changes(QpContext& qp) {
  RoceConnection& c = *qp.roce;
  const auto count = [this](Counter counter, uint32_t now, uint32_t& counted) {
    if (now <= counted) return;
    counters_.add(counter, now - counted);
    counted = now;
  };
  const uint32_t cuts = qp.status->rate_cuts.load(std::memory_order_relaxed);
  const uint32_t recoveries = qp.status->rate_recoveries.load(std::memory_order_relaxed);
  count(Counter::rate_cuts, std::min(cuts, c.notifications), c.counted_cuts);
  count(Counter::rate_recoveries, std::min(recoveries, c.counted_cuts), c.counted_recoveries);
}

// Remembers a READ or atomic that is asked for the first time, to place its answers.
void RoceCompleter::note_request(QpContext& qp, const SendDescriptor& d, Psn psn) {
  auto& requests = qp.roce->requests;
  const bool known =
      !requests.empty() && serial_distance(requests.back().read_number, d.recv_sn) <= 0;
  RoceRequest request{.first = psn, .answers = 1, .read_number = d.recv_sn, .is_atomic = true};
  if (d.op == SendOp::kRead) {
    request = {.first = Psn(psn.value() - (d.read_offset_bytes >> std::countr_zero(qp.mtu_bytes))),
               .answers = answers_of_read(d.message_bytes, qp.mtu_bytes),
               .read_number = d.recv_sn,
               .length_bytes = d.message_bytes,
               .is_atomic = false};
  }
  const bool answered = distance(qp.una, request.end()) <= 0;  // a late repetition
  // A driver keeps to the number that there is room for.
  if (!known && !requests.full() && !answered) requests.push(request);
}

void RoceCompleter::note_transmitted(QpContext& qp, const SendDescriptor& d,
                                     const wire::Packet& p) {
  uint32_t psns = 1;
  if (is_read_or_atomic(d.op)) {
    note_request(qp, d, p.psn);
    if (d.op == SendOp::kRead) psns = answers_of_read(d.length_bytes, qp.mtu_bytes);
  }
  const Psn next = p.psn + psns;
  if (unlikely((d.flags & kSendRetransmit) != 0))
    qp.note_sent_again(counters_, repeat_cause_of(d), 1, p.psn + (psns - 1), now_);
  if (distance(qp.transmitted, next) <= 0) return;
  qp.note_sent_first(now_);
  qp.transmitted = next;
  qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
}

void RoceCompleter::fail_send(QpContext& qp, Psn psn, LocalError error) {
  if (before(psn, Psn(qp.status->acknowledged_psn.load(std::memory_order_acquire)))) return;
  reports_.fail_send(qp, psn, error);
}

}  // namespace hostnic
