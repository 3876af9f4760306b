// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/roce.h"

#include <utility>

#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/cause.h"
#include "verbs-shim/driver/qp_state.h"

namespace hostnic::driver {
namespace {

// PSNs in flight at most: what one lost packet makes go again.
constexpr uint32_t kMostInFlight = 512;
// What one READ request asks for at most; by any path MTU that is a power of two of answers.
constexpr uint32_t kRequestBytes = 64 * 1024;
// A missing packet that went again alone: how long its acknowledgement may take at least, while it
// is not known how long that of another one took and when it is; how often it goes; and how often
// in a row the peer may have dropped what is behind it until that is taken for granted.
constexpr uint64_t kFirstFillNs = 500'000, kLeastFillNs = 100'000;
constexpr uint32_t kMostFills = 3;
constexpr uint32_t kMostDoubts = 3;

// What `psns` packets of a WRITE or SEND carry, from number `within` on.
uint32_t payload_bytes(const SendQueue& queue, const Wqe& w, uint32_t within, uint32_t psns) {
  return std::min(psns << queue.mtu_shift(), w.length_bytes - (within << queue.mtu_shift()));
}

}  // namespace

void RoceRequester::start(SendQueue& queue, Psn first, TimeNs now_ns) {
  const DriverSettings& settings = queue.host.settings();
  *this = RoceRequester();
  una_ = again_ = next_ = repeated_until_ = first;
  const uint32_t window = std::min(settings.window, kMostInFlight);
  congestion_.reset(first, window, settings.congestion_allowance_ns);
  limiter_.reset(settings.line_rate_mbps);
  tell_rate(queue);
  answers_per_request_ = std::min(kRequestBytes >> queue.mtu_shift(), window / 4);
  queue.status().acknowledged_psn.store(first.value(), std::memory_order_release);
  patience_.start(now_ns);
  patience_.tell_limits(queue, kTimeoutStretch);
}

QpGauges RoceRequester::gauges(const SendQueue& queue) const {
  return {.requests_in_flight = in_flight(),
          .responses_in_flight = requests_.size(),
          .request_window = std::min(queue.host.settings().window, kMostInFlight),
          .response_window = read_limit(queue),
          .rto_ns = rto_ns(queue)};
}

uint32_t RoceRequester::room(const SendQueue& queue) const {
  uint32_t room = congestion_.psns() - std::min(congestion_.psns(), in_flight());
  if (has_rate_) [[unlikely]] {
    const uint32_t by_rate = packets_by_rate(queue);
    if (by_rate == 0) return 0;
    // A request for answers is one packet, however many these are.
    if (!is_read_or_atomic(queue.wqe(queue.next_to_issue()).op)) room = std::min(room, by_rate);
  }
  const Wqe& w = queue.wqe(queue.next_to_issue());
  if (!is_read_or_atomic(w.op)) return room;
  if (requests_.size() >= read_limit(queue)) return 0;
  // All answers of a request must find room; one request may go whatever the window.
  return answers_of_request(queue, w, w.started ? w.issued_psns : 0) <= room || in_flight() == 0
             ? std::max(room, 1u)
             : 0;
}

// Whether a request waits for READs before it: by its fence for atomics, too; else while it could
// change what they say (docs/transport.md rule 18). The peer executes in the order of the PSNs, and
// keeps what atomics said; but a READ that is asked for again is executed again.
bool RoceRequester::waits_for_reads(const SendQueue& queue, const Wqe& w) const {
  if (w.fence && !requests_.empty()) return true;
  return outstanding_reads_.hold_back(
      queue, w, next_read_number_, reads_outstanding_,
      [this](const Wqe& earlier) { return finished(earlier); },
      [](const Wqe& earlier) { return earlier.op == SendOp::kRead; });
}

// How many answers a READ request, or an atomic, asks for from number `within` on: up to where the
// next request begins, whenever it is sent, since a responder that sees some of it again must have
// seen all of it (InfiniBand 9.7.5.1.3).
uint32_t RoceRequester::answers_of_request(const SendQueue& queue, const Wqe& w,
                                           uint32_t within) const {
  if (is_atomic(w.op)) return 1;
  const uint32_t past = within & (answers_per_request_ - 1);
  return std::min(answers_per_request_ - past, queue.packets_for(w.length_bytes) - within);
}

void RoceRequester::assign(SendQueue& queue, Wqe& w, uint32_t index) {
  w.first_psn = next_;
  w.psn_count = is_atomic(w.op) ? 1 : queue.packets_for(w.length_bytes);
  if (!is_read_or_atomic(w.op)) return;
  ++reads_outstanding_;
  outstanding_reads_.begin(next_read_number_, index);
  w.recv_sn = next_read_number_++;
  queue.fill_read_destination(w, index);
}

// Hands over a READ request for answers from number `within` on, or an atomic. Returns for how many
// answers.
uint32_t RoceRequester::send_request(SendQueue& queue, const Wqe& w, uint32_t within,
                                     uint8_t flags) {
  SendDescriptor d{};
  d.op = w.op;
  d.flags = flags;
  if ((flags & kSendRetransmit) != 0) d.attempt = attempt_with(0, again_cause_);
  d.qpn = queue.qpn;
  d.psn = (w.first_psn + within).value();
  d.va = w.remote_va;
  d.key = w.rkey;
  d.message_bytes = w.length_bytes;
  d.recv_sn = w.recv_sn;
  const uint32_t answers = answers_of_request(queue, w, within);
  if (is_atomic(w.op)) {
    d.length_bytes = 8;
    d.atomic.swap_or_add = w.op == SendOp::kCompareSwap ? w.swap : w.compare_add;
    d.atomic.compare = w.compare_add;
  } else {
    d.read_offset_bytes = within << queue.mtu_shift();
    d.length_bytes = std::min(answers << queue.mtu_shift(), w.length_bytes - d.read_offset_bytes);
  }
  queue.host.map.sends.enqueue_bulk(&d, 1);
  queue.host.published();
  requests_.push(w.first_psn + (within + answers));
  return answers;
}

// Spends what the rate allows on packets that leave now. Returns the flags of their descriptor.
uint8_t RoceRequester::spend_rate(SendQueue& queue, uint32_t packets, uint32_t payload_bytes) {
  if (limiter_.limited()) {
    limiter_.take(packets, payload_bytes);
    if (!limiter_.limited()) tell_rate(queue);
  }
  const bool untold = rate_untold_;
  rate_untold_ = false;
  has_rate_ = limiter_.limited();
  return untold ? uint8_t{kSendRateChanged} : uint8_t{0};
}

// Writes down how fast packets may leave.
void RoceRequester::tell_rate(SendQueue& queue) {
  const DcqcnRate& rate = limiter_.rate();
  QpStatus& status = queue.status();
  const uint32_t mbps = rate.limited() ? std::max(rate.kbps() / 1000, 1u) : 0;
  status.rate_mbps.store(mbps, std::memory_order_relaxed);
  status.alpha_permille.store(rate.alpha_permille(), std::memory_order_relaxed);
  status.rate_cuts.store(rate.cuts(), std::memory_order_relaxed);
  status.rate_recoveries.store(rate.recoveries(), std::memory_order_relaxed);
  DriverCounters& totals = queue.host.totals;
  totals.rate_cuts += rate.cuts() - told_cuts_;
  totals.rate_recoveries += rate.recoveries() - told_recoveries_;
  rate_untold_ |= rate.cuts() != told_cuts_ || rate.recoveries() != told_recoveries_;
  told_cuts_ = rate.cuts();
  told_recoveries_ = rate.recoveries();
  has_rate_ = rate.limited() || rate_untold_;
}

void RoceRequester::send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room,
                              uint64_t limit_bytes, TimeNs now_ns) {
  uint32_t psns = 0;
  if (is_read_or_atomic(w.op)) {
    psns = send_request(queue, w, w.issued_psns, has_rate_ ? spend_rate(queue, 1, 0) : uint8_t{0});
    psns_since_ack_request_ = 0;  // its answers acknowledge what is before it
  } else {
    psns = std::min(
        {w.psn_count - w.issued_psns, room, queue.chunk_packets(limit_bytes, congestion_.psns())});
    // The last packet of a message asks, as adapters have it, and one in every quarter window.
    const bool ask = w.issued_psns + psns == w.psn_count || psns == room ||
                     psns_since_ack_request_ + psns >= congestion_.psns() / 4;
    uint8_t flags = ask ? kSendAckRequest : 0;
    if (has_rate_) [[unlikely]]
      flags |= spend_rate(queue, psns, payload_bytes(queue, w, w.issued_psns, psns));
    queue.send_range(w, index, w.issued_psns, psns, {}, flags, queue.host.map.sends);
    psns_since_ack_request_ = ask ? 0 : psns_since_ack_request_ + psns;
  }
  w.issued_psns += psns;
  next_ += psns;
  again_ = next_;
  // Whatever asks for an answer is answered when all of it has come.
  if (timed_ns_ == 0 && psns_since_ack_request_ == 0) {
    timed_until_ = next_;
    timed_ns_ = now_ns;
  }
  sent_ns_ = now_ns;
}

