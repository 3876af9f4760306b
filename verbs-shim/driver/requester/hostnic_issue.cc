// SPDX-License-Identifier: BSD-3-Clause
// What goes to the NIC but for first transmissions of SENDs and WRITEs, and answers that are
// pulled: READ requests, retransmissions of what is lost.
#include <algorithm>

#include "verbs-shim/driver/requester/hostnic.h"
#include "verbs-shim/driver/requester/resend.h"

namespace hostnic::driver {
// Hands over the request of a READ or atomic, together with its first pull.
void HostnicRequester::begin_read(SendQueue& queue, Wqe& w, uint32_t room, uint64_t limit_bytes,
                                  TimeNs now_ns) {
  const uint32_t chunk = queue.chunk_packets(limit_bytes, request_congestion_.psns());
  const uint32_t first_pull = answers_.first_pull(queue, w, chunk);
  // Answers acknowledge the request that they are for (take_executed()), so where all of them are
  // pulled with it an ACK would say nothing new. One is asked for all the same once in so many
  // PSNs, for round trip times.
  constexpr uint32_t kPsnsPerAck = 16;
  const bool answers_say_it = room != 1 && first_pull != 0 && first_pull == w.response_count &&
                              rtt_.valid() && requests_.traits().answers_acknowledge;
  const bool ack = !answers_say_it || psns_since_ack_request_ + 1 >=
                                          std::min(kPsnsPerAck, request_congestion_.psns() / 4);
  psns_since_ack_request_ = ack ? 0 : psns_since_ack_request_ + 1;
  answers_.request(queue, w, first_pull, ack ? kSendAckRequest : 0, now_ns);
  w.issued_psns = 1;
  requests_.on_first_send(1, now_ns);
}

// While the peer has no receive, only the request that it named goes (rule 15, RNR).
bool HostnicRequester::repeat_lost(SendQueue& queue, TimeNs now_ns) {
  return resend_lost(
      queue, requests_, patience_, now_ns,
      [&](uint32_t index) {
        return !rnr_.probing() || index == queue.find_by_psn(requests_.una());
      },
      [&](const Wqe& w, uint32_t index, uint32_t within, uint32_t count, uint8_t attempt,
          uint8_t flags) {
        if (is_read_or_atomic(w.op)) {
          answers_.request_again(queue, w, attempt, flags, now_ns);
        } else {
          queue.send_range(w, index, within, count, attempt, flags, queue.host.map.urgent);
        }
      });
}

}  // namespace hostnic::driver
