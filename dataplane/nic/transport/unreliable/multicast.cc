// SPDX-License-Identifier: BSD-3-Clause
// UD multicast (rule 36). A group is an IPv4 address of 224.0.0.0/4, and only the NICs that have
// members of it know that it exists. A datagram to it goes to everybody on the wire, as one frame
// on Ethernet and as a copy for each NIC on the in-process wire, and back to members on its own
// NIC.
#include "protocol/wire/multicast.h"

#include <algorithm>
#include <array>

#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "dataplane/nic/transport/unreliable/unreliable.h"

namespace hostnic {

// Returns false if the send failed, or is `blocked` until all who get a copy have room, and there
// are buffers for all copies: the in-process wire loses none.
bool UnreliableTransport::send_to_group(QpContext& qp, SendProgress& progress,
                                        const wire::Packet& p, bool& blocked) {
  std::array<int, kMaxPeers + 1> to;
  uint32_t count = 0;
  const int peers = std::min(egress_.port().peers(), static_cast<int>(kMaxPeers));
  const int own = egress_.port().own_peer();
  for (int peer = 0; peer < peers; ++peer) {
    if (peer != own) to[count++] = peer;
  }
  if (!groups_.members(Ipv4Address{qp.dest_ip}).empty()) to[count++] = kLoopbackPeer;
  egress_.use_peers(peers);
  if (!std::all_of(to.begin(), to.begin() + count,
                   [this](int peer) { return egress_.has_room(peer); })) {
    blocked = true;
    return false;
  }
  std::array<rte_mbuf*, kMaxPeers + 1> packets;
  const uint32_t copies = std::max(count, 1u) - 1;
  if (copies != 0 && rte_pktmbuf_alloc_bulk(egress_.pools().data, packets.data(), copies) != 0) {
    counters_.add(Counter::tx_no_buffer);
    blocked = true;
    return false;
  }
  rte_mbuf* packet = build_packet(qp, progress, p, blocked);
  if (packet == nullptr) {
    rte_pktmbuf_free_bulk(packets.data(), copies);
    return false;
  }
  for (uint32_t i = 0; i < copies; ++i) copy_packet_into(packet, packets[i]);
  packets[copies] = packet;
  if (count == 0)
    release_packet(packet, egress_.references());  // there is no peer, and no member
                                                   // here
  for (uint32_t i = 0; i < count; ++i) egress_.emit(packets[i], to[i]);
  return true;
}

}  // namespace hostnic
