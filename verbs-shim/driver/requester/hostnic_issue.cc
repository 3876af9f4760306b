// SPDX-License-Identifier: BSD-3-Clause
// What goes to the NIC but for first transmissions of SENDs and WRITEs, and answers that are
// pulled: READ requests, retransmissions of what is lost.
#include <algorithm>

#include "verbs-shim/driver/requester/hostnic.h"
#include "verbs-shim/driver/requester/resend.h"

namespace hostnic::driver {
namespace {

// How many attempts a probe is ahead of its packet, which is seldom repeated so often.
constexpr uint32_t kProbeAttempts = 2;

}  // namespace

// Hands over the request of a READ or atomic, together with its first pull.
void HostnicRequester::begin_read(SendQueue& queue, Wqe& w, uint32_t room, uint64_t limit_bytes,
                                  TimeNs now_ns) {
  uint32_t chunk = queue.chunk_packets(limit_bytes, request_congestion_.psns());
  uint8_t path = 0;
  if (paths_ != nullptr) [[unlikely]] {
    // All READs behind it wait for a request: it is no probe.
    path = answers_.take_path();
    chunk = std::min(chunk, PathTable::kRunPackets);
  }
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
  answers_.request(queue, w, first_pull, ack ? kSendAckRequest : 0, now_ns, path);
  w.issued_psns = 1;
  requests_.on_first_send(1, now_ns);
  if (paths_ != nullptr) [[unlikely]]
    requests_.note_first_path(1, path);
}

// As send_next(), by the path whose turn it is: no READ or atomic.
[[gnu::noinline]] void HostnicRequester::send_by_path(SendQueue& queue, Wqe& w, uint32_t index,
                                                      uint32_t packets, uint32_t room,
                                                      TimeNs now_ns) {
  const PathTable::Choice by = paths_->next();
  packets = std::min(packets, by.most_packets);
  paths_->take(packets);
  probe_path(queue, now_ns);
  // The ACK of a run's end tells of the path.
  const bool ack = wants_ack(queue, w, index, packets, room) || packets == by.most_packets;
  hand_over(queue, w, index, packets, by.path, ack, now_ns);
  requests_.note_first_path(packets, by.path);
}

// Sends the last packet that has left once more, by a path that is avoided, if it is time to look
// at one. The copy costs nothing if it is lost; its attempt number tells it from others. A packet
// that still waits in the NIC is not copied, for it would be overtaken.
void HostnicRequester::probe_path(SendQueue& queue, TimeNs now_ns) {
  const uint32_t path = paths_->due_probe(now_ns);
  if (path == PathTable::kNone || !queue.host.map.urgent.has_room(1 + kMaxExtraElements)) return;
  const Psn psn = queue.transmitted() + Psn::kMask;  // one back
  if (before(psn, requests_.una()) || !before(psn, requests_.next())) return;
  const uint32_t index = queue.find_by_psn(psn);
  const Wqe& w = queue.wqe(index);
  if (is_read_or_atomic(w.op)) return;
  const auto attempt = static_cast<uint8_t>((requests_.attempt(psn) + kProbeAttempts) & 3);
  paths_->note_probe(path, psn, attempt, now_ns);
  queue.send_range(w, index, static_cast<uint32_t>(distance(w.first_psn, psn)), 1,
                   {attempt_with(attempt, RepeatCause::probe), static_cast<uint8_t>(path)},
                   kSendAckRequest | kSendRetransmit, queue.host.map.urgent);
  ++queue.host.totals.retransmitted_packets;
}

// While the peer has no receive, only the request that it named goes (rule 15, RNR).
bool HostnicRequester::repeat_lost(SendQueue& queue, TimeNs now_ns) {
  return resend_lost(
      queue, requests_, patience_, now_ns,
      [&](uint32_t index) {
        return !rnr_.probing() || index == queue.find_by_psn(requests_.una());
      },
      [&](const Wqe& w, uint32_t index, uint32_t within, uint32_t count, uint8_t attempt,
          uint8_t flags, uint8_t path) {
        if (is_read_or_atomic(w.op)) {
          answers_.request_again(queue, w, attempt, flags, now_ns, path);
        } else {
          queue.send_range(w, index, within, count, {attempt, path}, flags, queue.host.map.urgent);
        }
      },
      UINT32_MAX, paths_.get());
}

}  // namespace hostnic::driver