// What goes again leaves by the same ring as all else: in the order of the PSNs, behind what was
// handed over before and has not left, which the peer drops.
bool RoceRequester::send_again(SendQueue& queue, TimeNs now_ns) {
  if (has_rate_ && limiter_.limited()) [[unlikely]] {
    limiter_.advance(now_ns);
    tell_rate(queue);
  }
  if (rnr_.waiting()) return true;
  if (filling_ == Filling::kDue && !send_missing(queue, now_ns)) return false;
  while (again_ != next_) {
    const uint32_t index = queue.find_by_psn(again_);
    if (queue.failed_at_or_before(index)) return true;
    if (!queue.host.map.sends.has_room(1 + kMaxExtraElements)) return false;
    const Wqe& w = queue.wqe(index);
    const auto within = static_cast<uint32_t>(distance(w.first_psn, again_));
    const uint32_t by_rate = packets_by_rate(queue);
    if (by_rate == 0) return true;  // the timer says when
    uint32_t psns = static_cast<uint32_t>(distance(again_, next_));
    uint8_t flags = kSendRetransmit;
    if (is_read_or_atomic(w.op)) {
      if (requests_.size() >= read_limit(queue)) return true;  // answers to these come first
      if (has_rate_) flags |= spend_rate(queue, 1, 0);
      psns = send_request(queue, w, within, flags);
    } else {
      psns = std::min({psns, w.issued_psns - within, queue.resent_packets(), by_rate});
      if (has_rate_) flags |= spend_rate(queue, psns, payload_bytes(queue, w, within, psns));
      queue.send_range(w, index, within, psns, {attempt_with(1, again_cause_)},
                       flags | kSendAckRequest, queue.host.map.sends);
    }
    again_ += psns;
    sent_ns_ = now_ns;
    queue.host.totals.retransmitted_packets += psns;
  }
  return true;
}

