// SPDX-License-Identifier: BSD-3-Clause
// What goes to the NIC: first transmissions in queue order, retransmissions of what is lost, pulls
// of READ ranges.
#include <algorithm>
#include <array>
#include <cstring>

#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {
namespace {

// The least chunks and PSNs of one queue pair's turn at the ring before it is another's: a chunk
// that follows one of the same queue pair costs each end half as much.
constexpr uint32_t kChunksPerTurn = 8;
constexpr int32_t kPsnsPerTurn = 64;
// The size of a chunk while several queue pairs take turns, and of one that is sent again.
constexpr uint32_t kSharedChunkBytes = 64 * 1024;
constexpr uint32_t kChunksQueued = 16;  // least number of chunks that may queue where they may be
                                        // larger
constexpr uint64_t kPulledBytesLimit = 2 * 1024 * 1024;

}  // namespace

// Issues first transmissions, in queue order. Returns false if the next turn must look again.
[[gnu::always_inline]] inline bool Qp::issue_new(TimeNs now_ns) {
  const bool others_first = host_.others_wait_for_ring_space(*this);
  const Psn first = requests_.next();
  uint32_t chunks = 0;
  while (issue_ != tail_ && (state == QpState::kRts || wqe(issue_).started)) {
    Issue outcome = Issue::kRingFull;
    const bool turn_over =
        chunks++ >= kChunksPerTurn && distance(first, requests_.next()) >= kPsnsPerTurn;
    if (!others_first && !turn_over) outcome = issue_chunk(now_ns);
    if (outcome == Issue::kDone) continue;
    if (outcome == Issue::kRingFull) host_.wait_for_ring_space(*this);
    return outcome != Issue::kLater;
  }
  return true;
}

void Qp::issue_ready(TimeNs now_ns) {
  if (state != QpState::kRts && state != QpState::kSqd) return;
  if (credit_unsaid_) notify_credit();
  // Transmissions matter when something is repeated; to some policies they always do.
  if (requests_.lost_count() != 0 || requests_.traits().follows_transmission)
    requests_.note_transmitted(transmitted());
  bool all = true;
  if (requests_.lost_count() != 0 && rnr_ != Rnr::kWaiting) all = resend_lost(now_ns);
  if (reads_outstanding_ != 0) {
    if (responses_.lost_count() != 0) all = pull_lost(now_ns) && all;
    if (responses_.next() != next_response_psn_) all = pull(now_ns) && all;
  }
  if ((!failed_ || broken(Fault::issue_after_failure)) && rnr_ == Rnr::kNone) {
    all = issue_new(now_ns) && all;
  }
  if (!all) host_.want_issue(*this);
  // A request that can't be issued at all has failed; nobody will report it.
  if (failed_ && !is_reliable() && head_ == failed_index_) complete(now_ns);
}

// Whether a request that is next in the queue may be handed over now (rules 2, 14).
[[gnu::always_inline]] inline bool Qp::may_start(const Wqe& w) const {
  if (is_unsendable(w) || is_local(w.op)) return false;
  if (w.fence && reads_outstanding_ != 0 && !broken(Fault::fence_ignored)) return false;
  if (is_read_or_atomic(w.op) &&
      reads_outstanding_ >= std::min<uint32_t>(attr.max_rd_atomic, kReadDestinationEntries) &&
      !broken(Fault::read_limit_ignored)) {
    return false;
  }
  if (consumes_receive(w.op) && has_credit_ && serial_distance(next_recv_sn_, credit_) <= 0) {
    if (broken(Fault::no_credit_probe)) return false;
    return receives_outstanding_ == 0;  // the oldest request goes all the same, as the probe
  }
  return true;
}

