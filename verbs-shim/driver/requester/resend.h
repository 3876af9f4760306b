// SPDX-License-Identifier: BSD-3-Clause
// Repetition by selective recovery, for each requester that repeats alone what is lost.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/transport/send_tracker.h"
#include "verbs-shim/driver/requester/patience.h"
#include "verbs-shim/driver/requester/requester.h"

namespace hostnic::driver {

// PSNs that go again after a timeout, until the oldest unacknowledged one moves.
inline constexpr uint32_t kResendsAfterTimeout = 16;

// Repeats what `requests` has as lost, in runs that do not leave a message, from the oldest on.
// `may_go(index)` says whether the WQE at `index` may be repeated now; with the first that may not
// it ends. `send(w, index, within, count, attempt, flags, path)` hands over `count` packets of a
// WQE from packet `within` on, `most` packets in all. Lost packets go again by another of `paths`
// than before; null: there is one. Returns false if the ring is full: the caller comes again. The
// caller holds the queue pair.
template <typename MayGo, typename Send>
bool resend_lost(SendQueue& queue, SendTracker& requests, const Patience& patience, TimeNs now_ns,
                 MayGo may_go, Send send, uint32_t most = UINT32_MAX, PathTable* paths = nullptr) {
  uint32_t room = patience.backoff() != 0 ? std::min(kResendsAfterTimeout, most) : most;
  Psn from = requests.una(), first;
  uint32_t count = 0;
  while (room != 0 && requests.next_lost_run(from, queue.resent_packets(), first, count)) {
    const uint32_t index = queue.find_by_psn(first);
    if (queue.failed_at_or_before(index) || !may_go(index)) break;
    const Wqe& w = queue.wqe(index);
    const auto within = static_cast<uint32_t>(distance(w.first_psn, first));
    count = std::min({count, w.psn_count - within, room});
    if (!queue.host.map.urgent.has_room(1 + kMaxExtraElements)) return false;
    const uint8_t path = paths == nullptr ? uint8_t{0} : paths->other_than(requests.path(first));
    requests.on_resend(first, count, now_ns, path);
    queue.host.totals.retransmitted_packets += count;
    send(w, index, within, count, attempt_with(requests.attempt(first), requests.cause(first)),
         static_cast<uint8_t>(kSendAckRequest | kSendRetransmit), path);
    room -= count;
    from = first + count;
  }
  return true;
}

}  // namespace hostnic::driver
