// SPDX-License-Identifier: BSD-3-Clause
// What goes to the NIC but for first transmissions of SENDs and WRITEs: READ requests,
// retransmissions of what is lost, pulls of READ ranges.
#include <algorithm>

#include "verbs-shim/driver/requester/hostnic.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kPulledBytesLimit = 2 * 1024 * 1024;
constexpr uint32_t kPullParts = 8;       // of the windows, which are pulled in that many requests
constexpr uint32_t kMostWaitedFor = 16;  // answers

}  // namespace

// Whether a request waits for READs and atomics before it: by its fence until they are complete,
// else while it could change what they say (rule 18).
bool HostnicRequester::waits_for_reads(const SendQueue& queue, const Wqe& w) const {
  if (w.fence) return true;
  // Atomics, too: bytes behind one that was lost are placed before it executes.
  return outstanding_reads_.hold_back(
      queue, w, next_read_number_, reads_outstanding_,
      [this](const Wqe& earlier) { return finished(earlier); }, [](const Wqe&) { return true; });
}

// Finds the READ or atomic that an answer belongs to; the oldest request if there is none.
uint32_t HostnicRequester::find_by_response(const SendQueue& queue, Psn psn) {
  for (uint32_t i = queue.head(); i != queue.tail() && queue.wqe(i).started; ++i) {
    const Wqe& w = queue.wqe(i);
    if (!is_read_or_atomic(w.op)) continue;
    const int32_t within = distance(w.first_response_psn, psn);
    if (within >= 0 && within < static_cast<int32_t>(w.response_count)) return i;
  }
  return queue.head();
}

uint32_t HostnicRequester::response_room(const SendQueue& queue) const {
  const uint32_t limit = std::min(
      response_congestion_.psns(),
      std::max<uint32_t>(1, static_cast<uint32_t>(kPulledBytesLimit >> queue.mtu_shift())));
  // Answers that have come behind a missing one congest nothing: as with requests (room()).
  const uint32_t in_flight = responses_.in_flight(), on_its_way = responses_.on_its_way();
  const uint32_t window = responses_.window();
  if (in_flight >= window || on_its_way >= limit) return 0;
  return std::min(window - in_flight, limit - on_its_way);
}

// How many answers to pull now, of `wanted`. While the windows are full each answer that comes
// leaves room for another: pulled one by one they would cost a request each. So all that is wanted
// is pulled, or at least a good part of what the windows hold.
uint32_t HostnicRequester::pull_count(const SendQueue& queue, uint32_t wanted) const {
  const uint32_t room = response_room(queue);
  if (room >= wanted) return wanted;
  const uint32_t worth_it = std::min(responses_.window(), response_congestion_.psns()) / kPullParts;
  return room < std::min(worth_it, kMostWaitedFor) ? 0 : room;
}

// Whether a READ or atomic asks for an ACK: answers acknowledge the request that they are for
// (take_executed()), so where all of them are pulled with it an ACK would say nothing new. An ACK
// is asked for all the same once in so many PSNs, for round trip times.
bool HostnicRequester::answers_need_ack(const Wqe& w, uint32_t first_pull, uint32_t room) const {
  constexpr uint32_t kPsnsPerAck = 16;
  if (room == 1 || first_pull == 0 || first_pull != w.response_count || !rtt_.valid()) return true;
  return !requests_.traits().answers_acknowledge ||
         psns_since_ack_request_ + 1 >= std::min(kPsnsPerAck, request_congestion_.psns() / 4);
}

// Hands over the request of a READ or atomic. The first range is pulled along, unless an earlier
// READ still has ranges to pull: answers keep to PSN order.
void HostnicRequester::begin_read(SendQueue& queue, Wqe& w, uint32_t room, uint64_t limit_bytes,
                                  TimeNs now_ns) {
  uint32_t first_pull = 0;
  if (w.response_count != 0 && responses_.next() == w.first_response_psn) {
    const uint32_t chunk = queue.chunk_packets(limit_bytes, request_congestion_.psns());
    first_pull = pull_count(queue, std::min(w.response_count, chunk));
  }
  const bool ack = answers_need_ack(w, first_pull, room);
  psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + 1;
  send_read_request(queue, w, 0, first_pull, 0, ack ? kSendAckRequest : 0, queue.host.map.sends);
  w.issued_psns = 1;
  requests_.on_first_send(1, now_ns);
  if (first_pull != 0) responses_.on_first_send(first_pull, now_ns);
}

void HostnicRequester::send_read_request(SendQueue& queue, const Wqe& w, uint32_t pull_first,
                                         uint32_t pull_count, uint8_t attempt, uint8_t flags,
                                         RingEnd& ring) const {
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
  d.first_response_psn = (w.first_response_psn + pull_first).value();
  d.epoch = epoch_;
  d.keep_until_psn = epoch_keep_until_.value();
  if (is_atomic(w.op)) {
    d.length_bytes = pull_count == 0 ? 0 : 8;
    d.atomic.swap_or_add = w.op == SendOp::kCompareSwap ? w.swap : w.compare_add;
    d.atomic.compare = w.compare_add;
  } else {
    const uint32_t offset = pull_first * queue.attr.path_mtu_bytes;
    d.read_offset_bytes = offset;
    d.length_bytes = std::min(pull_count * queue.attr.path_mtu_bytes, w.length_bytes - offset);
  }
  ring.enqueue_bulk(&d, 1);
  queue.host.published();
}

