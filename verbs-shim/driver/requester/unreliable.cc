// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/unreliable.h"

namespace hostnic::driver {

void UnreliableRequester::start(SendQueue& queue, Psn first, TimeNs /*now_ns*/) {
  window_ = queue.host.settings().window;
  una_ = next_ = first;
  highest_acceptable_ = first + (kInitialWindow - 1);
  psns_since_ack_request_ = 0;
}

// Whether the NIC is asked to say that a chunk has left: of the last one before the queue must
// pause, the end of a signalled request, and one in every quarter window.
bool UnreliableRequester::asks_to_be_told(const SendQueue& queue, const Wqe& w, uint32_t index,
                                          uint32_t packets, uint32_t room) const {
  if (packets == room || psns_since_ack_request_ + packets >= window_ / 4) return true;
  if (w.issued_psns + packets != w.psn_count) return false;
  return w.signalled || index + 1 == queue.tail() || !queue.has_packets(queue.wqe(index + 1));
}

void UnreliableRequester::send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room,
                                    uint64_t limit_bytes, TimeNs /*now_ns*/) {
  const uint32_t packets =
      std::min({w.psn_count - w.issued_psns, room, queue.chunk_packets(limit_bytes, window_)});
  const bool told = asks_to_be_told(queue, w, index, packets, room);
  queue.send_range(w, index, w.issued_psns, packets, {}, told ? kSendAckRequest : 0,
                   queue.host.map.sends);
  psns_since_ack_request_ = told ? 0 : psns_since_ack_request_ + packets;
  w.issued_psns += packets;
  next_ += packets;
}

void UnreliableRequester::take_acks(SendQueue& /*queue*/, const QpStatusSnapshot& snapshot,
                                    TimeNs /*now_ns*/) {
  if (const Psn highest(snapshot.highest_acceptable_psn);
      snapshot.ack_count != 0 && distance(highest_acceptable_, highest) > 0)
    highest_acceptable_ = highest;
  // The status is believed only in what is possible (rule 22, valid ACKs).
  const Psn left(snapshot.una_psn);
  if (distance(una_, left) >= 0 && distance(left, next_) >= 0) una_ = left;
}

QpGauges UnreliableRequester::gauges(const SendQueue& /*queue*/) const {
  return {.requests_in_flight = in_flight(),
          .responses_in_flight = 0,
          .request_window = window_,
          .response_window = 0,
          .rto_ns = 0};
}

}  // namespace hostnic::driver
