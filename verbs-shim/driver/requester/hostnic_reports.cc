// SPDX-License-Identifier: BSD-3-Clause
// What the NIC reports of requests: acknowledgements, limits, NAKs, answers (docs/transport.md
// rules 7, 15, 20..22, 28).
#include <algorithm>

#include "verbs-shim/base/log.h"
#include "verbs-shim/driver/cause.h"
#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/requester/hostnic.h"

namespace hostnic::driver {
namespace {

// How often people are told of that many samples of the round trip: of the first, and then of each
// 64th, for nobody looks more often.
constexpr uint32_t tellings(uint32_t samples) { return (samples + 63) / 64; }

// Finds the request that a fatal NAK is about. The peer names what it refused: a READ that is
// acknowledged and still pulls its ranges, or the oldest unacknowledged PSN. That may be a request
// of which only a part is issued yet; and when all PSNs are acknowledged it can only be the oldest
// READ. The end of the queue says that there is none: a READ whose answers are all here was asked
// for once more than was needed, and the peer has revoked its key since.
uint32_t index_refused(const SendQueue& queue, const SendTracker& requests,
                       const ReadAnswers& answers, Psn una, Psn refused) {
  if (before(refused, requests.una())) {
    const uint32_t read = queue.find_by_psn(refused);
    const bool waits = read != queue.next_to_issue() && queue.wqe(read).op == SendOp::kRead &&
                       queue.wqe(read).first_psn == refused && !answers.have_come(queue.wqe(read));
    return waits ? read : queue.tail();
  }
  if (distance(una, requests.next()) <= 0 && queue.head() != queue.next_to_issue())
    return queue.head();
  return queue.find_by_psn(una);
}

}  // namespace

// Takes the peer's limits on what may be sent.
void HostnicRequester::take_limits(SendQueue& queue, const QpStatusSnapshot& snapshot) {
  if (const Psn highest(snapshot.highest_acceptable_psn);
      snapshot.ack_count != 0 && distance(highest_acceptable_, highest) > 0)
    highest_acceptable_ = highest;
  if (snapshot.has_credit != 0 &&
      (!has_credit_ || serial_distance(credit_, snapshot.recv_sn_limit) > 0)) {
    has_credit_ = true;
    credit_ = snapshot.recv_sn_limit;
    if (rnr_.any() && serial_distance(rnr_sn_, credit_) > 0)
      end_rnr_wait(queue, /*timer_is_over=*/false);
  }
}

// Takes a sample of the round trip.
inline void HostnicRequester::take_rtt(SendQueue& queue, const QpStatusSnapshot& snapshot) {
  const bool to_tell = tellings(snapshot.rtt_count) != tellings(seen_rtt_count_);
  seen_rtt_count_ = snapshot.rtt_count;
  rtt_.sample(snapshot.rtt_ns);
  if (to_tell) [[unlikely]]
    patience_.tell(queue, rtt_);
}

// Tells people of the paths.
[[gnu::noinline]] void HostnicRequester::tell_paths(const SendQueue& queue) {
  QpStatus& status = queue.status();
  const uint32_t count = paths_ == nullptr ? 0 : paths_->count();
  if (count != 0 || status.path_count.load(std::memory_order_relaxed) != 0)
    status.path_count.store(static_cast<uint16_t>(count), std::memory_order_relaxed);
  if (count == 0) return;
  told_changes_ = paths_->changes();
  status.good_paths.store(paths_->good(), std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t srtt_ns = std::min<uint64_t>(paths_->rtt(i).srtt_ns(), UINT32_MAX);
    status.paths[i].srtt_ns.store(static_cast<uint32_t>(srtt_ns), std::memory_order_relaxed);
    status.paths[i].lost.store(paths_->lost(i), std::memory_order_relaxed);
  }
}

// Takes a sample of a path's round trip. Paths are not equally long: of each counts what it takes
// more than at its best. A probe's time is the table's own sample.
void HostnicRequester::take_path_rtt(const QpStatusSnapshot& snapshot, uint32_t probed) {
  if (probed != PathTable::kNone && static_cast<uint16_t>(snapshot.echo_psn) == snapshot.rtt_psn)
    return;
  const uint8_t path = requests_.path(Psn(snapshot.rtt_psn));
  request_congestion_.on_rtt(paths_->note_rtt(path, snapshot.rtt_ns));
}

// Takes the ACKs since the last report. It is compiled twice, so that one path does not pay for
// what several need.
template <bool kHasPaths>
[[gnu::always_inline]] inline void HostnicRequester::take_all_acks(SendQueue& queue,
                                                                   const QpStatusSnapshot& snapshot,
                                                                   TimeNs now_ns) {
  take_limits(queue, snapshot);
  [[maybe_unused]] uint32_t probed = PathTable::kNone;
  if constexpr (kHasPaths) {
    if (snapshot.echo_count != seen_echo_count_)
      probed = paths_->take_echo(Psn(snapshot.echo_psn),
                                 static_cast<uint8_t>(snapshot.echo_attempt), now_ns);
  }
  if (snapshot.rtt_count != seen_rtt_count_) {
    take_rtt(queue, snapshot);
    if constexpr (kHasPaths) {
      take_path_rtt(snapshot, probed);
    } else {
      request_congestion_.on_rtt(snapshot.rtt_ns);
    }
  }
  if (snapshot.mark_count != seen_mark_count_) {
    seen_mark_count_ = snapshot.mark_count;
    request_congestion_.on_mark();
  }
  if (snapshot.spurious_count != seen_spurious_count_) {
    seen_spurious_count_ = snapshot.spurious_count;
    if (probed == PathTable::kNone && !requests_.guessed(Psn(snapshot.echo_psn)))
      requests_.on_spurious_resend();
  }
  const uint32_t echoes = seen_echo_count_;
  if (snapshot.echo_count != seen_echo_count_) {
    seen_echo_count_ = snapshot.echo_count;
    requests_.on_echo(Psn(snapshot.echo_psn), static_cast<uint8_t>(snapshot.echo_attempt));
  }
  const Psn una = requests_.una();
  if (queue.host.bits.has_sack) {
    requests_.on_ack(Psn(snapshot.una_psn), queue.host.bits.sack);
  } else {
    requests_.on_ack(Psn(snapshot.una_psn));
  }
  note_acknowledged(queue, una, now_ns);
  // The oldest unacknowledged packet has arrived, and the peer answers that it can't be taken now:
  // its memory's mappings are just changing. That is no silence, but repetitions go on at longer
  // and longer intervals.
  if (snapshot.echo_count != echoes && Psn(snapshot.echo_psn) == requests_.una() &&
      requests_.in_flight() != 0)
    patience_.note_put_off();
  if constexpr (kHasPaths) requests_.end_report(now_ns);
  requests_.detect_losses(now_ns, rtt_.srtt_ns());
  if (reads_outstanding_ != 0) take_answers(queue, snapshot, now_ns);
  if constexpr (kHasPaths) {
    if (paths_->changes() != told_changes_) tell_paths(queue);
  }
}

void HostnicRequester::take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot,
                                 TimeNs now_ns) {
  if (paths_ != nullptr) [[unlikely]] {
    take_acks_by_path(queue, snapshot, now_ns);
    return;
  }
  take_all_acks<false>(queue, snapshot, now_ns);
}