[[gnu::always_inline]] inline void Qp::start(Wqe& w, uint32_t index) {
  w.started = true;
  w.first_psn = requests_.next();
  w.psn_count = is_read_or_atomic(w.op) ? 1 : packets_for(w.length_bytes);
  if (consumes_receive(w.op)) {
    w.recv_sn = next_recv_sn_++;
    ++receives_outstanding_;
  }
  if (is_read_or_atomic(w.op)) {
    w.recv_sn = next_read_number_++;
    w.first_response_psn = next_response_psn_;
    w.response_count =
        w.length_bytes == 0 ? 0 : (is_atomic(w.op) ? 1 : packets_for(w.length_bytes));
    next_response_psn_ += w.response_count;
    ++reads_outstanding_;
    fill_read_destination(w, index);
  }
}

// How many PSNs the windows leave room for (rule 27, congestion window).
[[gnu::always_inline]] inline uint32_t Qp::window_room() const {
  const uint32_t in_flight = requests_.in_flight();
  if (in_flight >= requests_.window()) return 0;
  uint32_t room = requests_.window() - in_flight;
  // PSNs that have arrived behind a missing one, or are lost, congest nothing: were they counted,
  // every lost packet would stop the sender until its repetition is acknowledged.
  if (requests_.traits().congestion_limits) {
    const uint32_t on_its_way = requests_.on_its_way(), window = request_congestion_.psns();
    if (on_its_way >= window) return 0;
    room = std::min(room, window - on_its_way);
  }
  const int32_t peer = distance(requests_.next(), highest_acceptable_) + 1;
  if (broken(Fault::peer_window_ignored)) return room;
  return peer <= 0 ? 0 : std::min(room, static_cast<uint32_t>(peer));
}

uint32_t Qp::response_room() const {
  const uint32_t window =
      std::min(response_congestion_.psns(),
               std::max<uint32_t>(1, static_cast<uint32_t>(kPulledBytesLimit >> mtu_shift())));
  const uint32_t in_flight = responses_.in_flight();
  return in_flight >= window ? 0 : window - in_flight;
}

uint32_t Qp::chunk_packets(uint64_t queued_limit_bytes) const {
  const uint64_t bytes = std::min<uint64_t>(queued_limit_bytes / kChunksQueued, kMaxChunkBytes);
  // Only a chunk's last packet can ask for the ACK that every quarter window asks for.
  const uint32_t packets =
      std::min(static_cast<uint32_t>(bytes) >> mtu_shift(), request_congestion_.psns() / 4);
  return std::max(packets, resent_packets());
}
uint32_t Qp::resent_packets() const { return kSharedChunkBytes >> mtu_shift(); }

Qp::Issue Qp::issue_chunk(TimeNs now_ns) {
  const uint32_t index = issue_;
  Wqe& w = wqe(index);
  if (is_local(w.op)) return issue_local(index);
  const uint32_t room = window_room();
  if (is_unsendable(w)) {
    if (w.ud.other_domain) {
      fail(index, WcStatus::kLocQpOpErr, VendorError::kAddressDomain);
    } else {
      fail(index, WcStatus::kLocLenErr, VendorError::kLocalLength);
    }
    return Issue::kWaits;
  }
  if (room == 0 || (!w.started && !may_start(w))) return Issue::kWaits;
  // Only a bounded amount queues in the NIC (rule 4, bounded queues). Nobody reports transmission,
  // so progress() looks again.
  const uint64_t limit_bytes = host_.queued_bytes_limit(status_index, now_ns);
  const auto beyond_limit = [&](uint32_t psns) {
    return uint64_t{psns} * attr.path_mtu_bytes >= limit_bytes;
  };
  // The number of PSNs transmitted is read only where it matters, because it is on another core.
  if (beyond_limit(requests_.in_flight())) {
    const int32_t untransmitted = distance(transmitted(), requests_.next());
    if (untransmitted > 0 && beyond_limit(static_cast<uint32_t>(untransmitted)))
      return Issue::kLater;
  }
  RingEnd& ring = host_.map.sends;
  if (!ring.has_room(1 + kMaxExtraElements)) return Issue::kRingFull;
  if (!w.started) start(w, index);

  if (is_read_or_atomic(w.op)) {
    // The first range is pulled along, unless an earlier READ still has ranges to pull: answers
    // keep to PSN order.
    uint32_t first_pull = 0;
    if (w.response_count != 0 && responses_.next() == w.first_response_psn) {
      first_pull = std::min({w.response_count, chunk_packets(limit_bytes), response_room()});
    }
    const bool ack = answers_need_ack(w, first_pull, room);
    psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + 1;
    send_read_request(w, 0, first_pull, 0, ack ? kSendAckRequest : 0, ring);
    requests_.on_first_send(1, now_ns);
    if (first_pull != 0) responses_.on_first_send(first_pull, now_ns);
    ++issue_;
    return Issue::kDone;
  }
  uint32_t packets = w.psn_count - w.issued_psns;
  if (packets > 1) packets = std::min({room, chunk_packets(limit_bytes), packets});
  const bool ack = wants_ack(index, w, packets, room);
  const uint8_t attempt = attempt_of_rest(w);
  send_range(w, index, w.issued_psns, packets, attempt, ack ? kSendAckRequest : 0, ring);
  psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + packets;
  w.issued_psns += packets;
  requests_.on_first_send(packets, now_ns, w.issued_psns == w.psn_count, attempt);
  if (w.issued_psns == w.psn_count) ++issue_;
  return Issue::kDone;
}

