// QP 1: management datagrams (InfiniBand 13.5), from and to the control thread. They are UD packets
// like others on the wire, and are lost and impaired like them.
#include <algorithm>
#include <cstring>

#include "dataplane/nic/flow_tag.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/management_queue.h"

namespace hostnic {

// False: the packet is none.
bool Nic::Impl::receive_management(const wire::Packet& p, rte_mbuf* packet) {
  if (raw(p.dest_qpn) != cm::kManagementQpn || management == nullptr ||
      p.opcode != wire::Opcode::kUdSend)
    return false;
  if (p.qkey != cm::kManagementQkey) {
    counters.add(Counter::rx_wrong_qkey);
    return true;
  }
  const std::span<const std::byte> payload = payload_of(packet, p);
  if (payload.size() != cm::kMadBytes) {
    counters.add(Counter::rx_too_long);
    return true;
  }
  counters.add(Counter::management_received);
  if (!management->push(p.src_ip, payload.first<cm::kMadBytes>()))
    counters.add(Counter::management_dropped);
  // The answer will want to know the way.
  if (!port.is_wire() && p.src_ip != settings.ip) neighbours.find_or_add(next_hop(p.src_ip));
  return true;
}

void Nic::Impl::send_management(Ipv4Address to, uint8_t traffic_class,
                                std::span<const std::byte, cm::kMadBytes> bytes) {
  int peer = 0;
  wire::MacAddress mac = wire_mac(to);
  bool known = true;
  if (to == settings.ip) {
    peer = kLoopbackPeer;
    mac = settings.mac;
  } else if (port.is_wire()) {
    peer = port.peer_of(raw(to));
    known = peer >= 0 && peer < static_cast<int>(kMaxPeers);
  } else {
    const int neighbour = neighbours.find_or_add(next_hop(to));
    known = neighbour >= 0 && neighbours.entry(neighbour).generation != 0;
    if (known) mac = neighbours.entry(neighbour).mac;
  }
  wire::Packet p;
  p.opcode = wire::Opcode::kUdSend;
  p.dest_qpn = p.src_qpn = Qpn{cm::kManagementQpn};
  p.qkey = cm::kManagementQkey;
  // Nobody checks it.
  p.psn = Psn(static_cast<uint32_t>(counters.get(Counter::management_sent)) & 0xffffff);
  p.payload_bytes = cm::kMadBytes;
  constexpr uint8_t kHopLimit = 64;
  const wire::FlowTemplate flow = wire::make_flow_template(
      settings.mac, mac, settings.ip, to, make_flow_tag(cm::kManagementQpn, cm::kManagementQpn, 0),
      traffic_class, kHopLimit);
  rte_mbuf* packet =
      known && has_room(peer) ? build_small(flow, p, {}, bytes, pools.data) : nullptr;
  if (packet == nullptr) {
    counters.add(known ? Counter::management_dropped : Counter::tx_unresolved);
    return;
  }
  if (peer != kLoopbackPeer) output_peers = std::max(output_peers, static_cast<uint32_t>(peer) + 1);
  counters.add(Counter::management_sent);
  emit(packet, peer, p);
}

void Nic::set_management(ManagementQueue* queue) { impl_->management = queue; }

void Nic::send_management(Ipv4Address to, uint8_t traffic_class,
                          std::span<const std::byte, cm::kMadBytes> bytes) {
  impl_->send_management(to, traffic_class, bytes);
}

}  // namespace hostnic