// Repeats what is lost and may go. Returns false if the ring is full.
bool HostnicRequester::resend_lost(SendQueue& queue, TimeNs now_ns) {
  uint32_t sent = 0;
  Psn from = requests_.una(), first;
  uint32_t count = 0;
  while (requests_.next_lost_run(from, queue.resent_packets(), first, count)) {
    const uint32_t index = queue.find_by_psn(first);
    if (queue.failed_at_or_before(index)) break;
    // While the peer has no receive, only the request that it named goes (rule 15, RNR).
    if (rnr_.probing() && index != queue.find_by_psn(requests_.una())) break;
    if (patience_.backoff() != 0 && sent >= kResendsAfterTimeout) break;
    const Wqe& w = queue.wqe(index);
    const auto within = static_cast<uint32_t>(distance(w.first_psn, first));
    count = std::min(count, w.psn_count - within);
    if (patience_.backoff() != 0) count = std::min(count, kResendsAfterTimeout - sent);
    if (!queue.host.map.urgent.has_room(1 + kMaxExtraElements)) return false;
    requests_.on_resend(first, count, now_ns);
    queue.host.totals.retransmitted_packets += count;
    const uint8_t flags = kSendAckRequest | kSendRetransmit;
    if (is_read_or_atomic(w.op)) {
      resend_read_request(queue, w, now_ns, requests_.attempt(first), flags);
    } else {
      queue.send_range(w, index, within, count, requests_.attempt(first), flags,
                       queue.host.map.urgent);
    }
    sent += count;
    from = first + count;
  }
  return true;
}

// Repeats a READ request that was lost, together with the range that the first one asked for, if
// nothing of that has come.
void HostnicRequester::resend_read_request(SendQueue& queue, const Wqe& w, TimeNs now_ns,
                                           uint8_t attempt, uint8_t flags) {
  uint32_t pull_count = 0;
  const int32_t pulled = distance(w.first_response_psn, responses_.next());
  if (w.response_count != 0 && pulled > 0 &&
      distance(responses_.una(), w.first_response_psn) >= 0) {
    pull_count =
        std::min({w.response_count, queue.resent_packets(), static_cast<uint32_t>(pulled)});
    for (uint32_t i = 0; i < pull_count; ++i) {
      if (responses_.acknowledged(w.first_response_psn + i)) pull_count = i;
    }
    if (pull_count != 0) responses_.on_resend(w.first_response_psn, pull_count, now_ns);
    // The READs behind it execute when this one has, so their answers come behind its answers.
    for (Psn psn = w.first_response_psn + w.response_count; before(psn, responses_.next());
         psn += 1)
      if (!responses_.acknowledged(psn)) responses_.on_resend(psn, 1, now_ns);
  }
  send_read_request(queue, w, 0, pull_count, attempt, flags, queue.host.map.urgent);
}

// Asks for the next ranges, in response PSN order, of READs that have executed (rule 17). Returns
// false if the ring is full.
bool HostnicRequester::pull(SendQueue& queue, TimeNs now_ns) {
  while (responses_.next() != next_response_psn_) {
    const Psn first = responses_.next();
    const uint32_t index = find_by_response(queue, first);
    const Wqe& w = queue.wqe(index);
    if (distance(w.first_psn, requests_.una()) <= 0) return true;
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    const uint32_t chunk = queue.chunk_packets(
        queue.host.queued_bytes_limit(queue.status_index, now_ns), request_congestion_.psns());
    const uint32_t count = pull_count(queue, std::min(chunk, w.response_count - within));
    if (count == 0) return true;
    if (!queue.host.map.urgent.has_room(1)) return false;
    responses_.on_first_send(count, now_ns);
    send_read_request(queue, w, within, count, 0, 0, queue.host.map.urgent);
  }
  return true;
}

// Asks again for ranges that did not come. Returns false if the ring is full.
bool HostnicRequester::pull_lost(SendQueue& queue, TimeNs now_ns) {
  Psn from = responses_.una(), first;
  uint32_t count = 0;
  while (responses_.next_lost_run(from, queue.resent_packets(), first, count)) {
    if (!queue.host.map.urgent.has_room(1)) return false;
    const Wqe& w = queue.wqe(find_by_response(queue, first));
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    count = std::min(count, w.response_count - within);
    responses_.on_resend(first, count, now_ns);
    queue.host.totals.read_repulls += 1;
    send_read_request(queue, w, within, count, requests_.attempt(w.first_psn), kSendRetransmit,
                      queue.host.map.urgent);
    from = first + count;
  }
  return true;
}

// Begins an epoch, because the peer can't say again what it said the first time: everything behind
// the oldest READ that misses something is pulled again, for it may be older than what that READ
// will get now (rule 18, READs stay ordered).
void HostnicRequester::renew_epoch(const SendQueue& queue) {
  Psn keep_until = responses_.next();
  if (responses_.in_flight() != 0 && !queue.host.settings().relaxed_ordering) {
    const Wqe& w = queue.wqe(find_by_response(queue, responses_.una()));
    const Psn end = w.first_response_psn + w.response_count;
    if (before(end, keep_until)) keep_until = end;
  }
  ++epoch_;
  epoch_unanswered_ = true;
  epoch_keep_until_ = keep_until;
  responses_.rewind(keep_until);
  responses_.mark_all_lost();
}

}  // namespace hostnic::driver
