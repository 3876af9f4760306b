// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/read_answers.h"

#include <algorithm>

#include "verbs-shim/driver/qp_state.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kPulledBytesLimit = 2 * 1024 * 1024;
constexpr uint32_t kPullParts = 8;       // of the windows, which are pulled in that many requests
constexpr uint32_t kMostWaitedFor = 16;  // answers

}  // namespace

void ReadAnswers::start(const DriverSettings& settings, PathTable* paths) {
  tracker_.reset(Psn(0), settings.window);  // answers are always repeated selectively
  congestion_.reset(Psn(0), settings.window, settings.congestion_allowance_ns);
  paths_ = paths;
  if (paths != nullptr) tracker_.use_paths(*paths);
}

// Whether a request waits for READs and atomics before it: by its fence until they are complete,
// else while it could change what they say (rule 18).
bool ReadAnswers::hold_back(const SendQueue& queue, const Wqe& w, uint32_t count,
                            Psn requests_una) const {
  if (w.fence) return true;
  // An adversary lets go what InfiniBand lets go without a fence, as long as no key is in doubt.
  if (queue.host.settings().adversary_seed != 0 && !is_atomic(w.op) && w.op != SendOp::kSendInv)
    return false;
  // Atomics, too: bytes behind one that was lost are placed before it executes.
  return outstanding_.hold_back(
      queue, w, next_read_number_, count,
      [this, requests_una](const Wqe& earlier) {
        return distance(earlier.first_psn + earlier.psn_count, requests_una) >= 0 &&
               have_come(earlier);
      },
      [](const Wqe&) { return true; });
}

uint32_t ReadAnswers::find_by_number(const SendQueue& queue, uint32_t read_number) {
  for (uint32_t i = queue.head(); i != queue.tail() && queue.wqe(i).started; ++i) {
    const Wqe& w = queue.wqe(i);
    if (is_read_or_atomic(w.op) && w.recv_sn == read_number) return i;
  }
  return queue.tail();
}

// Finds the READ or atomic that an answer belongs to; the oldest request if there is none.
uint32_t ReadAnswers::find_by_psn(const SendQueue& queue, Psn psn) {
  for (uint32_t i = queue.head(); i != queue.tail() && queue.wqe(i).started; ++i) {
    const Wqe& w = queue.wqe(i);
    if (!is_read_or_atomic(w.op)) continue;
    const int32_t within = distance(w.first_response_psn, psn);
    if (within >= 0 && within < static_cast<int32_t>(w.response_count)) return i;
  }
  return queue.head();
}

uint32_t ReadAnswers::room(const SendQueue& queue) const {
  const uint32_t limit = std::min(
      congestion_.psns(),
      std::max<uint32_t>(1, static_cast<uint32_t>(kPulledBytesLimit >> queue.mtu_shift())));
  // Answers that have come behind a missing one congest nothing, as with requests
  // (HostnicRequester::room()).
  const uint32_t in_flight = tracker_.in_flight(), on_its_way = tracker_.on_its_way();
  const uint32_t window = tracker_.window();
  if (in_flight >= window || on_its_way >= limit) return 0;
  return std::min(window - in_flight, limit - on_its_way);
}

// How many answers to pull now, of `wanted`. While the windows are full each answer that comes
// leaves room for another: pulled one by one they would cost a request each. So all that is wanted
// is pulled, or at least a good part of what the windows hold.
uint32_t ReadAnswers::pull_count(const SendQueue& queue, uint32_t wanted) const {
  const uint32_t room_psns = room(queue);
  if (room_psns >= wanted) return wanted;
  const uint32_t worth_it = std::min(tracker_.window(), congestion_.psns()) / kPullParts;
  return room_psns < std::min(worth_it, kMostWaitedFor) ? 0 : room_psns;
}

// The first range is pulled along, unless an earlier READ still has ranges to pull: answers keep to
// PSN order.
uint32_t ReadAnswers::first_pull(const SendQueue& queue, const Wqe& w, uint32_t chunk) const {
  if (w.response_count == 0 || tracker_.next() != w.first_response_psn) return 0;
  return pull_count(queue, std::min(w.response_count, chunk));
}

void ReadAnswers::request(SendQueue& queue, const Wqe& w, uint32_t pulled, uint8_t flags,
                          TimeNs now_ns, uint8_t path) {
  send_request(queue, w, 0, pulled, 0, flags, path, queue.host.map.sends);
  if (pulled != 0) note_pulled(pulled, now_ns, path);
}

void ReadAnswers::note_pulled(uint32_t count, TimeNs now_ns, uint8_t path) {
  tracker_.on_first_send(count, now_ns);
  if (paths_ != nullptr) [[unlikely]]
    tracker_.note_first_path(count, path);
}