[[gnu::noinline]] void HostnicRequester::take_acks_by_path(SendQueue& queue,
                                                           const QpStatusSnapshot& snapshot,
                                                           TimeNs now_ns) {
  take_all_acks<true>(queue, snapshot, now_ns);
}

// Takes note of acknowledged requests; those from `una` on may be new.
void HostnicRequester::note_acknowledged(SendQueue& queue, Psn una, TimeNs now_ns) {
  request_congestion_.on_ack(requests_.una(), requests_.next());
  if (requests_.una() == una) return;
  queue.status().acknowledged_psn.store(requests_.una().value(), std::memory_order_release);
  note_progress(queue, now_ns);
  // The refused request was the oldest unacknowledged one. If it is acknowledged while its timer
  // still runs, a later duplicate of it has found a receive; the timer would find nothing that it
  // could send again.
  rnr_.forget();
}

void HostnicRequester::take_answers(SendQueue& queue, const QpStatusSnapshot& snapshot,
                                    TimeNs now_ns) {
  // No answer says which pull it belongs to. An answer that comes a round trip after the last pull,
  // or after the silence before a probe, is taken for that pull's, and what was pulled before is
  // missing. Otherwise a lost range would come back probe by probe.
  TimeNs answered_before_ns = 0;
  if (probes_.any()) {
    answered_before_ns = now_ns;
  } else if (rtt_.valid()) {
    answered_before_ns = now_ns - std::min(now_ns, rtt_.srtt_ns());
  }
  const ReadAnswers::News news =
      answers_.take(queue, snapshot, answered_before_ns, rtt_.srtt_ns(), now_ns);
  if (news.fresh) note_progress(queue, now_ns);
  if (news.una_moved) take_executed(queue, now_ns);
}

