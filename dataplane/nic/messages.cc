// SPDX-License-Identifier: BSD-3-Clause
// Traced messages: a tap begins and ends, and takes what programs have to say.
#include <algorithm>
#include <array>

#include "dataplane/nic/nic.h"
#include "dataplane/nic/nic_core.h"

namespace hostnic {

// What programs have said until now is of the tap that there was.
void NicShard::set_message_tap(MessageTap* to) {
  for (const auto& client : clients.all()) {
    client->channel->header().message_events.store(to == nullptr ? 0 : to->session(),
                                                   std::memory_order_relaxed);
    take_message_events(*client);
  }
  if (to != nullptr) to->begin(qps);
  messages = to;
  is_watched = tap != nullptr || messages != nullptr;
}

void NicShard::begin_watched_turn() {
  if (tap != nullptr) tap->set_time(now);
  if (messages == nullptr) return;
  for (ClientState* client : clients.served()) take_message_events(*client);
}

void NicShard::take_message_events(ClientState& client) {
  std::array<MessageEvent, 32> events;
  // A ring's worth at most: the program may write on.
  for (uint32_t taken = 0; taken < kEventRingSize && !ClientList::is_dropped(client);) {
    const int count = client.channel->events.dequeue_burst(events.data(), events.size());
    if (count < 0) clients.drop(client, DropReason::kRingPosition);
    if (count <= 0) return;
    taken += static_cast<uint32_t>(count);
    if (messages == nullptr) continue;
    for (int i = 0; i < count; ++i) {
      const QpContext* const qp = own_qp(client, events[i].qpn);
      if (qp != nullptr) messages->take_event(*qp, events[i]);
    }
  }
}

}  // namespace hostnic
