// SPDX-License-Identifier: BSD-3-Clause
// The requester of UC and UD (docs/transport.md rule 36): packets go once, and a request is
// finished when the NIC has transmitted it. Only queueing in the NIC is bounded.
#pragma once

#include <algorithm>

#include "verbs-shim/driver/requester/requester.h"

namespace hostnic::driver {

class UnreliableRequester {
 public:
  void start(SendQueue& queue, Psn first, TimeNs now_ns);
  Psn una() const { return una_; }
  Psn next() const { return next_; }
  uint32_t in_flight() const { return static_cast<uint32_t>(distance(una_, next_)); }

  uint32_t room(const SendQueue& /*queue*/) const {
    const uint32_t room = window_ - std::min(window_, in_flight());
    const int32_t taken = distance(next_, highest_acceptable_) + 1;
    return taken <= 0 ? 0 : std::min(room, static_cast<uint32_t>(taken));
  }
  // Nothing is ordered or limited by a peer.
  bool may_start(const SendQueue& /*queue*/, const Wqe& /*w*/) const { return true; }
  void assign(SendQueue& queue, Wqe& w, uint32_t /*index*/) {
    w.first_psn = next_;
    w.psn_count = queue.packets_for(w.length_bytes);
  }
  void send_next(SendQueue& queue, Wqe& w, uint32_t index, uint32_t room, uint64_t limit_bytes,
                 TimeNs now_ns);

  void take_acks(SendQueue& queue, const QpStatusSnapshot& snapshot, TimeNs now_ns);
  bool finished(const Wqe& w) const { return distance(w.first_psn + w.psn_count, una_) >= 0; }
  void retire(const Wqe& /*w*/) {}

  void prefetch_next() const {}
  QpGauges gauges(const SendQueue& queue) const;
  uint32_t congestion_window() const { return window_; }

 private:
  bool asks_to_be_told(const SendQueue& queue, const Wqe& w, uint32_t index, uint32_t packets,
                       uint32_t room) const;

  uint32_t window_ = 0;  // the most PSNs handed over of which the NIC has not said that they left
  Psn una_, next_;       // una: everything before it has left
  Psn highest_acceptable_;
  uint32_t psns_since_ack_request_ = 0;
};
static_assert(Requester<UnreliableRequester> && !ReliableRequester<UnreliableRequester>);

}  // namespace hostnic::driver
