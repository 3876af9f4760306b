// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/mrc/completer.h"

#include <algorithm>
#include <bit>

#include "dataplane/nic/client/qp_status_update.h"

namespace hostnic {
namespace {

namespace wm = wire::mrc;
using mrc::EntropySet;
using mrc::EvState;

// How often it is looked which paths are to be probed, and how many are at once.
constexpr uint64_t kProbeIntervalNs = mrc::EntropySet::kFirstWaitNs;
constexpr uint32_t kProbesAtOnce = 4;

void set_bit(QpStatus& status, Psn psn) {
  status.sack[psn.value() / 64 % kBitmapWords] |= uint64_t{1} << psn.value() % 64;
}
void clear_bit(QpStatus& status, Psn psn) {
  status.sack[psn.value() / 64 % kBitmapWords] &= ~(uint64_t{1} << psn.value() % 64);
}

// By which path the packet went that an answer is about. Ports that can't choose their source port
// have one for all, so that the entropy that comes back is none of the set's: then its PSN tells.
uint32_t path_of_answer(const QpContext& qp, uint32_t entropy, Psn psn) {
  const uint32_t index = qp.mrc->paths.find(entropy);
  return index != EntropySet::kNone ? index : MrcCompleter::path_of(qp, psn);
}

// How long ago the moment was that an answer reflects; 0: nobody knows. What is a whole range of
// timestamps old looks young, and what seems nearly as old may be younger.
uint64_t age_ns(uint16_t timestamp, TimeNs now_ns) {
  const auto units = static_cast<uint16_t>(mrc_timestamp(now_ns) - timestamp);
  if (units >= INT16_MAX) return 0;
  return std::max<uint64_t>(uint64_t{units} * wm::Timestamp::kUnitNs, 1);
}

}  // namespace

MrcCompleter::MrcCompleter(const TransportServices& nic, MrcAcks& acks)
    : settings_(nic.settings),
      egress_(nic.egress),
      reports_(nic.reports),
      counters_(nic.counters),
      now_(nic.now),
      acks_(acks) {
  probing_.reserve(nic.settings.nic_qps);
}

// ---- what has come

void MrcCompleter::receive_sack(QpContext& qp, const wm::Packet& sack) {
  counters_.add(Counter::mrc_sacks_received);
  MrcConnection& connection = *qp.mrc;
  if (!connection.is_sending) return;
  note_left(qp);
  const Psn answered = sack.seth.ack_psn();
  const bool had_come = connection.sends.has_come(answered);
  const Psn come_before = connection.sends.una();
  const mrc::SendWindow::SackResult result =
      connection.sends.on_sack(sack.seth, [&](Psn psn) { note_come(qp, psn); });
  if (!result.is_valid) return;
  qp.heard_ns = now_;
  take_path(qp, sack);
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  take_bitmap(qp, sack.seth, come_before);
  if (!sack.seth.answers_probe) {
    // A repetition that finds its packet there was not needed; but several SACKs in a row may
    // answer one packet.
    const bool is_same = status.echo_psn == answered.value() && status.echo_attempt != 0;
    if (sack.retransmission && had_come && !is_same) {
      ++status.spurious_count;
      connection.ledger.note_spurious();
    }
    status.echo_psn = answered.value();
    status.echo_attempt = sack.retransmission ? 1 : 0;
    ++status.echo_count;
    if (sack.has_cc_state) take_congestion(qp, sack, result.newly_come);
  }
  tell_losses(qp);
  publish_window(qp);
  ++status.ack_count;
  reports_.add(qp);
}

// Writes what a SACK says into the bitmap that the driver reads, from the first PSN that no
// transport ACK covers on.
void MrcCompleter::take_bitmap(QpContext& qp, const wm::Seth& seth, Psn come_before) {
  QpStatus& status = *qp.status;
  const Psn come = qp.mrc->sends.una();
  Psn end(status.sack_end_psn);
  for (Psn psn = before(come_before, qp.una) ? qp.una : come_before; before(psn, come); psn += 1)
    set_bit(status, psn);
  if (before(end, come)) end = come;
  const Psn from = seth.bitmap_psn();
  for (uint64_t bits = seth.bitmap; bits != 0; bits &= bits - 1) {
    const Psn psn = from + static_cast<uint32_t>(std::countr_zero(bits));
    if (before(psn, qp.una) || !qp.mrc->sends.has_come(psn)) continue;
    set_bit(status, psn);
    if (before(end, psn + 1)) end = psn + 1;
  }
  status.sack_end_psn = end.value();
}

void MrcCompleter::note_come(QpContext& qp, Psn psn) {
  MrcConnection& connection = *qp.mrc;
  const uint32_t path = connection.ledger.note_come(psn, connection.congestion.shortest_ns(), now_);
  if (path < connection.paths.size()) connection.paths.note_come(path);
}

// What has come shows what is lost: it was sent before, by the same path. The status is open for
// writing.
void MrcCompleter::tell_losses(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  connection.ledger.find_lost([&](Psn psn, uint32_t path) {
    tell_loss(qp, psn);
    connection.congestion.on_loss(/*is_trimmed=*/false, connection.ledger.sent_ns(psn), now_);
    if (connection.ledger.score(path) >= mrc::PathLedger::kBadScore) lose_path(qp, path);
  });
}

// Tells the driver that a packet is to go again, without its having to find that out.
void MrcCompleter::tell_loss(QpContext& qp, Psn psn) {
  QpStatus& status = *qp.status;
  status.losses_told[psn.value() / 64 % kBitmapWords] ^= uint64_t{1} << psn.value() % 64;
  if (++status.losses_reported == 0) status.losses_reported = 1;
}

// A path loses too much. Where nearly all do it is not the path that loses.
void MrcCompleter::lose_path(QpContext& qp, uint32_t path) {
  MrcConnection& connection = *qp.mrc;
  connection.ledger.clear_score(path);
  if (path >= connection.paths.size() || connection.paths.is_most_bad()) return;
  if (!connection.paths.note_silence(path, now_)) return;
  counters_.add(Counter::mrc_paths_lost);
  watch_paths(qp);
}

// What the SACK says of the path that its packet went by.
void MrcCompleter::take_path(QpContext& qp, const wm::Packet& sack) {
  if (sack.seth.answers_probe) return take_probe_answer(qp, sack);
  EntropySet& paths = qp.mrc->paths;
  const uint32_t path = path_of_answer(qp, sack.seth.entropy, sack.seth.ack_psn());
  if (path >= paths.size()) return;
  if (sack.seth.mark == wm::PathMark::kAlwaysSkip) {
    if (!paths.note_silence(path, now_)) return;
    counters_.add(Counter::mrc_paths_lost);
    watch_paths(qp);
    return;
  }
  paths.note_mark(path, sack.seth.mark);
}

// A path whose probe waited in a queue for longer than congestion may last is no better than
// before.
void MrcCompleter::take_probe_answer(QpContext& qp, const wm::Packet& sack) {
  MrcConnection& connection = *qp.mrc;
  EntropySet& paths = connection.paths;
  const uint32_t index = sack.seth.probe_id;
  if (index >= paths.size() || paths.state(index) != EvState::kAssumedBad) return;
  const mrc::Nscc& congestion = connection.congestion;
  const uint64_t rtt_ns = sack.has_cc_state ? age_ns(sack.cc_state.timestamp, now_) : 0;
  const bool is_slow = congestion.shortest_ns() != 0 &&
                       rtt_ns > congestion.shortest_ns() + 2 * congestion.target_ns();
  paths.note_probe_answer(index, sack.seth.mark, is_slow);
  if (paths.state(index) == EvState::kAssumedBad) return;
  connection.ledger.clear_score(index);
  counters_.add(Counter::mrc_paths_regained);
}

void MrcCompleter::take_congestion(QpContext& qp, const wm::Packet& sack, uint32_t newly_come) {
  QpStatus& status = *qp.status;
  const uint64_t rtt_ns = age_ns(sack.cc_state.timestamp, now_);
  if (rtt_ns == 0) return;
  status.rtt_ns = static_cast<uint32_t>(rtt_ns);
  ++status.rtt_count;
  const bool is_marked = sack.seth.mark != wm::PathMark::kNone;
  if (is_marked) ++status.mark_count;
  qp.mrc->congestion.on_penalty(sack.cc_state.window_penalty);
  qp.mrc->congestion.on_sack(uint64_t{newly_come} * qp.mtu_bytes, rtt_ns, is_marked, now_);
}

// Says how far the peer's window and the congestion window let the driver go.
void MrcCompleter::publish_window(QpContext& qp) {
  const MrcConnection& connection = *qp.mrc;
  const uint32_t psns = connection.sends.mpr_units() * wm::kMprUnitPsns;
  const Psn highest = qp.una + (std::min(psns, settings_.window) - 1);
  if (distance(Psn(qp.status->highest_acceptable_psn), highest) > 0)
    qp.status->highest_acceptable_psn = highest.value();
  qp.status->window_psns = connection.congestion.window_psns();
}

// ---- what was not taken, and what is done

void MrcCompleter::receive_nack(QpContext& qp, const wm::Packet& nack) {
  counters_.add(Counter::mrc_nacks_received);
  const Psn psn = nack.neth.psn;
  if (!qp.mrc->is_sending || distance(qp.una, psn) < 0 || distance(psn, qp.transmitted) <= 0)
    return;
  qp.heard_ns = now_;
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  if (nack.neth.reason == wm::NackReason::kTrimmed ||
      nack.neth.reason == wm::NackReason::kTrimmedLastHop)
    take_trimmed(qp, nack);
  else
    qp.mrc->ledger.forget(psn);
  if (nack.neth.reason == wm::NackReason::kUnexpectedEvent) {
    status.nak = make_nak(static_cast<uint32_t>(wire::AckKind::kNak),
                          static_cast<uint32_t>(wire::NakCode::kRemoteOperational));
    status.nak_psn = status.nak_sn = psn.value();
    ++status.nak_count;
  }
  // The peer has heard it: that is no silence.
  status.echo_psn = psn.value();
  status.echo_attempt = nack.retransmission ? 1 : 0;
  ++status.echo_count;
  ++status.ack_count;
  reports_.add(qp);
}

// The packet goes again at once, unless it has left again since: then its last transmission is
// another than the one that was trimmed. The status is open for writing.
void MrcCompleter::take_trimmed(QpContext& qp, const wm::Packet& nack) {
  MrcConnection& connection = *qp.mrc;
  const Psn psn = nack.neth.psn;
  const uint32_t path = path_of_answer(qp, nack.neth.entropy, psn);
  if (path < connection.paths.size()) connection.paths.note_mark(path, wm::PathMark::kSkipOnce);
  mrc::PathLedger& ledger = connection.ledger;
  if (!ledger.is_waited_for(psn) || mrc_timestamp(ledger.sent_ns(psn)) != nack.neth.timestamp)
    return;
  connection.congestion.on_loss(/*is_trimmed=*/true, ledger.sent_ns(psn), now_);
  ledger.forget(psn);
  tell_loss(qp, psn);
  publish_window(qp);
}

void MrcCompleter::receive_ack(QpContext& qp, const wm::Packet& ack) {
  counters_.add(Counter::acks_received);
  const bool is_nak = ack.aeth.kind != wire::AckKind::kAck;
  // A NAK names the PSN that was refused, and acknowledges those before it.
  const Psn done = is_nak ? ack.psn : ack.psn + 1;
  if (!qp.mrc->is_sending || distance(qp.una, done) < 0 || distance(done, qp.transmitted) < 0)
    return;
  qp.heard_ns = now_;
  const uint32_t covered =
      qp.mrc->sends.on_transport_ack(done + Psn::kMask, [&](Psn psn) { note_come(qp, psn); });
  qp.mrc->sends.open_from(done);
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  // Behind the end of the bitmap nothing is set, however much a client says that it has sent.
  const Psn end(before(Psn(status.sack_end_psn), done) ? status.sack_end_psn : done.value());
  for (Psn psn = qp.una; before(psn, end); psn += 1) clear_bit(status, psn);
  qp.una = done;
  if (covered != 0) qp.note_progress(now_);
  status.una_psn = done.value();
  if (before(Psn(status.sack_end_psn), done)) status.sack_end_psn = done.value();
  if (is_nak) {
    counters_.add(Counter::nak_received);
    status.nak = make_nak(static_cast<uint32_t>(wire::AckKind::kNak), ack.aeth.code);
    status.nak_psn = status.nak_sn = done.value();
    ++status.nak_count;
  }
  tell_losses(qp);
  publish_window(qp);
  ++status.ack_count;
  reports_.add(qp);
}

// ---- what leaves

void MrcCompleter::note_repetition(QpContext& qp, Psn psn, RepeatCause cause, bool is_first) {
  MrcConnection& connection = *qp.mrc;
  if (cause == RepeatCause::timeout && is_first) note_timeout(qp, psn);
  if (cause != RepeatCause::gap || connection.sends.has_come(psn)) return;
  // Others have overtaken it by other paths, and nothing that came behind it by its own.
  const uint32_t path = connection.ledger.give_up(psn);
  if (path == mrc::PathLedger::kNoPath) return;
  connection.congestion.on_loss(/*is_trimmed=*/false, connection.ledger.sent_ns(psn), now_);
  if (connection.ledger.score(path) >= mrc::PathLedger::kBadScore) lose_path(qp, path);
}

void MrcCompleter::note_timeout(QpContext& qp, Psn psn) {
  MrcConnection& connection = *qp.mrc;
  if (connection.sends.has_come(psn)) return;
  connection.congestion.on_timeout();
  const uint32_t index = path_of(qp, psn);
  if (index >= connection.paths.size() || !connection.paths.note_silence(index, now_)) return;
  counters_.add(Counter::mrc_paths_lost);
  watch_paths(qp);
}

void MrcCompleter::note_transmitted(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                                    uint32_t path) {
  MrcConnection& connection = *qp.mrc;
  connection.ledger.note_sent(p.psn, path, (d.flags & kSendRetransmit) != 0, now_);
  connection.paths.take();
  if (connection.has_unwatched) watch_paths(qp);
  if ((d.flags & kSendRetransmit) != 0)
    qp.note_sent_again(counters_, repeat_cause_of(d), 1, p.psn, now_);
  const Psn next = p.psn + 1;
  if (distance(qp.transmitted, next) <= 0) return;
  qp.note_sent_first(now_);
  qp.transmitted = next;
  note_left(qp);
  qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
}

// Has the window know what has left. A driver keeps to it; one that does not is not understood.
// What was behind its edge when it left may be inside by now.
void MrcCompleter::note_left(QpContext& qp) {
  mrc::SendWindow& sends = qp.mrc->sends;
  while (before(sends.next(), qp.transmitted) && sends.room() != 0) sends.take();
}

void MrcCompleter::fail_send(QpContext& qp, Psn psn, LocalError error) {
  if (before(psn, Psn(qp.status->acknowledged_psn.load(std::memory_order_acquire)))) return;
  reports_.fail_send(qp, psn, error);
}

// ---- probes

void MrcCompleter::watch_paths(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  connection.has_unwatched = false;
  if (connection.on_probe_list) return;
  connection.on_probe_list = true;
  connection.next_probe_ns = now_ + kProbeIntervalNs;
  probing_.push_back(&qp);
  next_probe_ns_ = std::min(next_probe_ns_, connection.next_probe_ns);
}

void MrcCompleter::forget(QpContext& qp) {
  if (qp.mrc == nullptr || !qp.mrc->on_probe_list) return;
  qp.mrc->on_probe_list = false;
  std::erase(probing_, &qp);
}

uint32_t MrcCompleter::send_probes() {
  if (now_ < next_probe_ns_) return 0;
  uint32_t sent = 0;
  next_probe_ns_ = UINT64_MAX;
  std::erase_if(probing_, [&](QpContext* qp) {
    MrcConnection& connection = *qp->mrc;
    // While nothing is outstanding nobody needs to know; the next packet that leaves begins again.
    const bool any_bad = connection.paths.next_bad(0) != EntropySet::kNone;
    if (!any_bad || qp->una == qp->transmitted) {
      connection.on_probe_list = false;
      connection.has_unwatched = any_bad;
      return true;
    }
    if (now_ >= connection.next_probe_ns) {
      connection.next_probe_ns = now_ + kProbeIntervalNs;
      for (uint32_t i = 0; i < kProbesAtOnce && send_probe(*qp); ++i) ++sent;
    }
    next_probe_ns_ = std::min(next_probe_ns_, connection.next_probe_ns);
    return false;
  });
  return sent;
}

bool MrcCompleter::send_probe(QpContext& qp) {
  MrcConnection& connection = *qp.mrc;
  if (!egress_.paths().prepare_flows(qp)) return false;
  const uint32_t index = connection.paths.next_bad(connection.probe_from, now_);
  if (index == EntropySet::kNone) return false;
  wm::Packet probe;
  probe.opcode = wm::Opcode::kProbe;
  probe.peth.probe_id = static_cast<uint16_t>(index);
  probe.peth.contexts = {static_cast<uint16_t>(qp.qpn), static_cast<uint16_t>(qp.dest_qpn)};
  probe.peth.timestamp.value = mrc_timestamp(now_);
  wire::FlowTemplate flow = qp.request_flow;
  wire::set_source_port(flow, connection.paths.value(index));
  if (!acks_.send_control(qp, flow, probe)) return false;
  connection.probe_from = (index + 1) % connection.paths.size();
  connection.paths.note_probed(index, now_);
  counters_.add(Counter::mrc_probes_sent);
  return true;
}

}  // namespace hostnic
