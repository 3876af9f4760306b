// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/acknowledge.h"

#include <utility>

#include "dataplane/nic/qp/receive_queue.h"
#include "protocol/prefetch.h"

namespace hostnic {

namespace {

// The value of AETH that says it has no credit (InfiniBand 9.7.5.1.2). Our credit is in SackETH.
constexpr uint8_t kNoAethCredit = 31;

// Returns an ACK that says: everything before `base` has been received. The caller fills in the
// rest.
[[gnu::always_inline]] inline wire::Packet plain_ack(const NicSettings& settings, uint32_t dest_qpn,
                                                     uint32_t src_qpn, Psn base, uint32_t msn) {
  wire::Packet p;
  p.opcode = wire::Opcode::kAck;
  p.dest_qpn = Qpn{dest_qpn};
  p.src_qpn = Qpn{src_qpn};
  p.policy = settings.policy;
  p.aeth.kind = wire::AckKind::kAck;
  p.aeth.code = kNoAethCredit;
  p.aeth.msn = msn & 0xffffff;
  p.psn = p.sack.base = base;
  p.sack.highest_acceptable = base + (settings.window - 1);
  return p;
}

}  // namespace

// Everything before the returned PSN has been received, for good. Under whole-message a message
// that is complete may still wait to be placed (rule 8, execution in PSN order): the base covers
// what is complete.
Psn Acknowledger::base(const QpContext& qp) const {
  const Psn placed = qp.requests.window.expected();
  if (settings_.policy != wire::Policy::kWholeMessage) return placed;
  return before(placed, qp.messages.promised()) ? placed : qp.messages.promised();
}

void Acknowledger::send_all() {
  AckBundleBuilder bundle;
  for (QpContext* qp : list_) {
    qp->on_ack_list = false;
    if (std::exchange(qp->ack_owed, false) && qp->state >= QpState::kRtr) send_ack(*qp, bundle);
  }
  if (!bundle.empty()) egress_.emit_open(bundle);
  // QPs that became due meanwhile (credit) get their ACK in the next turn.
  list_.swap(next_);
  next_.clear();
}

wire::Packet Acknowledger::make_ack(uint32_t dest_qpn, uint32_t src_qpn, Psn base,
                                    uint32_t msn) const {
  return plain_ack(settings_, dest_qpn, src_qpn, base, msn);
}

// Fills in what an ACK says of the queue pair, except for a bitmap; `sack` may have any value
// before.
[[gnu::always_inline]] inline void Acknowledger::fill_sack(QpContext& qp, wire::AckKind kind,
                                                           wire::Sack& sack) {
  sack.base = base(qp);
  sack.highest_acceptable = sack.base + (settings_.window - 1);
  sack.has_credit = qp.recv_entries != 0 && qp.srq == nullptr;
  const uint32_t limit = ReceiveQueues::posted(qp);
  sack.recv_sn_limit = limit;
  sack.echo_valid = qp.echo_valid;
  sack.echo_psn = qp.echo_psn;
  sack.echo_attempt = qp.echo_attempt;
  sack.echo_duplicate = qp.echo_duplicate;
  sack.congestion_mark = egress_.port().backlog() || qp.congestion_seen;
  sack.nak_sn = kind == wire::AckKind::kNak ? qp.fatal_psn.value() : qp.rnr_sn;
  sack.word_count = 0;
  qp.congestion_seen = false;
  qp.ack_kind = wire::AckKind::kAck;
  qp.echo_valid = false;
  qp.echo_duplicate = false;
  qp.unacknowledged = 0;
  if (qp.takes_receives && qp.srq == nullptr) watch_credit(qp, sack.recv_sn_limit);
}

// Adds the ACK to a bundle of ACKs to the same peer, if it is a plain one and there is room.
[[gnu::always_inline]] inline bool Acknowledger::add_ack(QpContext& qp, AckBundleBuilder& bundle) {
  if (qp.fatal || qp.old_read_refused || qp.ack_kind != wire::AckKind::kAck ||
      qp.requests.window.has_hole() || settings_.policy == wire::Policy::kWholeMessage ||
      !egress_.paths().prepare_flows(qp))
    return false;
  egress_.paths().answer_by(qp, qp.answer_path);
  BundledAck* const place = bundle.add(qp.peer, qp.response_flow);
  if (place == nullptr) return false;
  place->dest_qpn = Qpn{qp.dest_qpn};
  place->src_qpn = Qpn{qp.qpn};
  place->msn = qp.msn & 0xffffff;
  fill_sack(qp, wire::AckKind::kAck, place->sack);
  counters_.add(Counter::acks_sent);
  return true;
}

void Acknowledger::send_ack(QpContext& qp, AckBundleBuilder& bundle) {
  if (!bundle.empty()) {
    if (add_ack(qp, bundle)) return;
    egress_.emit_open(bundle);
  }
  const bool about_old_read = std::exchange(qp.old_read_refused, false);
  const wire::AckKind kind = qp.fatal || about_old_read ? wire::AckKind::kNak : qp.ack_kind;
  const bool whole_messages = settings_.policy == wire::Policy::kWholeMessage;
  // Any other NAK is about the expected PSN, and so acknowledges all before it.
  if (whole_messages && kind != wire::AckKind::kAck && !about_old_read)
    qp.messages.promise(qp.requests.window.expected());
  wire::Packet p = plain_ack(settings_, qp.dest_qpn, qp.qpn, base(qp), qp.msn);
  p.aeth.kind = kind;
  if (kind == wire::AckKind::kNak)
    p.aeth.code =
        static_cast<uint8_t>(about_old_read ? wire::NakCode::kRemoteAccess : qp.fatal_code);
  if (kind == wire::AckKind::kRnrNak) p.aeth.code = qp.min_rnr_timer;
  fill_sack(qp, kind, p.sack);
  if (about_old_read) p.sack.nak_sn = qp.old_read_psn.value();
  std::array<uint64_t, kBitmapWords> words;
  if (unlikely(qp.unseen)) {
    // The packet that is not placed yet counts. What has come behind it is said with the next ACK.
    p.psn = p.sack.base += 1;
  } else if (!whole_messages) {
    p.sack.word_count = static_cast<uint8_t>(qp.requests.window.sack_words(words));
  } else if (p.sack.base == qp.messages.promised()) {
    p.sack.word_count =
        static_cast<uint8_t>(qp.messages.sack_words(qp.requests.window.end(), words));
  }
  // An ACK that finds no room or no buffer is not sent: the next packet or probe causes another
  // (rule 33, nobody waits for another).
  if (!egress_.paths().prepare_flows(qp) || !egress_.has_room_for_ack(qp.peer)) {
    counters_.add(Counter::acks_dropped);
    return;
  }
  egress_.paths().answer_by(qp, qp.answer_path);
  rte_mbuf* packet = egress_.build_small(qp.response_flow, p, {words.data(), p.sack.word_count}, {},
                                         egress_.pools().control);
  if (packet == nullptr) {
    counters_.add(Counter::acks_dropped);
    return;
  }
  counters_.add(Counter::acks_sent);
  if (kind == wire::AckKind::kAck && p.sack.word_count == 0 && egress_.sends_bundles(qp.peer)) {
    bundle.begin(packet, qp.peer, qp.response_flow);
  } else {
    egress_.emit(packet, qp.peer);
  }
}

// The peer has used up its credit: whoever posts the next receive must tell us, and we the peer.
// The NIC sets the flag, fences, and looks again; the driver publishes, fences, and looks at the
// flag.
void Acknowledger::watch_credit(QpContext& qp, uint32_t advertised) {
  const bool starved = advertised == qp.recv_next_sn;
  // If the flag was set before, posts since then have seen it.
  if (qp.status->credit_watched.load(std::memory_order_relaxed) == (starved ? 1 : 0)) return;
  qp.status->credit_watched.store(starved ? 1 : 0, std::memory_order_relaxed);
  if (!starved) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (ReceiveQueues::posted(qp) != advertised) credit_posted(qp);
}

// Receives were posted to a QP whose peer waits for them: the peer is told.
void Acknowledger::credit_posted(QpContext& qp) {
  qp.status->credit_watched.store(0, std::memory_order_relaxed);
  if (qp.state < QpState::kRtr || qp.state == QpState::kErr) return;
  qp.ack_owed = true;
  if (!qp.on_ack_list) {
    qp.on_ack_list = true;
    next_.push_back(&qp);
  }
}

void Acknowledger::owe_plain(QpContext& qp) {
  qp.ack_owed = true;
  if (!qp.on_ack_list) {
    qp.on_ack_list = true;
    list_.push_back(&qp);
    prefetch_line(&qp.status->recv_posted);  // the credit that the ACK will say
  }
}

void Acknowledger::owe(QpContext& qp, const wire::Packet& p, bool duplicate) {
  qp.echo_valid = true;
  qp.echo_psn = p.psn;
  qp.echo_attempt = p.attempt;
  qp.echo_duplicate = duplicate;
  if (unlikely(settings_.paths > 1)) qp.answer_path = p.src_port & kPathMask;
  owe_plain(qp);
}

}  // namespace hostnic