// Whether the packet at una_ may go again alone. A READ's answers are not held, nor is it known of
// what has left more than once whether it was.
bool RoceRequester::may_fill(const SendQueue& queue) const {
  if (queue.host.settings().policy == wire::Policy::kGoBackN || again_ != next_) return false;
  if (peer_ == Peer::kDrops) return false;
  if (peer_ == Peer::kUnknown && before(una_, repeated_until_)) return false;
  return !is_read_or_atomic(queue.wqe(queue.find_by_psn(una_)).op);
}

void RoceRequester::fill(RepeatCause cause, TimeNs now_ns) {
  fill_cause_ = cause;
  timed_ns_ = 0;
  fills_ = filling_ == Filling::kSent && fill_psn_ == una_ ? fills_ + 1 : 0;
  filling_ = Filling::kDue;
  fill_psn_ = una_;
  fill_ns_ = now_ns;
}

// Hands over the missing packet, which overtakes what has not left yet. Returns false if the ring
// is full.
bool RoceRequester::send_missing(SendQueue& queue, TimeNs now_ns) {
  const uint32_t index = queue.find_by_psn(una_);
  if (queue.failed_at_or_before(index)) {
    filling_ = Filling::kNo;
    return true;
  }
  if (!queue.host.map.urgent.has_room(1 + kMaxExtraElements)) return false;
  const Wqe& w = queue.wqe(index);
  const auto within = static_cast<uint32_t>(distance(w.first_psn, una_));
  uint8_t flags = kSendRetransmit | kSendAckRequest;
  // It does not wait for the rate, but those behind it do.
  if (has_rate_) flags |= spend_rate(queue, 1, payload_bytes(queue, w, within, 1));
  queue.send_range(w, index, within, 1, {attempt_with(1, fill_cause_)}, flags,
                   queue.host.map.urgent);
  filling_ = Filling::kSent;
  fill_until_ = queue.transmitted();
  sent_ns_ = fill_ns_ = now_ns;
  ++queue.host.totals.retransmitted_packets;
  return true;
}