// Acknowledges requests by their answers (rule 20).
void HostnicRequester::take_executed(SendQueue& queue, TimeNs now_ns) {
  if (!requests_.traits().answers_acknowledge) return;
  const Psn una = requests_.una();
  requests_.on_ack(answers_.executed(queue, una));
  // The ACK that would have said how far the peer's window reaches now may never come.
  highest_acceptable_ += static_cast<uint32_t>(distance(una, requests_.una()));
  note_acknowledged(queue, una, now_ns);
}

void HostnicRequester::note_progress(SendQueue& queue, TimeNs now_ns) {
  patience_.note_progress(now_ns);
  if (patience_.backoff() != 0) [[unlikely]] {
    patience_.end_backoff();
    patience_.tell(queue, rtt_);
  }
  probes_.note_progress();
}

void HostnicRequester::take_nak(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns) {
  if (snapshot.nak_count == seen_nak_count_) return;
  seen_nak_count_ = snapshot.nak_count;
  const uint32_t kind = snapshot.nak >> 8, code = snapshot.nak & 0xff;
  if (kind != kNakKindRnr) {
    const Cause cause = cause_of_nak(code);
    fail(queue,
         index_refused(queue, requests_, answers_, Psn(snapshot.nak_psn), Psn(snapshot.nak_sn)),
         cause.status, cause.vendor);
    return;
  }
  // An RNR NAK (rule 15). NAKs that arrive while waiting, or about something already acknowledged,
  // are old.
  if (rnr_.waiting() || Psn(snapshot.nak_psn) != requests_.una()) return;
  if (has_credit_ && serial_distance(snapshot.nak_sn, credit_) > 0) {
    requests_.mark_lost(requests_.una(), RepeatCause::rnr);  // a receive has been posted since
    return;
  }
  note_progress(queue, now_ns);  // the peer answers: this is not silence
  if (!rnr_.begin(queue, code, now_ns)) {
    fail(queue, queue.find_by_psn(requests_.una()), WcStatus::kRnrRetryExcErr,
         VendorError::kReceiverNotReady);
    return;
  }
  rnr_sn_ = snapshot.nak_sn;
}

void HostnicRequester::end_rnr_wait(SendQueue& queue, bool timer_is_over) {
  if (timer_is_over) {
    rnr_.end(/*probe=*/true);
  } else {
    rnr_.forget();
  }
  if (requests_.in_flight() == 0) return;
  // Only the request that was refused goes first; what followed it was dropped and will be found
  // lost.
  const Wqe& w = queue.wqe(queue.find_by_psn(requests_.una()));
  for (uint32_t i = 0; i < w.psn_count; ++i) {
    const Psn psn = w.first_psn + i;
    if (distance(requests_.una(), psn) >= 0 && distance(psn, requests_.next()) > 0)
      requests_.mark_lost(psn, RepeatCause::rnr);
  }
}

// Answers are not what was asked for, or can't be placed: the READ or atomic of theirs fails.
void HostnicRequester::take_response_error(SendQueue& queue, const QpStatusSnapshot& snapshot) {
  const uint32_t read = ReadAnswers::find_by_number(queue, snapshot.response_error_read);
  if (read == queue.tail()) return;
  const Cause cause = cause_of_local_error(snapshot.response_error);
  fail(queue, read, cause.status, cause.vendor);
}

void HostnicRequester::fail(SendQueue& queue, uint32_t index, WcStatus status,
                            VendorError vendor) const {
  if (!queue.fail(index, status, vendor)) return;
  const SendTracker& answers = answers_.tracker();
  log_debug(
      "QP 0x%x: requests %u..%u (%u lost, transmitted to %u, front attempt %u), responses %u..%u "
      "of %u (%u lost), epoch %u, rnr %u, credit %u of %u, timeouts %u, %llu ms without progress",
      queue.qpn, requests_.una().value(), requests_.next().value(), requests_.lost_count(),
      queue.status().transmitted_psn.load(std::memory_order_relaxed),
      requests_.attempt(requests_.una()), answers.una().value(), answers.next().value(),
      answers_.end().value(), answers.lost_count(), answers_.epoch(), unsigned{rnr_.any()},
      next_recv_sn_, credit_, patience_.backoff(),
      static_cast<unsigned long long>(patience_.silence_ns() / 1'000'000));
}

}  // namespace hostnic::driver
