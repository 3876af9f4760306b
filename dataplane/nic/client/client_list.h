// SPDX-License-Identifier: BSD-3-Clause
// The clients of a NIC: programs that have a device of it open. A thousand may, and most of them do
// nothing: looking into everybody's rings in every turn would cost those that do something. So only
// some of them are served, and the others looked at now and then.
//
// The NIC's lcore. attach() and detach() allocate.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/counters.h"
#include "protocol/types.h"

namespace hostnic {

class ClientList {
 public:
  ClientList(Counters& counters, const TimeNs& now) : counters_(counters), now_(now) {}

  // Adds the client. Returns ENOMEM when there are too many.
  int attach(ClientChannel* channel);
  // The state of an attached client; null if the channel is not attached.
  ClientState* find(const ClientChannel* channel) const;
  void detach(ClientState& client);
  static ClientState& state_of(ClientChannel& channel) {
    return *static_cast<ClientState*>(channel.nic_state);
  }

  size_t size() const { return clients_.size(); }
  const std::vector<std::unique_ptr<ClientState>>& all() const { return clients_; }
  // The clients that are looked at in each turn, in the order in which they send.
  const std::vector<ClientState*>& served() const { return served_; }
  // Gives each of them its turn to send (deficit_round_robin.h): serve(client).
  template <class Serve>
  uint32_t send_turn(Serve&& serve) {
    return round_robin_.turn(served_, serve);
  }

  void serve(ClientState& client);
  void look_at_unserved();
  void forget_idle();
  // Prefetches the descriptors in the rings: they lie in the caches of the programs' cores, and can
  // come while arrivals are copied.
  void ask_for_descriptors() const;
  // Whether any client has work, asked before the lcore sleeps. A client that has is served from
  // then on.
  bool any_has_work();
  // Whether what the client has handed over is not sent yet. What a dropped one has never is.
  static bool has_sends(const ClientState& client);
  static bool is_dropped(const ClientState& client) {
    return client.channel->dropped.load(std::memory_order_relaxed) != DropReason::kNone;
  }
  // Stops serving a client that broke a rule; the control thread closes its connection.
  void drop(ClientState& client, DropReason reason);

 private:
  static bool has_work(const ClientState& client);
  static bool has_published(const ClientState& client);

  Counters& counters_;
  const TimeNs& now_;
  std::vector<std::unique_ptr<ClientState>> clients_;
  std::vector<ClientState*> served_;
  DeficitRoundRobin round_robin_;
  uint32_t next_unserved_ = 0;  // in `clients_`: index of the client that is looked at next
};

}  // namespace hostnic
