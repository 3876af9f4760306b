// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/management/management.h"

#include <algorithm>
#include <array>
#include <optional>

#include "dataplane/nic/packet/packet.h"

namespace hostnic {

// Returns false if the packet is no management datagram.
bool Management::receive(const wire::Packet& p, rte_mbuf* packet) {
  if (raw(p.dest_qpn) != cm::kManagementQpn || p.opcode != wire::Opcode::kUdSend) return false;
  if (p.qkey != cm::kManagementQkey) {
    counters_.add(Counter::rx_wrong_qkey);
    return true;
  }
  const std::span<const std::byte> payload = payload_of(packet, p);
  std::optional<cm::Mad> mad;
  if (payload.size() >= cm::kMadBytes) mad = cm::parse(payload.first<cm::kMadBytes>());
  const auto inquiry = mad ? cm::inquiry_in(*mad) : std::nullopt;
  if (payload.size() != (inquiry ? inquiry->datagram_bytes : cm::kMadBytes)) {
    counters_.add(Counter::rx_too_long);
    return true;
  }
  counters_.add(Counter::management_received);
  if (mad && receive_about_peers(p, *mad)) return true;
  if (queue_ == nullptr) return false;
  if (inquiry && !may_pass_inquiry()) {
    counters_.add(Counter::inquiries_refused);
    return true;
  }
  if (!queue_->push(p.src_ip, p.dst_ip, payload.first<cm::kMadBytes>()))
    counters_.add(Counter::management_dropped);
  // The path back is asked for now, because the answer will need it.
  Path way_back;
  egress_.find_path(p.src_ip, Neighbours::kSender, false, way_back);
  return true;
}

// Returns false if the datagram is nothing about what hosts speak.
bool Management::receive_about_peers(const wire::Packet& p, const cm::Mad& mad) {
  std::optional<cm::Mad> reply;
  if (!peers_.receive(mad, p.dst_ip, p.src_ip, now_, reply)) return false;
  if (reply) send_for(Neighbours::kSender, p.dst_ip, p.src_ip, 0, cm::build(*reply));
  return true;
}

bool Management::may_pass_inquiry() {
  constexpr uint64_t kEachNs = 1'000'000'000 / kInquiriesPerSecond;
  constexpr uint64_t kBurstNs = kEachNs * kInquiryBurst;
  if (inquiries_until_ns_ > now_ + kBurstNs - kEachNs) return false;
  inquiries_until_ns_ = std::max(inquiries_until_ns_, now_) + kEachNs;
  return true;
}

uint32_t Management::ask_peers(TimeNs now) {
  uint32_t asked = 0;
  for (; const auto due = peers_.next_due(now); ++asked)
    send_for(due->client, due->own, due->peer, 0, cm::build(due->mad));
  return asked;
}

void Management::send(Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                      std::span<const std::byte, cm::kMadBytes> bytes) {
  send_for(Neighbours::kOwn, from, to, traffic_class, bytes);
}

void Management::send(Ipv4Address from, Ipv4Address to, const cm::Inquiry& inquiry) {
  std::array<std::byte, cm::kMostInquiryBytes> datagram{};
  const cm::MadBytes mad = cm::build(cm::mad_of(inquiry));
  std::ranges::copy(mad, datagram.begin());
  const size_t bytes = std::min<size_t>(inquiry.datagram_bytes,
                                        std::min<size_t>(settings_.mtu_bytes, datagram.size()));
  counters_.add(Counter::inquiries_sent);
  send_for(Neighbours::kOwn, from, to, 0, std::span(datagram).first(bytes));
}

// The address is looked for in that name (neighbours.h).
void Management::send_for(uint32_t name, Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                          std::span<const std::byte> bytes) {
  const auto way = egress_.way_to(to, name);
  if (!way) {
    counters_.add(Counter::tx_unresolved);
    return;
  }
  wire::Packet p;
  p.opcode = wire::Opcode::kUdSend;
  p.dest_qpn = p.src_qpn = Qpn{cm::kManagementQpn};
  p.qkey = cm::kManagementQkey;
  // The PSN only counts up: receivers do not check the PSNs of QP 1.
  p.psn = Psn(static_cast<uint32_t>(counters_.get(Counter::management_sent)) & 0xffffff);
  p.payload_bytes = static_cast<uint16_t>(bytes.size());
  constexpr uint8_t kHopLimit = 64;
  const wire::FlowTemplate flow = wire::make_flow_template(
      settings_.mac, way->mac, from, to,
      wire::make_flow_tag(cm::kManagementQpn, cm::kManagementQpn, 0), traffic_class, kHopLimit);
  rte_mbuf* packet = egress_.has_room(way->peer)
                         ? egress_.build_small(flow, p, {}, bytes, egress_.pools().data)
                         : nullptr;
  if (packet == nullptr) {
    counters_.add(Counter::management_dropped);
    return;
  }
  counters_.add(Counter::management_sent);
  egress_.emit(packet, way->peer);
}

}  // namespace hostnic
