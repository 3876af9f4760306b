// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/completer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dataplane/nic/client/qp_status_update.h"
#include "dataplane/nic/packet/digest_table.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/transport/answer_bytes.h"

namespace hostnic {
namespace {

using Place = ReceiveWindow::Place;

}  // namespace

[[gnu::always_inline]] inline void Completer::note_echo(QpContext& qp, const wire::Sack& sack) {
  QpStatus& status = *qp.status;
  status.echo_psn = sack.echo_psn.value();
  status.echo_attempt = sack.echo_attempt;
  ++status.echo_count;
  if (sack.echo_duplicate && sack.echo_attempt != 0) ++status.spurious_count;
  // Attempt numbers repeat after a while: of several transmissions that look alike the newest
  // counts.
  uint64_t age_ns = UINT64_MAX;
  for (uint32_t i = 0, rest = qp.stamps_used; rest != 0; ++i) {
    QpContext::SendStamp& stamp = qp.stamps[i];
    if (!stamp.used()) continue;
    --rest;
    const bool found = stamp.psn() == sack.echo_psn && stamp.attempt() == sack.echo_attempt;
    if (found) age_ns = std::min(age_ns, stamp.age_ns(now_));
    // Pulls repeat PSNs that were acknowledged long ago, so their answers are no samples of the
    // round trip time.
    if (!found && !before(stamp.psn(), sack.base)) continue;
    stamp = {};
    --qp.stamps_used;
  }
  if (age_ns == UINT64_MAX) return;
  status.rtt_ns = static_cast<uint32_t>(std::min<uint64_t>(age_ns, UINT32_MAX));
  status.rtt_psn = static_cast<uint16_t>(sack.echo_psn.value());
  ++status.rtt_count;
}

// Forgets the stamps of a pull that is sent again: its request looks like the one before, and
// whichever an ACK answers, the time since the first is no round trip.
[[gnu::noinline]] void Completer::forget_stamps(QpContext& qp, Transmitted again) {
  for (QpContext::SendStamp& stamp : qp.stamps) {
    if (!stamp.used() || stamp.psn() != again.psn || stamp.attempt() != again.attempt) continue;
    stamp = {};
    --qp.stamps_used;
  }
}

// Takes an ACK (rules 21 and 22): the newest una wins, bits are OR-ed, a NAK stays until una passes
// it. Impossible ACKs change nothing.
void Completer::receive_ack(QpContext& qp, const wire::Sack& sack, wire::Aeth aeth,
                            const std::byte* sack_words) {
  counters_.add(Counter::acks_received);
  const int32_t progress = distance(qp.una, sack.base);
  if (progress < 0 || distance(sack.base, qp.transmitted) < 0) return;
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  auto& bits = reinterpret_cast<std::array<uint64_t, kBitmapWords>&>(status.sack);
  // The bitmap is not read where no bit is set, and then need not be in the cache.
  const bool any_bits = distance(qp.una, Psn(status.sack_end_psn)) > 0;
  for (int32_t i = 0; any_bits && i < progress; ++i) {
    const Psn psn = qp.una + static_cast<uint32_t>(i);
    bits[psn.value() / 64 % kBitmapWords] &= ~(uint64_t{1} << psn.value() % 64);
  }
  qp.una = sack.base;
  if (progress > 0) qp.note_progress(now_);
  status.una_psn = sack.base.value();
  if (distance(Psn(status.sack_end_psn), sack.base) > 0) status.sack_end_psn = sack.base.value();
  if (distance(Psn(status.highest_acceptable_psn), sack.highest_acceptable) > 0) {
    status.highest_acceptable_psn = sack.highest_acceptable.value();
  }
  for (uint32_t i = 0; i < sack.word_count; ++i)
    merge_sack_word(qp, bits, sack.base + i * 64, wire::sack_word(sack_words, i));
  if (sack.has_credit) {
    if (status.has_credit == 0 || serial_distance(status.recv_sn_limit, sack.recv_sn_limit) > 0) {
      status.recv_sn_limit = sack.recv_sn_limit;
    }
    status.has_credit = 1;
  }
  if (status.nak != 0 && progress > 0 && distance(Psn(status.nak_psn), sack.base) > 0)
    status.nak = 0;
  if (aeth.kind != wire::AckKind::kAck) {
    counters_.add(aeth.kind == wire::AckKind::kRnrNak ? Counter::rnr_nak_received
                                                      : Counter::nak_received);
    status.nak = make_nak(static_cast<uint32_t>(aeth.kind), aeth.code);
    status.nak_psn = sack.base.value();
    status.nak_sn = sack.nak_sn;
    ++status.nak_count;
  }
  if (sack.congestion_mark) ++status.mark_count;
  if (sack.echo_valid) note_echo(qp, sack);
  ++status.ack_count;
  qp.heard_ns = now_;
  reports_.add(qp);
}

// Adds the bits to the bitmap; those at or beyond what was transmitted can't be true and are
// ignored.
void Completer::merge_sack_word(QpContext& qp, std::array<uint64_t, kBitmapWords>& sack, Psn first,
                                uint64_t bits) {
  const int32_t outstanding = distance(first, qp.transmitted);
  if (outstanding <= 0) return;
  if (outstanding < 64) bits &= (uint64_t{1} << outstanding) - 1;
  if (bits == 0) return;
  const Psn end = first + static_cast<uint32_t>(std::bit_width(bits));
  if (distance(Psn(qp.status->sack_end_psn), end) > 0) qp.status->sack_end_psn = end.value();
  const uint32_t shift = first.value() % 64;
  const uint32_t word = first.value() / 64 % kBitmapWords;
  sack[word] |= bits << shift;
  if (shift != 0) sack[(word + 1) % kBitmapWords] |= bits >> (64 - shift);
}

// Whether an answer was pulled in the epoch before, and is as good as what is pulled now: only
// later READs must not be older than it (rule 18, READs stay ordered). Without this, answers slower
// than loss detection would never be in time.
static bool answers_epoch_before(const QpContext& qp, const wire::Packet& p) {
  return qp.epoch_follows && p.response_epoch == static_cast<uint8_t>(qp.epoch - 1) &&
         before(p.psn, qp.epoch_keep_until);
}

[[gnu::always_inline]] inline void Completer::take_response(QpContext& qp, const wire::Packet& p,
                                                            rte_mbuf* packet) {
  if (p.response_epoch != qp.epoch && !answers_epoch_before(qp, p)) {
    counters_.add(Counter::stale_epoch);
    return;
  }
  ReceiveSpace& space = qp.responses;
  if (congestion_experienced(p)) qp.response_congestion_seen = true;
  const Place where = space.window.classify(p.psn);
  switch (where) {
    case Place::kExpected:
    case Place::kAhead:
      break;
    case Place::kBeyond:
      counters_.add(Counter::out_of_window);
      return;
    default:
      counters_.add(Counter::duplicate_request);
      return;
  }
  if (unlikely(p.payload_bytes == 0)) {
    take_refusal(qp, p);
    return;
  }
  const bool ahead = where == Place::kAhead;
  if (ahead) counters_.add(Counter::out_of_sequence);
  if (ahead && !p.more && tails_wait(settings_.ordering)) {
    if (!reorder_.enter(space, p.psn, packet)) return;
    space.window.set(p.psn);
    report_responses(qp);
    return;
  }
  ResponseMiss miss = ResponseMiss::kNone;
  const LocalError error = place_response(qp, p,
                                          {.payload = payload_of(packet, p),
                                           .ahead = ahead,
                                           .watched = external_payload(packet) != nullptr},
                                          miss);
  if (miss != ResponseMiss::kNone || (ahead && error != LocalError::kNone)) return;
  if (error != LocalError::kNone) {
    fail_response(qp, p, error);
    return;
  }
  if (ahead) {
    space.window.set(p.psn);
  } else {
    const bool filled_hole = space.window.has_hole();
    space.window.accept_in_order();
    if (filled_hole) advance(qp);
  }
  report_responses(qp);
}

void Completer::receive_response(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  take_response(qp, p, packet);
  if (is_noted_when_read(packet)) note_response(qp, p, *external_payload(packet));
}

// An answer that is missing still will be asked for again, and has to say then what it says now
// (rule 18).
void Completer::note_response(QpContext& qp, const wire::Packet& p,
                              const ExternalPayload& payload) {
  if (p.response_epoch != qp.epoch) return;
  const Place where = qp.responses.window.classify(p.psn);
  const bool missing =
      where == Place::kExpected || where == Place::kAhead || where == Place::kBeyond;
  if (missing)
    payload.digests->note_read(p.psn, {payload.bytes, p.payload_bytes});
  else
    payload.digests->note_placed(p.psn, 1);
}

// The peer can't say again what it said the first time, and has read for later READs since: the
// driver has to pull in a new epoch (rule 18). Here a missing answer was refused; refusals of
// others are echoes of pulls that the network has repeated.
void Completer::take_refusal(QpContext& qp, const wire::Packet& p) {
  if (p.response_epoch != qp.epoch) return;
  qp.epoch_refused = true;
  report_responses(qp);
}

void Completer::fail_response(QpContext& qp, const wire::Packet& p, LocalError error) {
  QpStatusUpdate update(*qp.status);
  qp.status->response_error = static_cast<uint32_t>(error);
  qp.status->response_error_read = p.reth.key;
  reports_.add(qp);
}

// Whether `packets` answers that start with `p` are what their PSNs stand for: with another path
// MTU at the peer they are not, and bytes would be missing from a READ all of whose PSNs have come.
static bool is_part_of_read(const QpContext& qp, const wire::Packet& p, uint32_t packets,
                            uint64_t bytes, const ReadDestination& read) {
  const int32_t before = distance(Psn(read.first_response_psn), p.psn);
  const uint64_t total =
      p.opcode == wire::Opcode::kAtomicResponse ? sizeof(uint64_t) : read.length_bytes;
  const uint64_t offset = static_cast<uint64_t>(before) * qp.mtu_bytes;
  if (before < 0 || offset >= total || p.reth.va != offset) return false;
  return bytes == std::min(uint64_t{packets} * qp.mtu_bytes, total - offset);
}

// Places answers of one READ, one behind the other; `p` has the headers of the first.
LocalError Completer::place_response(QpContext& qp, const wire::Packet& p, const Answers& answers,
                                     ResponseMiss& miss) {
  if (qp.read_destination_entries == 0) return LocalError::kProtection;
  const ReadDestination& shared =
      qp.read_destinations[p.reth.key & (qp.read_destination_entries - 1u)];
  // An answer to a READ that is no longer, or not yet, in its slot is dropped.
  const uint32_t sge_count = shared.sge_count;
  if (shared.read_number != p.reth.key || sge_count > kMaxSge) {
    miss = ResponseMiss::kNobodys;
    return LocalError::kNone;
  }
  if (!is_part_of_read(qp, p, answers.packets, answers.payload.size(), shared))
    return LocalError::kBadResponse;
  const PlaceRequest request{.early_writes = qp.responses.early_writes,
                             .window = qp.responses.window,
                             .psn = p.psn,
                             .ahead = answers.ahead,
                             .tail = !p.more,
                             .watched = answers.watched,
                             .packets = answers.packets};
  bool not_now = false;
  const LocalError error =
      place_answer(qp, placement_, request, shared, sge_count, p.reth.va, answers.payload, not_now);
  if (not_now) miss = ResponseMiss::kNotNow;
  return error;
}

void Completer::advance(QpContext& qp) {
  ReceiveSpace& space = qp.responses;
  uint32_t budget = kAdvanceBudget;
  while (space.window.expected_received()) {
    if (space.pass_placed() != 0) continue;
    if (budget-- == 0) break;
    const Psn psn = space.window.expected();
    if (rte_mbuf* packet = space.waiting(psn).packet(); packet != nullptr) {
      const wire::Packet p = valid_headers(packet);
      ResponseMiss miss = ResponseMiss::kNone;
      const LocalError error = place_response(qp, p, {.payload = payload_of(packet, p)}, miss);
      if (miss == ResponseMiss::kNotNow) break;  // placed in a later turn
      reorder_.release_slot(space, psn);
      rte_pktmbuf_free(packet);
      if (error != LocalError::kNone) {
        fail_response(qp, p, error);
        return;
      }
    }
    space.window.advance();
  }
  space.early_writes.release_before(placement_.early_writes(), space.window.expected());
  if (space.window.expected_received()) advance_list_.add(qp);
}

// Makes the response window visible to the driver.
void Completer::report_responses(QpContext& qp) {
  qp.responses_changed = true;
  qp.heard_ns = now_;
  reports_.add(qp);
}

// Begins the epoch of a READ or atomic that leaves, if it is newer. Older ones do not count: the
// rings overtake each other, and an older descriptor's answers are simply stale.
void Completer::begin_pull(QpContext& qp, const SendDescriptor& d) {
  if (static_cast<int8_t>(d.epoch - qp.epoch) > 0) start_epoch(qp, d.epoch, Psn(d.keep_until_psn));
}

// The driver pulls again from `keep_until` on: what later READs have received so far may be older
// than what is now pulled, and counts as not received (rule 18, READs stay ordered).
void Completer::start_epoch(QpContext& qp, uint8_t epoch, Psn keep_until) {
  ReceiveSpace& space = qp.responses;
  const uint32_t window = space.window.window();
  for (uint32_t i = 0; i < window && space.reorder_slots != nullptr; ++i) {
    const Psn psn = space.window.expected() + i;
    if (distance(keep_until, psn) >= 0)
      rte_pktmbuf_free(reorder_.release_slot(space, psn).packet());
  }
  space.window.forget_from(keep_until);
  space.early_writes.release_from(placement_.early_writes(), keep_until);
  qp.epoch_follows = epoch == static_cast<uint8_t>(qp.epoch + 1);
  qp.epoch_refused = false;
  qp.epoch_keep_until = keep_until;
  qp.epoch = epoch;
  report_responses(qp);
}

uint32_t Completer::receive_response_bundle(QpContext& qp, const wire::Packet& first,
                                            const wire::Packet& whole,
                                            const ExternalPayload& payload,
                                            std::span<const std::byte> bytes) {
  ReceiveWindow& window = qp.responses.window;
  const uint32_t packets = 1u + payload.packets_behind;
  if (first.payload_bytes != qp.mtu_bytes || first.response_epoch != qp.epoch) return 0;
  const Place where = window.classify(first.psn);
  if (unlikely(where == Place::kAhead)) {
    const uint32_t taken = take_responses_ahead(qp, whole, bytes, packets);
    if (payload.digests != nullptr) payload.digests->note_placed(first.psn, taken);
    return taken;
  }
  const bool hole = window.has_hole();
  if (where != Place::kExpected || unlikely(hole && !window.misses_all(first.psn, packets)))
    return 0;
  ResponseMiss miss = ResponseMiss::kNone;
  const LocalError error =
      place_response(qp, whole, {.packets = packets, .payload = bytes, .watched = true}, miss);
  if (miss != ResponseMiss::kNone || error != LocalError::kNone) return 0;
  window.accept_in_order(packets);
  if (payload.digests != nullptr) payload.digests->note_placed(first.psn, packets);
  if (unlikely(hole)) advance(qp);
  report_responses(qp);
  return packets;
}

// Takes answers ahead of the expected one, except for a READ's last one: that one waits in the
// reorder buffer (rule 10, tails wait).
uint32_t Completer::take_responses_ahead(QpContext& qp, wire::Packet p,
                                         std::span<const std::byte> bytes, uint32_t packets) {
  ReceiveWindow& window = qp.responses.window;
  if (!window.misses_all(p.psn, packets)) return 0;
  if (!p.more && tails_wait(settings_.ordering)) {
    bytes = bytes.first(size_t{--packets} * p.payload_bytes);
    p.more = true;
  }
  ResponseMiss miss = ResponseMiss::kNone;
  const LocalError error = place_response(
      qp, p, {.packets = packets, .payload = bytes, .ahead = true, .watched = true}, miss);
  if (miss != ResponseMiss::kNone || error != LocalError::kNone) return 0;
  counters_.add(Counter::out_of_sequence, packets);
  window.set_run(p.psn, packets);
  report_responses(qp);
  return packets;
}

// Whether the driver knows that the peer has the request's packet: the work request may be complete
// then, and its memory deregistered, while a repetition that turned out to be needless still waits
// here. The driver's word counts, and not the NIC's own: answers acknowledge, too.
bool Completer::is_acknowledged(const QpContext& qp, Psn psn) {
  return before(psn, Psn(qp.status->acknowledged_psn.load(std::memory_order_acquire)));
}

void Completer::fail_send(QpContext& qp, Psn psn, LocalError error) {
  reports_.fail_send(qp, psn, error);
}

}  // namespace hostnic
