// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/paths.h"

#include <algorithm>
#include <cerrno>

#include "protocol/wire/multicast.h"
#include "protocol/wire/packet.h"

namespace hostnic {

static_assert(Neighbours::kCapacity <= INT16_MAX);

namespace {

constexpr wire::MacAddress kToAll = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

}  // namespace

void Paths::make_flows(QpContext& qp, const wire::MacAddress& destination) {
  // Both ends of a flow use the requester's tag: the tag expected on answers is the one that our
  // requests carry.
  const Ipv4Address peer{qp.dest_ip};
  // Senders of RC follow marks, so routers may mark their packets (rule 27, congestion window);
  // senders of UC never hear of marks. ACKs ride in the same flow and are marked in vain.
  const uint8_t ecn = qp.type == QpType::kRc ? wire::kEcnCapable : uint8_t{0};
  const auto traffic_class = static_cast<uint8_t>((qp.traffic_class & ~wire::kEcnMask) | ecn);
  // A native peer, by mistake, must not take the standard's WRITE Only for its own.
  const uint16_t foreign = qp.type == QpType::kRc && !qp.tagged ? wire::kForeignTag : uint16_t{0};
  const auto flow = [&](uint16_t tag) {
    return wire::make_flow_template(settings_.mac, destination, Ipv4Address{qp.source_ip}, peer,
                                    tag ^ foreign, traffic_class, qp.hop_limit);
  };
  qp.request_flow = flow(qp.incoming_response_tag);
  qp.response_flow = flow(qp.incoming_request_tag);
}

Ipv4Address Paths::next_hop(Ipv4Address destination) const {
  const bool on_link = same_network(destination, settings_.ip, settings_.prefix_length);
  return on_link || raw(settings_.gateway) == 0 ? destination : settings_.gateway;
}

// The index of the neighbour's entry, or kNobody or kFull.
int Paths::find_neighbour(Ipv4Address ip, uint32_t name, bool connects) {
  const int index = neighbours_.find_or_add(next_hop(ip), name, now_, connects);
  if (index <= Neighbours::kNobody) counters_.add(Counter::neighbours_refused);
  return index;
}

// Makes the flows of a queue pair whose neighbour has another MAC address now, or has no entry any
// more. Returns false if its address is not known yet.
bool Paths::make_flows_anew(QpContext& qp) {
  const Ipv4Address ip{qp.dest_ip};
  if (neighbours_.entry(qp.neighbour).ip != next_hop(ip)) {
    const int index = find_neighbour(ip, neighbour_name(qp), true);
    qp.neighbour = static_cast<int16_t>(std::max(index, Neighbours::kNobody));
  }
  const Neighbours::Entry& neighbour = neighbours_.entry(qp.neighbour);
  if (neighbour.generation == 0) return false;
  if (qp.flows_made_for != neighbour.generation) make_flows(qp, neighbour.mac);
  qp.flows_made_for = neighbour.generation;
  return true;
}

int Paths::find(Ipv4Address ip, uint32_t name, bool connects, Path& path) {
  if (!needs_arp_) return 0;
  const int index = find_neighbour(ip, name, connects);
  path.neighbour = static_cast<int16_t>(std::max(index, Neighbours::kNobody));
  return index < 0 ? ENOMEM : 0;
}

wire::MacAddress Paths::mac_without_arp(Ipv4Address ip) const {
  if (wire::is_multicast(ip)) return wire::multicast_mac(ip);
  if (settings_.is_own(ip)) return settings_.mac;
  return {0x02,
          0x00,
          static_cast<uint8_t>(raw(ip) >> 24),
          static_cast<uint8_t>(raw(ip) >> 16),
          static_cast<uint8_t>(raw(ip) >> 8),
          static_cast<uint8_t>(raw(ip))};
}

wire::MacAddress Paths::conflicting_mac() const {
  const uint64_t bytes = conflicting_mac_.load(std::memory_order_relaxed);
  wire::MacAddress mac;
  for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(bytes >> (40 - 8 * i));
  return mac;
}

// Notes that another host says that it has this NIC's address.
void Paths::note_conflict(const wire::MacAddress& mac) {
  uint64_t bytes = 0;
  for (const uint8_t byte : mac) bytes = bytes << 8 | byte;
  conflicting_mac_.store(bytes, std::memory_order_relaxed);
  counters_.add(Counter::duplicate_address);
}

std::optional<ArpToSend> Paths::receive_arp(std::span<const std::byte> frame) {
  if (!needs_arp_) return std::nullopt;
  const auto arp = wire::parse_arp(frame);
  if (!arp) return std::nullopt;
  if (arp->sender_ip == settings_.ip) {
    if (arp->sender_mac == settings_.mac) return std::nullopt;
    note_conflict(arp->sender_mac);
    if (now_ < next_defence_ns_) return std::nullopt;
    // Peers that have believed the other host learn better (RFC 5227, 2.4 c).
    return ArpToSend{wire::make_arp_request(settings_.mac, settings_.ip, settings_.ip), kToAll,
                     /*defends=*/true};
  }
  neighbours_.learn(arp->sender_ip, arp->sender_mac, now_);
  if (arp->operation != wire::ArpOperation::kRequest || arp->target_ip != settings_.ip)
    return std::nullopt;
  return ArpToSend{wire::make_arp_reply(settings_.mac, *arp), arp->sender_mac};
}

// The address is defended now and then only (RFC 5227, 2.4 c).
void Paths::defended() {
  constexpr uint64_t kDefendNs = 10'000'000'000;
  next_defence_ns_ = now_ + kDefendNs;
}

std::optional<ArpToSend> Paths::next_request() {
  const Neighbours::Request due = neighbours_.due(now_);
  if (due.index == Neighbours::kNobody) return std::nullopt;
  const Neighbours::Entry& entry = neighbours_.entry(due.index);
  counters_.add(due.to_all ? Counter::arp_broadcasts : Counter::arp_probes);
  return ArpToSend{wire::make_arp_request(settings_.mac, settings_.ip, entry.ip),
                   due.to_all ? kToAll : entry.mac};
}

}  // namespace hostnic
