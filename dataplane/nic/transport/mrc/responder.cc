// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/mrc/responder.h"

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/transport/path_mtu.h"
#include "protocol/message_limits.h"

namespace hostnic {
namespace {

namespace wm = wire::mrc;
using Place = ReceiveWindow::Place;

bool carries_immediate(const wire::Packet& p) {
  return p.opcode == wire::Opcode::kMrcWriteLastImm || p.opcode == wire::Opcode::kMrcWriteOnlyImm;
}

// What MRC makes of a WRITE with immediate data that finds no receive: there is no RNR NAK, and the
// connection ends.
const RefusalMeaning kNoReceiveMeans{wire::NakCode::kRemoteOperational, kEventRequestError, {}};

}  // namespace

void MrcResponder::receive(QpContext& qp, const wire::Packet& p, const wm::Packet& headers,
                           rte_mbuf* packet) {
  executor_.note_arrival(qp);
  ReceiveWindow& window = qp.requests.window;
  const Place where = window.classify(p.psn);
  if (qp.fatal) {
    acks_.owe_ack(qp);  // the NAK once more
    return;
  }
  switch (where) {
    case Place::kExpected: {
      if (!execute_expected(qp, p, headers, packet)) return;
      const bool filled_hole = window.has_hole();
      window.accept_in_order();
      note_come(qp, p);
      note_executed(qp, p, headers);
      acks_.owe_sack(qp, p, headers);
      if (filled_hole) advance(qp);
      if (p.ack_request || filled_hole || !p.more) acks_.owe_ack(qp);
      return;
    }
    case Place::kAhead:
      counters_.add(Counter::out_of_sequence);
      if (!window.has_hole()) counters_.add(Counter::packet_seq_err);
      if (accept_ahead(qp, p, headers, packet)) {
        acks_.owe_sack(qp, p, headers);
      } else {
        acks_.owe_nack(qp, p, headers, wm::NackReason::kNoResource);
      }
      return;
    case Place::kReceived:
      counters_.add(Counter::duplicate_request);
      acks_.owe_sack(qp, p, headers);
      return;
    case Place::kOld:
      // The SACK or the ACK that told of it may be lost.
      counters_.add(Counter::duplicate_request);
      acks_.owe_sack(qp, p, headers);
      acks_.owe_ack(qp);
      return;
    case Place::kBeyond:
      counters_.add(Counter::out_of_window);
      acks_.owe_nack(qp, p, headers, wm::NackReason::kPsnOutOfWindow);
      return;
  }
}

// Nothing behind the PSN is known, and no ICRC has covered that: only what is in the window and has
// not come is asked for.
void MrcResponder::receive_trimmed(QpContext& qp, const wire::Packet& p,
                                   const wm::Packet& headers) {
  const Place where = qp.requests.window.classify(p.psn);
  counters_.add(Counter::mrc_trimmed);
  if (qp.fatal || (where != Place::kExpected && where != Place::kAhead)) return;
  acks_.owe_trimmed_nack(qp, p, headers);
}

// Executes the expected packet. Returns false if its PSN stays the expected one: it is refused, or
// held for a later turn, or as good as lost.
bool MrcResponder::execute_expected(QpContext& qp, const wire::Packet& p, const wm::Packet& headers,
                                    rte_mbuf* packet) {
  const Outcome outcome = execute(qp, p, headers, payload_of(packet, p), /*ahead=*/false);
  if (outcome.done()) return true;
  if (outcome.kind != Outcome::kNotNow) {
    refuse(qp, p, outcome);
    return false;
  }
  if (!reorder_.enter(qp.requests, p.psn, packet)) {
    acks_.owe_nack(qp, p, headers, wm::NackReason::kNoResource);
    return false;
  }
  qp.requests.window.set(p.psn);
  note_come(qp, p);
  acks_.owe_sack(qp, p, headers);
  advance_list_.add(qp);
  return false;
}

// Whether a packet ahead of the expected one waits for those before it: immediate data does, for
// receives complete in the order of sending, and the end of a WRITE, which programs watch, but
// where `ordering`, or its region, leaves it to that.
bool MrcResponder::waits_for_its_turn(const wire::Packet& p) const {
  if (carries_immediate(p) || settings_.ordering == Ordering::kStrict) return true;
  if (p.more || !tails_wait(settings_.ordering)) return false;
  const MemoryRegionEntry* const region = placement_.regions().find(p.reth.key);
  return region == nullptr || (region->access & kAccessRelaxedOrdering) == 0;
}

// Takes a packet ahead of the expected one. Returns false if there is nowhere to keep it.
bool MrcResponder::accept_ahead(QpContext& qp, const wire::Packet& p, const wm::Packet& headers,
                                rte_mbuf* packet) {
  const bool is_placed = !waits_for_its_turn(p) &&
                         execute(qp, p, headers, payload_of(packet, p), /*ahead=*/true).done();
  // Whatever is wrong with it shows again when its turn has come.
  if (!is_placed && !reorder_.enter(qp.requests, p.psn, packet)) return false;
  qp.requests.window.set(p.psn);
  note_come(qp, p);
  return true;
}

Outcome MrcResponder::execute(QpContext& qp, const wire::Packet& p, const wm::Packet& headers,
                              std::span<const std::byte> payload, bool ahead) {
  if (!fits_path_mtu(qp, p) || !qp.takes(kAccessRemoteWrite))
    return refused(Refusal::kInvalidRequest);
  if (p.reth.length_bytes > kMaxMessageBytes) return refused(Refusal::kMessageTooLong);
  const bool takes_receive = carries_immediate(p);
  if (takes_receive) {
    qp.takes_receives = true;
    // Which receive it is says its number among those that take one.
    if (headers.meth.rqmsn != static_cast<uint16_t>(qp.recv_next_sn))
      return refused(Refusal::kInvalidRequest);
  }
  return executor_.place_write(qp,
                               {.key = p.reth.key,
                                .va = p.reth.va,
                                .checked_bytes = payload.size(),
                                .is_last = !p.more,
                                .takes_receive = takes_receive,
                                .sn = qp.recv_next_sn},
                               {p.psn, ahead}, payload);
}

// The packet is in the window of what has come, which SACKs tell.
void MrcResponder::note_come(QpContext& qp, const wire::Packet& p) {
  MrcConnection& connection = *qp.mrc;
  if (connection.arrivals.classify(p.psn) != mrc::ArrivalWindow::Place::kNew) return;
  connection.arrivals.receive(p.psn);
  connection.received_bytes += p.payload_bytes;
}

// A message ends with its last packet.
void MrcResponder::note_executed(QpContext& qp, const wire::Packet& p, const wm::Packet& headers) {
  if (p.more) return;
  qp.msn = headers.meth.msn;
  if (carries_immediate(p))
    executor_.complete(qp, qp.recv_next_sn,
                       receive_end_of(p, {.is_write = true, .has_imm = true}, p.reth.length_bytes));
}

// Ends the connection: the expected packet can't be executed.
void MrcResponder::refuse(QpContext& qp, const wire::Packet& p, const Outcome& outcome) {
  qp.refused = RefusedRequest::of(p, qp.recv_next_sn);
  const RefusalMeaning& meaning = outcome.kind == Outcome::kNoReceive
                                      ? kNoReceiveMeans
                                      : executor_.refuse(qp, qp.recv_next_sn, outcome.refusal);
  qp.fatal = true;
  qp.fatal_code = meaning.code;
  qp.fatal_psn = p.psn;
  counters_.add(Counter::nak_sent);
  reports_.publish_event(qp, meaning.event);
  acks_.owe_ack(qp);
}

void MrcResponder::advance(QpContext& qp) {
  ReceiveSpace& space = qp.requests;
  uint32_t budget = kAdvanceBudget;
  while (space.window.expected_received() && !qp.fatal) {
    if (space.pass_placed() != 0) continue;
    if (budget-- == 0) break;
    const Psn psn = space.window.expected();
    rte_mbuf* const packet = space.waiting(psn).packet();
    const wire::Packet p = held_headers(packet, wire::Dialect::kMrc);
    const wm::Packet headers = wm::headers_at(p.unread_headers);
    const Outcome outcome = execute(qp, p, headers, payload_of(packet, p), /*ahead=*/false);
    if (outcome.kind == Outcome::kNotNow) break;
    if (!outcome.done()) {
      refuse(qp, p, outcome);
      break;
    }
    space.window.advance();
    note_executed(qp, p, headers);
    reorder_.release_slot(space, psn);
    rte_pktmbuf_free(packet);
  }
  space.early_writes.release_before(placement_.early_writes(), space.window.expected());
  if (space.window.expected_received() && !qp.fatal) advance_list_.add(qp);
}

void MrcResponder::quiesce(QpContext& qp) {
  reorder_.drop(qp.requests);
  qp.requests.early_writes.clear(placement_.early_writes());
}

}  // namespace hostnic
