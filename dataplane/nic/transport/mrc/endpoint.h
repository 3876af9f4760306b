// SPDX-License-Identifier: BSD-3-Clause
// The node that a NIC is for MRC, beside its queue pairs (docs/mrc.md, "Planes and ports"): which
// of its ports are up, what peers say of theirs, which entropy values a controller has denied, and
// requests of the one to the other, by QPN 2.
//
// The NIC's lcore.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/transport/mrc/endpoint_requests.h"
#include "protocol/transport/mrc/port_status.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class MrcEndpoint {
 public:
  // Requests that are taken in a second, after some at once; others are as good as lost. An update
  // of ports costs a look at all queue pairs.
  static constexpr uint64_t kProbesPerSecond = 10'000, kUpdatesPerSecond = 100;
  static constexpr uint64_t kAtOnce = 64;

  explicit MrcEndpoint(const TransportServices& nic);

  // Takes a packet for QPN 2. Returns false if it is none.
  bool receive(const wire::Packet& p);
  // Denies what a queue pair that begins to send must not use.
  void begin(QpContext& qp) const;

  // Takes a port, from 1, up or down, and tells all peers. Returns EINVAL if there is none, EBUSY
  // if no port would be left.
  int set_port(uint32_t port, bool is_up);
  // Denies an entropy value to all queue pairs, or no longer. Returns EINVAL if it can be none.
  int deny(uint32_t value, bool is_denied);
  bool is_denied(uint32_t value) const;
  uint32_t ports_down() const { return ports_.own_down(); }
  // Asks a host by the path of an entropy value. Returns false if too many are being asked.
  bool probe(Ipv4Address own, Ipv4Address peer, uint16_t value);
  // The probes that have been made.
  mrc::EndpointRequests& requests() { return requests_; }

  // Sends what is due. Returns how many.
  uint32_t send_due();
  TimeNs next_deadline_ns() const { return requests_.next_due_ns(); }

 private:
  bool take_request(const wire::Packet& p, const wire::mrc::Packet& headers);
  bool take_port_status(const wire::Packet& p, const wire::mrc::Erth& request);
  bool may_take(wire::mrc::EndpointOperation operation);
  void tell_peers();
  uint16_t port_that_is_up() const;
  bool send(const mrc::EndpointRequest& request, uint16_t id);
  bool send(const wire::mrc::Packet& headers, Ipv4Address from, Ipv4Address to,
            uint16_t source_port);
  template <class Visit>
  void for_each_sender(Visit&& visit) const;

  const NicSettings& settings_;
  const QpDirectory& qps_;
  Egress& egress_;
  Counters& counters_;
  const TimeNs& now_;
  mrc::PortStatus ports_;
  mrc::EndpointRequests requests_;
  std::bitset<0x10000 - wire::kFlowTagBase> denied_;
  TimeNs probes_until_ns_ = 0, updates_until_ns_ = 0;
};

}  // namespace hostnic