// Takes the acknowledgement of a missing packet that went again alone. Where it ends before what
// left earlier than that packet, the next one is missing; but a READ's answers may be on their way.
void RoceRequester::note_filled(const SendQueue& queue, TimeNs now_ns) {
  const Filling was = std::exchange(filling_, Filling::kNo);
  if (was == Filling::kSent) fill_rtt_.sample(now_ns - fill_ns_);
  if (was == Filling::kDue || !before(fill_psn_ + 1, fill_until_)) return;
  const bool holds = was == Filling::kAnswers || before(fill_psn_ + 1, una_);
  doubts_ = holds ? 0 : doubts_ + 1;
  if (holds) {
    peer_ = Peer::kHolds;
  } else if (peer_ == Peer::kUnknown && doubts_ == kMostDoubts) {
    peer_ = Peer::kDrops;
  }
  if (!before(una_, fill_until_)) return;
  // A peer that holds may miss two packets in a row, or find no room.
  if (peer_ != Peer::kHolds || doubts_ >= kMostDoubts) {
    go_back(RepeatCause::gap);
  } else if (was == Filling::kSent && may_fill(queue)) {
    fill(RepeatCause::gap, now_ns);
  } else {
    filling_ = Filling::kAnswers;
    fill_psn_ = una_;
    fill_ns_ = now_ns;
  }
}

// Two round trips, as far as they are known.
uint64_t RoceRequester::fill_timeout_ns(const SendQueue& queue) const {
  const uint64_t rto = rto_ns(queue);
  if (fill_rtt_.valid()) return std::min(rto, std::max(kLeastFillNs, 2 * fill_rtt_.srtt_ns()));
  return rtt_.valid() ? std::min(rto, std::max(kFirstFillNs, 2 * rtt_.srtt_ns())) : rto;
}

void RoceRequester::time_answer(SendQueue& queue, TimeNs now_ns) {
  if (timed_ns_ == 0 || distance(timed_until_, una_) < 0) return;
  rtt_.sample(now_ns - timed_ns_);
  timed_ns_ = 0;
  patience_.end_backoff();
  patience_.tell(queue, rtt_);
}

void RoceRequester::take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  if (snapshot.mark_count != seen_mark_count_) {
    seen_mark_count_ = snapshot.mark_count;
    if (limiter_.on_cnp(now_ns)) tell_rate(queue);
  }
  // The status is believed only in what is possible (rule 22, valid ACKs).
  const Psn una(snapshot.una_psn);
  if (distance(una_, una) > 0 && distance(una, next_) >= 0) {
    una_ = una;
    if (before(again_, una_)) again_ = una_;
    while (!requests_.empty() && distance(requests_.front(), una_) >= 0) requests_.pop_front();
    queue.status().acknowledged_psn.store(una_.value(), std::memory_order_release);
    patience_.note_progress(now_ns);
    time_answer(queue, now_ns);
    rnr_.forget();
    if (filling_ != Filling::kNo) note_filled(queue, now_ns);
  }
  congestion_.on_ack(una_, next_);
}

