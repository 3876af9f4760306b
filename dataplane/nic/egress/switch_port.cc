// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/switch_port.h"

#include <algorithm>
#include <array>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/mrc/packet.h"

namespace hostnic {
namespace {

// Packets that are on their way by the cable at a time: a turn's worth at 10 Gbit/s, and few,
// because the switch sees them at once.
constexpr uint32_t kCablePackets = 16;
// Bursts that are taken from the port at a time, so that lcores that send while this one receives
// don't keep it.
constexpr uint32_t kMostBursts = 16;

// The frame, if it is IPv4 without options and long enough to have ports; else null.
const std::byte* flow_of(const rte_mbuf* packet) {
  if (packet->data_len < wire::kFlowBytes) return nullptr;
  const auto* frame = rte_pktmbuf_mtod(packet, const std::byte*);
  const bool is_ipv4 =
      wire::load_be16(frame + wire::ethernet_offset::kEtherType) == wire::kEtherTypeIpv4 &&
      frame[wire::kEthernetBytes] == std::byte{wire::kIpv4VersionIhl};
  return is_ipv4 ? frame : nullptr;
}

}  // namespace

SwitchPort::SwitchPort(Port& port, const impair::SwitchSpec& spec, const TimeNs& now)
    : PortStage(port),
      now_(now),
      cable_(spec.rate_bits_per_second, kCablePackets),
      model_(spec, *this) {}

SwitchPort::~SwitchPort() {
  for (uint32_t i = 0; i < leaving_count_; ++i)
    release_packet(leaving_[(leaving_first_ + i) % kLeaving].packet);
}

PortCapabilities SwitchPort::capabilities() const {
  PortCapabilities can = port_.capabilities();
  can.allows_external_payload = can.delivers_to_readers = can.carries_bundles = false;
  can.keeps_order = can.keeps_order && model_.spec().plan.paths <= 1;
  return can;
}

uint16_t SwitchPort::receive(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  std::array<void*, kBurst> left;
  const auto count =
      static_cast<uint16_t>(model_.take({left.data(), std::min<size_t>(max, kBurst)}, now_));
  std::transform(left.begin(), left.begin() + count, packets,
                 [](void* packet) { return static_cast<rte_mbuf*>(packet); });
  // While the NIC has not taken all that has left the switch, nothing else comes in: that bounds
  // what waits, and the senders wait.
  if (count == std::min<uint32_t>(max, kBurst)) return count;
  std::array<rte_mbuf*, kBurst> burst;
  for (uint32_t i = 0; i < kMostBursts; ++i) {
    const uint16_t arrived = port_.receive(queue, burst.data(), kBurst);
    for (uint16_t k = 0; k < arrived; ++k)
      model_.arrive(burst[k], burst[k]->pkt_len, path_of(burst[k]), now_);
    if (arrived < kBurst) break;
  }
  return count;
}

uint16_t SwitchPort::transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  uint16_t taken = 0;
  for (; taken < count && leaving_to_[peer] < kLeavingToPeer; ++taken) {
    leaving_[(leaving_first_ + leaving_count_++) % kLeaving] = {packets[taken], peer};
    ++leaving_to_[peer];
  }
  send_waiting();
  return taken;
}

void SwitchPort::send_waiting() {
  for (size_t room = cable_.room(now_); room != 0 && leaving_count_ != 0; --room) {
    Leaving& first = leaving_[leaving_first_];
    const uint32_t bytes = first.packet->pkt_len;  // afterwards it is the port's
    if (port_.transmit(first.peer, &first.packet, 1) == 0) return;
    cable_.admit(bytes, now_);
    --leaving_to_[first.peer];
    leaving_first_ = (leaving_first_ + 1) % kLeaving;
    --leaving_count_;
  }
}

TimeNs SwitchPort::next_deadline_ns() const {
  const TimeNs of_switch = model_.next_deadline_ns();
  return leaving_count_ == 0 ? of_switch : std::min(of_switch, cable_.first_departure_ns());
}

// The path of what is no IPv4 is 0: it goes to the port at once.
uint32_t SwitchPort::path_of(const rte_mbuf* packet) const {
  const std::byte* const frame = model_.spec().plan.paths == 0 ? nullptr : flow_of(packet);
  if (frame == nullptr) return 0;
  const std::byte* const ip = frame + wire::kEthernetBytes;
  return impair::path_of(Ipv4Address{wire::load_be32(ip + wire::ipv4_offset::kSrc)},
                         Ipv4Address{wire::load_be32(ip + wire::ipv4_offset::kDst)},
                         wire::load_be16(ip + wire::kIpv4Bytes + wire::udp_offset::kSrcPort),
                         model_.spec().plan);
}

bool SwitchPort::mark(void* packet) {
  auto* const buffer = static_cast<rte_mbuf*>(packet);
  return wire::mark_congestion({rte_pktmbuf_mtod(buffer, std::byte*), buffer->data_len});
}

uint32_t SwitchPort::trim(void* packet) {
  auto* const buffer = static_cast<rte_mbuf*>(packet);
  if (flow_of(buffer) == nullptr || buffer->nb_segs != 1) return 0;
  wire::mrc::Packet headers;
  const auto behind_udp = first_segment_of(buffer).subspan(wire::kFlowBytes);
  if (wire::mrc::parse_trimmed(behind_udp, headers) != wire::ParseError::kNone) return 0;
  const auto bytes = static_cast<uint16_t>(wire::kFlowBytes + headers.header_bytes);
  wire::set_ip_bytes({rte_pktmbuf_mtod(buffer, std::byte*), bytes},
                     static_cast<uint16_t>(bytes - wire::kEthernetBytes));
  buffer->data_len = bytes;
  buffer->pkt_len = bytes;
  buffer->ol_flags = (buffer->ol_flags & ~icrc_flag()) | trimmed_flag();
  return bytes;
}

void SwitchPort::release(void* packet) { release_packet(static_cast<rte_mbuf*>(packet)); }

SwitchCounters SwitchPort::counters() const {
  SwitchCounters counters{.port = model_.port(), .paths = {}};
  for (uint32_t number = 1; number <= model_.spec().plan.paths; ++number)
    counters.paths.push_back(model_.path(number));
  return counters;
}

}  // namespace hostnic