void ReadAnswers::send_request(SendQueue& queue, const Wqe& w, uint32_t first, uint32_t count,
                               uint8_t attempt, uint8_t flags, uint8_t path, RingEnd& ring) const {
  SendDescriptor d{};
  d.op = w.op;
  d.attempt = attempt;
  d.flags = flags;
  d.qpn = queue.qpn;
  d.psn = w.first_psn.value();
  d.va = w.remote_va;
  d.key = w.rkey;
  d.message_bytes = w.length_bytes;
  d.recv_sn = w.recv_sn;
  d.first_response_psn = (w.first_response_psn + first).value();
  d.epoch = epoch_;
  d.path = path;
  d.keep_until_psn = epoch_keep_until_.value();
  if (is_atomic(w.op)) {
    d.length_bytes = count == 0 ? 0 : 8;
    d.atomic.swap_or_add = w.op == SendOp::kCompareSwap ? w.swap : w.compare_add;
    d.atomic.compare = w.compare_add;
  } else {
    const uint32_t offset = first * queue.attr.path_mtu_bytes;
    d.read_offset_bytes = offset;
    d.length_bytes = std::min(count * queue.attr.path_mtu_bytes, w.length_bytes - offset);
  }
  ring.enqueue_bulk(&d, 1);
  queue.host.published();
}

// Repeats a request that was lost, together with the range that the first one asked for, if nothing
// of that has come.
void ReadAnswers::request_again(SendQueue& queue, const Wqe& w, uint8_t attempt, uint8_t flags,
                                TimeNs now_ns, uint8_t path) {
  uint32_t count = 0;
  const int32_t pulled = distance(w.first_response_psn, tracker_.next());
  if (w.response_count != 0 && pulled > 0 && distance(tracker_.una(), w.first_response_psn) >= 0) {
    count = std::min({w.response_count, queue.resent_packets(), static_cast<uint32_t>(pulled)});
    for (uint32_t i = 0; i < count; ++i) {
      if (tracker_.acknowledged(w.first_response_psn + i)) count = i;
    }
    if (count != 0) tracker_.on_resend(w.first_response_psn, count, now_ns, path);
    // The READs behind it execute when this one has, so their answers come behind its answers.
    for (Psn psn = w.first_response_psn + w.response_count; before(psn, tracker_.next()); psn += 1)
      if (!tracker_.acknowledged(psn)) tracker_.on_resend(psn, 1, now_ns, tracker_.path(psn));
  }
  send_request(queue, w, 0, count, attempt, flags, path, queue.host.map.urgent);
}

// The path of all that is pulled while an epoch begins: by several, a pull would overtake that of
// an earlier READ, which would be refused, and so begin the next epoch, and so on (rule 18).
uint8_t ReadAnswers::ordered_path() {
  if (!paths_->is_good(ordered_path_)) ordered_path_ = paths_->other_than(ordered_path_);
  return ordered_path_;
}

// Chooses the path of the next pull. Returns how many answers may come by it.
uint32_t ReadAnswers::take_pull_path(uint8_t& path, TimeNs now_ns) {
  const uint32_t probed = keeps_order_ ? PathTable::kNone : paths_->due_probe(now_ns);
  if (probed == PathTable::kNone) {
    path = take_path();
    return PathTable::kRunPackets;
  }
  path = static_cast<uint8_t>(probed);
  paths_->note_probe(probed, Psn(), kNoAttempt, now_ns);  // its answer tells, and no echo
  return 1;
}

// Asks for the next ranges, in PSN order, of READs that have executed (rule 17).
bool ReadAnswers::pull(SendQueue& queue, const SendTracker& requests, uint32_t chunk_psns,
                       TimeNs now_ns) {
  while (tracker_.next() != next_psn_) {
    const Psn first = tracker_.next();
    const uint32_t index = find_by_psn(queue, first);
    const Wqe& w = queue.wqe(index);
    if (distance(w.first_psn, requests.una()) <= 0) return true;
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    const uint32_t chunk =
        queue.chunk_packets(queue.host.queued_bytes_limit(queue.status_index, now_ns), chunk_psns);
    uint32_t count = pull_count(queue, std::min(chunk, w.response_count - within));
    if (count == 0) return true;
    if (!queue.host.map.urgent.has_room(1)) return false;
    uint8_t path = 0;
    if (paths_ != nullptr) [[unlikely]]
      count = std::min(count, take_pull_path(path, now_ns));
    note_pulled(count, now_ns, path);
    send_request(queue, w, within, count, 0, 0, path, queue.host.map.urgent);
  }
  return true;
}

// Asks again for ranges that did not come.
bool ReadAnswers::pull_lost(SendQueue& queue, const SendTracker& requests, TimeNs now_ns) {
  Psn from = tracker_.una(), first;
  uint32_t count = 0;
  while (tracker_.next_lost_run(from, queue.resent_packets(), first, count)) {
    if (!queue.host.map.urgent.has_room(1)) return false;
    const Wqe& w = queue.wqe(find_by_psn(queue, first));
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    count = std::min(count, w.response_count - within);
    uint8_t path = 0;
    if (paths_ != nullptr) [[unlikely]]
      path = keeps_order_ ? ordered_path() : paths_->other_than(tracker_.path(first));
    tracker_.on_resend(first, count, now_ns, path);
    queue.host.totals.read_repulls += 1;
    send_request(queue, w, within, count,
                 attempt_with(requests.attempt(w.first_psn), tracker_.cause(first)),
                 kSendRetransmit, path, queue.host.map.urgent);
    from = first + count;
  }
  return true;
}