// Issues a bind or an invalidation, which takes no PSN. It starts when all before it is complete,
// and nothing after it starts before the NIC has answered: then order needs no rules of its own.
Qp::Issue Qp::issue_local(uint32_t index) {
  Wqe& w = wqe(index);
  if (w.started || head_ != index) return Issue::kWaits;
  Command command{};
  if (w.op == SendOp::kBindWindow) {
    command.kind = CommandKind::kBindWindow;
    command.bind_window = {.qpn = qpn,
                           .key = w.rkey,
                           .mr_key = w.binding.mr_key,
                           .access = w.binding.access,
                           .va = w.remote_va,
                           .length_bytes = w.binding.length_bytes};
  } else {
    command.kind = CommandKind::kInvalidateWindow;
    command.invalidate_window = {.qpn = qpn, .key = w.rkey};
  }
  if (!host_.send_window_command(*this, command)) return Issue::kLater;
  w.started = true;
  w.first_psn = requests_.next();
  w.psn_count = 0;
  return Issue::kWaits;
}

// The attempt of a message's rest: where a message has one attempt, that of its beginning, which may
// have gone again.
uint8_t Qp::attempt_of_rest(const Wqe& w) const {
  if (!requests_.traits().one_attempt_per_message || w.issued_psns == 0) return 0;
  const Psn begin = before(w.first_psn, requests_.una()) ? requests_.una() : w.first_psn;
  return before(begin, requests_.next()) ? requests_.attempt(begin) : 0;
}

// Whether a packet asks for an ACK (rule 20, one ACK per burst): the last before the sender must
// pause does, the end of signalled requests, and one in every quarter window.
bool Qp::wants_ack(uint32_t index, const Wqe& w, uint32_t packets, uint32_t room) const {
  if (packets == room) return true;
  if (psns_since_ack_request_ + packets >= request_congestion_.psns() / 4) return true;
  if (w.issued_psns + packets != w.psn_count) return false;
  return w.signalled || index + 1 == tail_ || !may_start(wqe(index + 1));
}

// Whether a READ or atomic asks for an ACK: answers acknowledge the request that they are for
// (take_executed()), so where all of them are pulled with it an ACK would say nothing new. An ACK
// is asked for all the same once in so many PSNs, for round trip times.
bool Qp::answers_need_ack(const Wqe& w, uint32_t first_pull, uint32_t room) const {
  constexpr uint32_t kPsnsPerAck = 16;
  if (room == 1 || first_pull == 0 || first_pull != w.response_count || !rtt_.valid()) return true;
  return !requests_.traits().answers_acknowledge ||
         psns_since_ack_request_ + 1 >= std::min(kPsnsPerAck, request_congestion_.psns() / 4);
}

