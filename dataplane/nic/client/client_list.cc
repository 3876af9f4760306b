// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/client/client_list.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "dataplane/nic/limits.h"

namespace hostnic {
namespace {

// Up to so many clients are served in every turn: the cost of looking at them can't be measured.
constexpr size_t kAlwaysServed = 16;
// A turn looks at this many of the clients beyond kAlwaysServed that had no work: a thousand take a
// tenth of a millisecond or so. No client waits for its turn while the lcore sleeps: before it
// does, all are looked at.
constexpr uint32_t kUnservedPerTurn = 8;
constexpr uint64_t kServedIdleNs = 2'000'000;

}  // namespace

int ClientList::attach(ClientChannel* channel) {
  assert(channel->nic_state == nullptr);
  if (clients_.size() >= kMaxClients) return ENOMEM;
  auto state = std::make_unique<ClientState>();
  state->deferred.reserve(kCommandRingSize);
  state->channel = channel;
  channel->nic_state = state.get();
  serve(*state);
  clients_.push_back(std::move(state));
  return 0;
}

ClientState* ClientList::find(const ClientChannel* channel) const {
  const auto found = std::ranges::find(clients_, channel, [](const auto& state) {
    return static_cast<const ClientChannel*>(state->channel);
  });
  return found == clients_.end() ? nullptr : found->get();
}

void ClientList::detach(ClientState& client) {
  assert(client.qpns.empty());
  client.channel->nic_state = nullptr;
  std::erase(served_, &client);
  std::erase_if(clients_, [&](const auto& state) { return state.get() == &client; });
  next_unserved_ = 0;
}

void ClientList::ask_for_descriptors() const {
  for (const ClientState* client : served_)
    if (client->sends.waiting() < kTxBudget) client->channel->sends.prefetch(kTxBudget);
}

bool ClientList::any_has_work() {
  for (const auto& client : clients_) {
    if (client->served ? has_work(*client) : has_published(*client)) {
      serve(*client);
      return true;
    }
  }
  return false;
}

void ClientList::drop(ClientState& client, DropReason reason) {
  // A program that is killed takes its memory with it, and has done nothing impossible.
  if (reason != DropReason::kMemoryGone) counters_.add(Counter::clients_dropped);
  client.channel->dropped.store(reason, std::memory_order_release);
  client.channel->header().device_fatal.store(1 + static_cast<uint32_t>(reason),
                                              std::memory_order_release);
  client.channel->wake_driver();
}

bool ClientList::has_published(const ClientState& client) {
  const ClientChannel& channel = *client.channel;
  return channel.dropped.load(std::memory_order_relaxed) == DropReason::kNone &&
         (!channel.commands.empty() || !channel.sends.empty() || !channel.urgent.empty());
}

bool ClientList::has_sends(const ClientState& client) {
  const ClientChannel& channel = *client.channel;
  return channel.dropped.load(std::memory_order_relaxed) == DropReason::kNone &&
         (client.urgent.active || client.normal.active || !client.sends.empty() ||
          !client.urgents.empty() || !channel.sends.empty() || !channel.urgent.empty());
}

// Whether the next turn has something to do for the client. What a dropped client has published is
// not taken.
bool ClientList::has_work(const ClientState& client) {
  if (client.answer_line.count != 0) return true;
  if (client.channel->dropped.load(std::memory_order_relaxed) != DropReason::kNone) return false;
  // A deferred answer counts as work: nobody tells this lcore when another one frees a packet.
  return !client.deferred.empty() || client.held_seen_ns != 0 || client.urgent.active ||
         client.normal.active || !client.sends.empty() || !client.urgents.empty() ||
         has_published(client);
}

void ClientList::serve(ClientState& client) {
  client.last_work_ns = now_;
  if (client.served) return;
  client.served = true;
  served_.push_back(&client);
}

void ClientList::look_at_unserved() {
  if (served_.size() == clients_.size()) return;
  const auto count = static_cast<uint32_t>(clients_.size());
  for (uint32_t i = 0; i < kUnservedPerTurn; ++i) {
    next_unserved_ = next_unserved_ + 1 < count ? next_unserved_ + 1 : 0;
    ClientState& client = *clients_[next_unserved_];
    if (client.served) continue;
    client.channel->header().nic_turn_ns.store(now_, std::memory_order_relaxed);
    if (has_published(client) || client.channel->has_lost_memory()) serve(client);
  }
}

void ClientList::forget_idle() {
  if (served_.size() <= kAlwaysServed) return;
  size_t kept = 0;
  for (ClientState* client : served_) {
    if (client->reports_unseen || has_work(*client)) client->last_work_ns = now_;
    client->served = now_ - client->last_work_ns < kServedIdleNs;
    if (client->served) served_[kept++] = client;
  }
  served_.resize(kept);
}

}  // namespace hostnic
