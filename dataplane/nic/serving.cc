// Which clients are looked at each turn. A thousand programs may have a device open, and most of
// them do nothing: looking into everybody's rings in every turn would cost those that do something.
#include <algorithm>

#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {

// So few cost nothing that could be felt.
constexpr size_t kAlwaysServed = 16;
// Of the others so many are looked at in a turn: a thousand in a tenth of a millisecond or so. None
// waits for that when the lcore sleeps: before, all are looked at.
constexpr uint32_t kUnservedPerTurn = 8;
constexpr uint64_t kServedIdleNs = 2'000'000;

}  // namespace

bool Nic::Impl::has_published(const ClientState& client) {
  const ClientChannel& channel = *client.channel;
  return channel.dropped.load(std::memory_order_relaxed) == DropReason::kNone &&
         (!channel.commands.empty() || !channel.sends.empty() || !channel.urgent.empty());
}

// Whether the next turn has something to do for it. What a dropped one has published nobody takes.
bool Nic::Impl::has_work(const ClientState& client) {
  if (client.channel->dropped.load(std::memory_order_relaxed) != DropReason::kNone) return false;
  // Of an answer that waits nobody tells when another lcore frees a packet.
  return !client.deferred.empty() || client.urgent.active || client.normal.active ||
         !client.sends.empty() || !client.urgents.empty() || has_published(client);
}

void Nic::Impl::serve(ClientState& client) {
  client.last_work_ns = now;
  if (client.served) return;
  client.served = true;
  served.push_back(&client);
}

void Nic::Impl::look_at_unserved() {
  if (served.size() == clients.size()) return;
  const auto count = static_cast<uint32_t>(clients.size());
  for (uint32_t i = 0; i < kUnservedPerTurn; ++i) {
    next_unserved = next_unserved + 1 < count ? next_unserved + 1 : 0;
    ClientState& client = *clients[next_unserved];
    if (client.served) continue;
    client.channel->header().nic_turn_ns.store(now, std::memory_order_relaxed);
    if (has_published(client) || client.channel->memory_gone.load(std::memory_order_relaxed))
      serve(client);
  }
}

void Nic::Impl::forget_idle() {
  if (served.size() <= kAlwaysServed) return;
  size_t kept = 0;
  for (ClientState* client : served) {
    if (client->reports_unseen || has_work(*client)) client->last_work_ns = now;
    client->served = now - client->last_work_ns < kServedIdleNs;
    if (client->served) served[kept++] = client;
  }
  served.resize(kept);
}

}  // namespace hostnic