void Qp::fill_read_destination(const Wqe& w, uint32_t index) {
  auto* slots = reinterpret_cast<ReadDestination*>(host_.map.at(read_destination_offset));
  ReadDestination& slot = slots[w.recv_sn % kReadDestinationEntries];
  slot.read_number = w.recv_sn;
  slot.length_bytes = w.length_bytes;
  slot.first_response_psn = w.first_response_psn.value();
  slot.sge_count = w.sge_count;
  const Sge* sges = &sges_[size_t{index & wqe_mask_} * init.caps.max_send_sge];
  std::copy_n(sges, w.sge_count, slot.sge);
}

// Writes a chunk's descriptor, except for its payload. Each word is written once, because the
// descriptor may lie in the ring.
[[gnu::always_inline]] inline void Qp::describe(const Wqe& w, const Range& range, uint8_t flags,
                                                SendDescriptor& d) const {
  const bool datagram = init.type == QpType::kUd;
  d.op = w.op;
  d.flags = flags;
  d.attempt = range.attempt - (broken(Fault::wrong_attempt) && range.attempt != 0 ? 1 : 0);
  d.extra_elements = 0;
  d.qpn = qpn;
  d.psn = (w.first_psn + range.first).value();
  d.length_bytes = range.bytes;
  d.va = datagram ? 0 : is_send(w.op) ? range.offset : w.remote_va + range.offset;
  d.key = datagram ? w.ud.qkey : is_send(w.op) ? w.recv_sn : w.rkey;
  d.message_bytes = w.length_bytes;
  d.imm_data = w.imm_data;
  d.recv_sn = datagram ? w.ud.qpn : is_send(w.op) ? 0 : w.recv_sn;
  d.first_response_psn = datagram ? raw(w.ud.ip) : 0;
  d.hop_limit = datagram ? w.ud.hop_limit : 0;
  d.traffic_class = datagram ? w.ud.traffic_class : 0;
  d.reserved = 0;
}

// The ring must have room for the largest descriptor (callers check).
void Qp::send_range(const Wqe& w, uint32_t index, uint32_t first, uint32_t count, uint8_t attempt,
                    uint8_t flags, RingEnd& ring) {
  const uint32_t offset = first * attr.path_mtu_bytes;
  const Range range{.first = first,
                    .attempt = attempt,
                    .offset = offset,
                    .bytes = std::min(count * attr.path_mtu_bytes, w.length_bytes - offset)};
  if (first != 0) flags |= kSendCont;
  if (first + count != w.psn_count) flags |= kSendMore;
  if (w.solicited) flags |= kSendSolicited;
  if (w.sge_count == 1) {
    ring.enqueue<SendDescriptor>([&](SendDescriptor& d) {
      describe(w, range, flags, d);
      const Sge& sge = sges_[size_t{index & wqe_mask_} * init.caps.max_send_sge];
      d.sge_count = range.bytes != 0;
      d.sge0.addr = sge.addr + offset;
      d.sge0.length_bytes = range.bytes;
      d.sge0.lkey = sge.lkey;
    });
  } else {
    std::array<SendDescriptor, 1 + kMaxExtraElements> elements;
    SendDescriptor& d = elements[0];
    d = {};
    describe(w, range, flags, d);
    fill_payload(w, index, offset, range.bytes, d, reinterpret_cast<std::byte*>(&elements[1]));
    ring.enqueue_bulk(elements.data(), 1u + d.extra_elements);
  }
  host_.published();
}

