// SPDX-License-Identifier: BSD-3-Clause
// Descriptors of RC become packets: one by one, in trains and bundles where the payload stays where
// it is, and messages of one packet many at a time (single_packet_sends.cc, read_requests.cc).
//
// The NIC's lcore.
#pragma once

#include <cstdint>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/packet/read_bundle.h"
#include "dataplane/nic/packet/request_bundle.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/hostnic/completer.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/transport_services.h"

namespace hostnic {

class RequestSender {
 public:
  RequestSender(const TransportServices& nic, Completer& completer)
      : settings_(nic.settings),
        qps_(nic.qps),
        egress_(nic.egress),
        placement_(nic.placement),
        packetizer_(nic.packetizer),
        completer_(completer),
        counters_(nic.counters) {}

  // -- Descriptors that are still in the queue, which is not empty. Their client is charged for
  // them. Return how many have left, 0 where something else comes first.
  uint32_t send_single_packets(ClientState& client, DescriptorQueue& queue, uint32_t budget);
  uint32_t send_read_requests(ClientState& client, DescriptorQueue& queue, uint32_t budget);

  // -- One that has been taken out.
  // The next packets of a chunk, more than one of them, if the payload can stay where it is.
  // Returns how many packets of the budget they took, 0 where nothing of that kind comes next.
  uint32_t send_several(QpContext& qp, SendProgress& progress, const SendBudget& budget);
  // Returns false if the descriptor is finished (or failed), or `blocked` by the port or missing
  // buffers.
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked);

 private:
  struct SinglePacketTurn;
  struct SinglePacketRun;

  bool may_send(const ClientState& client, QpContext& qp);
  wire::Packet next_packet(const QpContext& qp, const SendProgress& progress) const;
  uint32_t send_train(QpContext& qp, SendProgress& progress, const SendBudget& budget);
  uint32_t send_bundle(QpContext& qp, SendProgress& progress, const SendBudget& budget);
  uint32_t send_single_packet_run(ClientState& client, DescriptorQueue& queue, uint32_t budget,
                                  SinglePacketTurn& turn);
  bool add_bundled_request(SinglePacketRun& run, RequestBundleBuilder& bundle,
                           const SendDescriptor& d, const MappedPayload& payload);
  bool send_single_packet(SinglePacketRun& run, SinglePacketTurn& turn, const SendDescriptor& d,
                          const MappedPayload& payload);
  const std::byte* single_packet_payload(QpContext& qp, const SendDescriptor& d,
                                         const DescriptorQueue& queue, MemoryRegionEntry*& region);
  bool add_read_request(QpContext& qp, ReadBundleBuilder& bundle, const SendDescriptor& d);

  const NicSettings& settings_;
  const QpDirectory& qps_;
  Egress& egress_;
  Placement& placement_;
  Packetizer& packetizer_;
  Completer& completer_;
  Counters& counters_;
};

// Whether requests of an RC queue pair may leave, and nothing about them is special.
[[gnu::always_inline]] inline bool RequestSender::may_send(const ClientState& client,
                                                           QpContext& qp) {
  return qp.client == client.channel && qp.transport == Transport::kHostnic &&
         (qp.state == QpState::kRts || qp.state == QpState::kSqd) && !qp.send_failed &&
         egress_.paths().prepare_flows(qp);
}

}  // namespace hostnic