void RoceRequester::take_refusals(SendQueue& queue, const QpStatusSnapshot& snapshot,
                                  TimeNs now_ns) {
  if (snapshot.response_error != 0) {
    const Cause cause = cause_of_local_error(snapshot.response_error);
    queue.fail(queue.find_by_psn(una_), cause.status, cause.vendor);
  }
  if (snapshot.nak != 0 && snapshot.nak_count != seen_nak_count_) take_nak(queue, snapshot, now_ns);
}

void RoceRequester::take_nak(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  seen_nak_count_ = snapshot.nak_count;
  if (Psn(snapshot.nak_psn) != una_ || in_flight() == 0) return;  // about what has come since
  const uint32_t kind = snapshot.nak >> 8, code = snapshot.nak & 0xff;
  if (kind == kNakKindRnr) {
    if (rnr_.waiting()) return;
    patience_.note_progress(now_ns);  // the peer answers: this is not silence
    if (!rnr_.begin(queue, code, now_ns)) {
      queue.fail(queue.find_by_psn(una_), WcStatus::kRnrRetryExcErr,
                 VendorError::kReceiverNotReady);
      return;
    }
    filling_ = Filling::kNo;
    return;
  }
  if (code == 0) {  // a PSN is missing
    // It goes again already, and a timer watches over it.
    if (filling_ == Filling::kDue || filling_ == Filling::kSent) return;
    if (may_fill(queue)) {
      fill(RepeatCause::nak, now_ns);
    } else {
      go_back(RepeatCause::nak);
    }
    return;
  }
  const Cause cause = cause_of_nak(code);
  queue.fail(queue.find_by_psn(una_), cause.status, cause.vendor);
}

TimeNs RoceRequester::deadline_ns(const SendQueue& queue) const {
  const TimeNs look_ns = limiter_.limited() ? next_look_ns() : UINT64_MAX;
  if (rnr_.waiting()) return std::min(rnr_.until_ns(), look_ns);
  if (in_flight() == 0) return look_ns;
  TimeNs due = std::min(quiet_since_ns() + rto_ns(queue), patience_.over_ns(queue));
  if (filling_ != Filling::kNo) due = std::min(due, fill_ns_ + fill_timeout_ns(queue));
  return std::min(due, look_ns);
}

bool RoceRequester::on_timer(SendQueue& queue, TimeNs now_ns) {
  if (rnr_.waiting()) {
    if (now_ns < rnr_.until_ns()) return true;
    rnr_.end(/*probe=*/false);
    patience_.note_progress(now_ns);
    go_back(RepeatCause::rnr);
    return true;
  }
  if (in_flight() == 0) return true;
  patience_.charge(queue, now_ns, una_, rto_ns(queue));
  if (patience_.is_over(queue)) {
    queue.fail(queue.head(), WcStatus::kRetryExcErr, queue.why_no_answer());
    return false;
  }
  if (filling_ != Filling::kNo && now_ns >= fill_ns_ + fill_timeout_ns(queue)) {
    if (filling_ == Filling::kSent && peer_ == Peer::kHolds && fills_ + 1 < kMostFills) {
      fill(RepeatCause::probe, now_ns);
    } else {
      go_back(RepeatCause::probe);
    }
  }
  const uint64_t rto = rto_ns(queue);
  const TimeNs due_ns = quiet_since_ns() + rto;
  if (now_ns < due_ns || !patience_.nic_has_looked(queue, now_ns, due_ns, rto)) return true;
  patience_.note_fired(now_ns);
  // What waits for its time by the rate is not lost, and nobody can have answered it.
  if (again_ == una_ && limiter_.limited()) return true;
  patience_.note_timeout();
  patience_.tell(queue, rtt_);
  ++queue.host.totals.timeouts;
  congestion_.on_timeout();
  log_debug("QP 0x%x: timeout %u: nothing of PSNs %u..%u came back", queue.qpn, patience_.retries(),
            una_.value(), next_.value());
  go_back(RepeatCause::timeout);
  return true;
}

}  // namespace hostnic::driver