// Fills in the part of the scatter list, or of the inline bytes, that [offset, offset + bytes) of
// the message covers.
void Qp::fill_payload(const Wqe& w, uint32_t index, uint32_t offset, uint32_t bytes,
                      SendDescriptor& d, std::byte* extra) {
  const size_t slot = index & wqe_mask_;
  if (w.inline_data) {
    d.flags |= kSendInline;
    d.extra_elements =
        static_cast<uint8_t>((bytes + sizeof(RingElement) - 1) / sizeof(RingElement));
    if (bytes != 0)
      std::memcpy(extra, &inline_bytes_[slot * init.caps.max_inline_bytes + offset], bytes);
    return;
  }
  const Sge* sges = sges_.data() + slot * init.caps.max_send_sge;
  uint32_t count = 0;
  for (uint32_t i = 0; i < w.sge_count && bytes != 0; ++i) {
    const uint32_t length = sges[i].length_bytes;
    if (offset >= length) {
      offset -= length;
      continue;
    }
    const Sge part{sges[i].addr + offset, std::min(bytes, length - offset), sges[i].lkey};
    if (count == 0) {
      d.sge0 = part;
    } else {
      std::memcpy(extra + (count - 1) * sizeof(Sge), &part, sizeof(Sge));
    }
    ++count;
    bytes -= part.length_bytes;
    offset = 0;
  }
  d.sge_count = static_cast<uint8_t>(count);
  d.extra_elements = static_cast<uint8_t>(count <= 1 ? 0 : (count - 2) / kSgesPerElement + 1);
}

void Qp::send_read_request(const Wqe& w, uint32_t pull_first, uint32_t pull_count, uint8_t attempt,
                           uint8_t flags, RingEnd& ring) {
  SendDescriptor d{};
  d.op = w.op;
  d.attempt = attempt;
  if (broken(Fault::wrong_attempt) && attempt != 0) --d.attempt;
  d.flags = flags;
  d.qpn = qpn;
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
    const uint32_t offset = pull_first * attr.path_mtu_bytes;
    d.read_offset_bytes = offset;
    d.length_bytes = std::min(pull_count * attr.path_mtu_bytes, w.length_bytes - offset);
  }
  ring.enqueue_bulk(&d, 1);
  host_.published();
}

// Repeats what is lost and may go. Returns false if the ring is full.
bool Qp::resend_lost(TimeNs now_ns) {
  uint32_t sent = 0;
  Psn from = requests_.una(), first;
  uint32_t count = 0;
  while (requests_.next_lost_run(from, resent_packets(), first, count)) {
    const uint32_t index = find_by_psn(first);
    if (failed_ && serial_distance(failed_index_, index) >= 0) break;
    // While the peer has no receive, only the request that it named goes (rule 15, RNR).
    if (rnr_ == Rnr::kProbing && index != find_by_psn(requests_.una())) break;
    if (backoff_ != 0 && sent >= kResendsAfterTimeout) break;
    const Wqe& w = wqe(index);
    const auto within = static_cast<uint32_t>(distance(w.first_psn, first));
    count = std::min(count, w.psn_count - within);
    if (backoff_ != 0) count = std::min(count, kResendsAfterTimeout - sent);
    if (!host_.map.urgent.has_room(1 + kMaxExtraElements)) return false;
    requests_.on_resend(first, count, now_ns);
    host_.totals.retransmitted_packets += count;
    const uint8_t flags = kSendAckRequest | kSendRetransmit;
    if (is_read_or_atomic(w.op)) {
      resend_read_request(w, now_ns, requests_.attempt(first), flags);
    } else {
      send_range(w, index, within, count, requests_.attempt(first), flags, host_.map.urgent);
    }
    sent += count;
    from = first + count;
  }
  return true;
}