ReadAnswers::News ReadAnswers::take(const SendQueue& queue, const QpStatusSnapshot& snapshot,
                                    TimeNs answered_before_ns, uint64_t srtt_ns, TimeNs now_ns) {
  const Psn una = tracker_.una();
  const Psn new_una(snapshot.response_una_psn);
  // Answers of the epoch before may complete a READ just before the NIC learns of the new epoch:
  // then more has arrived than is remembered as asked for.
  if (const int32_t unasked = distance(tracker_.next(), new_una);
      unasked > 0 && distance(new_una, next_psn_) >= 0) {
    note_pulled(static_cast<uint32_t>(unasked), now_ns, /*path=*/0);
  }
  // Bits of another epoch say nothing; response_una_psn always counts, because only what every
  // epoch keeps lies before it.
  const bool has_bits = queue.host.bits.has_responses && snapshot.response_epoch == epoch_;
  const TimeNs newest_ns = tracker_.newest_arrived_sent_ns();
  const bool fresh =
      (has_bits ? tracker_.on_ack(new_una, queue.host.bits.responses, answered_before_ns)
                : tracker_.on_ack(new_una, answered_before_ns)) != 0;
  if (snapshot.response_mark_count != seen_mark_count_) {
    seen_mark_count_ = snapshot.response_mark_count;
    congestion_.on_mark();
  }
  congestion_.on_ack(tracker_.una(), tracker_.next());
  if (fresh) epoch_unanswered_ = false;
  const bool una_moved = tracker_.una() != una;
  if (una_moved || fresh) {
    judge(queue);
    const TimeNs sent_ns = tracker_.newest_arrived_sent_ns();
    if (sent_ns != newest_ns) rtt_.sample(now_ns - std::min(now_ns, sent_ns));
    if (paths_ != nullptr) [[unlikely]] {
      keeps_order_ = keeps_order_ && before(tracker_.una(), ordered_until_);
      tracker_.end_report(now_ns);
    }
    tracker_.detect_losses(now_ns, srtt_ns);
  }
  if (snapshot.response_refused != 0 && snapshot.response_epoch == epoch_) renew_epoch(queue);
  return {.fresh = fresh, .una_moved = una_moved};
}

// Says which answers may be lost by what has arrived. READs execute in order, and what is pulled
// again of those that have executed overtakes all of those that wait for a lost request: answers to
// a READ may be missed when one of them has come, or one to a later READ.
void ReadAnswers::judge(const SendQueue& queue) {
  const Psn end = tracker_.arrived_end();
  const Wqe& w = queue.wqe(find_by_psn(queue, end));
  const Psn behind = w.first_response_psn + w.response_count;
  const bool begun = before(w.first_response_psn, end) && before(end, behind);
  tracker_.judge_before(begun ? behind : end);
}

// READs and atomics execute at the peer's expected PSN, so once all answers to one are here, it and
// all before it have been received (rule 20; InfiniBand 9.7.5.1.1).
Psn ReadAnswers::executed(const SendQueue& queue, Psn una) {
  if (serial_distance(answered_, queue.head()) > 0) answered_ = queue.head();
  Psn executed = una;
  for (; answered_ != queue.next_to_issue(); ++answered_) {
    const Wqe& w = queue.wqe(answered_);
    if (w.response_count == 0) continue;
    if (!have_come(w)) break;
    executed = w.first_psn + 1;
  }
  return executed;
}

// Begins an epoch, because the peer can't say again what it said the first time: everything behind
// the oldest READ that misses something is pulled again, for it may be older than what that READ
// will get now (rule 18, READs stay ordered).
void ReadAnswers::renew_epoch(const SendQueue& queue) {
  Psn keep_until = tracker_.next();
  if (tracker_.in_flight() != 0 && !queue.host.settings().relaxed_ordering) {
    const Wqe& w = queue.wqe(find_by_psn(queue, tracker_.una()));
    const Psn end = w.first_response_psn + w.response_count;
    if (before(end, keep_until)) keep_until = end;
  }
  if (paths_ != nullptr) {
    keeps_order_ = true;
    ordered_until_ = tracker_.next();
    ordered_path_ = paths_->other_than(ordered_path_);
  }
  ++epoch_;
  epoch_unanswered_ = true;
  epoch_keep_until_ = keep_until;
  tracker_.rewind(keep_until);
  tracker_.mark_all_lost(RepeatCause::anew);
}

void ReadAnswers::on_probe(uint32_t most) {
  if (misses_repulled())
    tracker_.mark_first_lost(most, RepeatCause::probe);
  else if (tracker_.in_flight() != 0)
    tracker_.mark_lost(tracker_.last_unacknowledged(), RepeatCause::probe);
}

void ReadAnswers::on_timeout(uint32_t most) {
  if (tracker_.in_flight() != 0) congestion_.on_timeout();
  tracker_.mark_first_lost(most, RepeatCause::timeout);
}

}  // namespace hostnic::driver