// Repeats a READ request that was lost, together with the range that the first one asked for, if
// nothing of that has come. After a timeout the request may have been executed all the same, and
// later READs, too: then pull_lost() asks for all of them in a new epoch (rule 18).
void Qp::resend_read_request(const Wqe& w, TimeNs now_ns, uint8_t attempt, uint8_t flags) {
  uint32_t pull_count = 0;
  const int32_t pulled = distance(w.first_response_psn, responses_.next());
  const bool later_pulled =
      distance(w.first_response_psn + w.response_count, responses_.next()) > 0;
  if (w.response_count != 0 && pulled > 0 && !(later_pulled && backoff_ != 0) &&
      distance(responses_.una(), w.first_response_psn) >= 0) {
    pull_count = std::min({w.response_count, resent_packets(), static_cast<uint32_t>(pulled)});
    for (uint32_t i = 0; i < pull_count; ++i) {
      if (responses_.acknowledged(w.first_response_psn + i)) pull_count = i;
    }
    if (pull_count != 0) responses_.on_resend(w.first_response_psn, pull_count, now_ns);
  }
  send_read_request(w, 0, pull_count, attempt, flags, host_.map.urgent);
}

// Asks for the next ranges, in response PSN order, of READs that have executed (rule 17). Returns
// false if the ring is full.
bool Qp::pull(TimeNs now_ns) {
  while (responses_.next() != next_response_psn_) {
    const Psn first = responses_.next();
    const uint32_t room = response_room();
    const uint32_t index = find_by_response(first);
    const Wqe& w = wqe(index);
    if (room == 0 || distance(w.first_psn, requests_.una()) <= 0) return true;
    if (!host_.map.urgent.has_room(1)) return false;
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    const uint32_t chunk = chunk_packets(host_.queued_bytes_limit(status_index, now_ns));
    const uint32_t count = std::min({room, chunk, w.response_count - within});
    responses_.on_first_send(count, now_ns);
    send_read_request(w, within, count, 0, 0, host_.map.urgent);
  }
  return true;
}

// Asks again for ranges that did not come. READs stay ordered: what later ones have received is
// pulled again, too, under a new epoch (rule 18). Returns false if the ring is full.
bool Qp::pull_lost(TimeNs now_ns) {
  if (broken(Fault::answers_not_pulled_again)) return true;
  Psn from = responses_.una(), first;
  uint32_t count = 0;
  while (responses_.next_lost_run(from, resent_packets(), first, count)) {
    const uint32_t index = find_by_response(first);
    const Wqe& w = wqe(index);
    const Psn end = w.first_response_psn + w.response_count;
    if (distance(end, responses_.next()) > 0 && !host_.settings().relaxed_ordering &&
        !broken(Fault::epoch_not_renewed)) {
      renew_epoch(end);
      from = responses_.una();
      continue;
    }
    if (!host_.map.urgent.has_room(1)) return false;
    const auto within = static_cast<uint32_t>(distance(w.first_response_psn, first));
    count = std::min(count, w.response_count - within);
    responses_.on_resend(first, count, now_ns);
    host_.totals.read_repulls += 1;
    send_read_request(w, within, count, requests_.attempt(w.first_psn), kSendRetransmit,
                      host_.map.urgent);
    from = first + count;
  }
  return true;
}

void Qp::renew_epoch(Psn keep_until) {
  ++epoch_;
  epoch_keep_until_ = keep_until;
  responses_.rewind(keep_until);
  // Answers on their way carry the old epoch and will be dropped.
  responses_.mark_all_lost();
}

// Finds a request by binary search: requests in [head, issue] cover PSNs in order.
uint32_t Qp::find_by_psn(Psn psn) const {
  uint32_t low = head_, high = issue_;
  while (low != high) {
    const uint32_t middle = low + (high - low) / 2;
    const Wqe& w = wqe(middle);
    if (w.started && distance(w.first_psn + w.psn_count, psn) >= 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

uint32_t Qp::find_by_response(Psn psn) const {
  for (uint32_t i = head_; i != tail_ && wqe(i).started; ++i) {
    const Wqe& w = wqe(i);
    if (!is_read_or_atomic(w.op)) continue;
    const int32_t within = distance(w.first_response_psn, psn);
    if (within >= 0 && within < static_cast<int32_t>(w.response_count)) return i;
  }
  return head_;
}

}  // namespace hostnic::driver
