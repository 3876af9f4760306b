// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/impaired_port.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/classify.h"

namespace hostnic {
namespace {

using impair::Direction;

// Slots for arrivals: a burst of bundles, taken apart, finds room behind what a caller did not
// take.
constexpr uint32_t kArrivals = 8192;

// Whether a packet of this process is an answer to a READ; false for what is too short to say.
bool is_read_answer(rte_mbuf* packet) {
  constexpr uint32_t kBth = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (packet->data_len < kBth + wire::kBthBytes) return false;
  const wire::BthView bth(std::span<const std::byte, wire::kBthBytes>(
      rte_pktmbuf_mtod_offset(packet, const std::byte*, kBth), wire::kBthBytes));
  return wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
}

}  // namespace

ImpairedPort::~ImpairedPort() {
  rx_stage_.reset();
  tx_stage_.reset();
  rte_mbuf* packet = nullptr;
  while (arrived_.pop(&packet, 1) != 0) release(packet);
  while (released_.pop(&packet, 1) != 0) release(packet);
  for (Departures& to : departures_)
    for (uint32_t i = 0; i < to.count; ++i) release(to.packets[i]);
}

void ImpairedPort::set(Direction direction, const impair::Spec& spec, uint64_t seed) {
  auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  auto& let_go = direction == Direction::kRx ? arrived_ : released_;
  const std::unique_ptr<impair::ImpairmentStage> old = std::move(stage);
  if (!spec.rules.empty())
    stage.reset(new impair::ImpairmentStage(spec, seed, *this));  // private base
  (direction == Direction::kRx ? holds_back_arrived_ : holds_back_sent_) = std::ranges::any_of(
      spec.rules, [](const impair::Rule& rule) { return rule.action != impair::Action::kDrop; });
  const uint32_t held = old == nullptr ? 0 : static_cast<uint32_t>(old->queued());
  PacketQueue queue(std::bit_ceil(let_go.size() + held + kArrivals));
  rte_mbuf* packet = nullptr;
  while (let_go.pop(&packet, 1) != 0) {
    if (direction == Direction::kRx) packet = copy_answer(packet);
    if (packet != nullptr) queue.push(packet);
  }
  for (void* each = nullptr; old != nullptr && old->drain({&each, 1}) != 0;)
    queue.push(static_cast<rte_mbuf*>(each));
  let_go = std::move(queue);
  if (direction == Direction::kTx && departures_.empty()) departures_.resize(kMaxPeers + 1);
}

std::optional<impair::Counters> ImpairedPort::impairment_counters(Direction direction) const {
  const auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  if (stage == nullptr) return std::nullopt;
  return stage->counters();
}

void ImpairedPort::clear_counters() {
  for (auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) stage->clear_counters();
}

TimeNs ImpairedPort::next_deadline_ns() const {
  TimeNs earliest = UINT64_MAX;
  for (const auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) earliest = std::min(earliest, stage->next_deadline_ns());
  return earliest;
}

uint32_t ImpairedPort::held() const {
  uint32_t count = 0;
  for (const auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) count += static_cast<uint32_t>(stage->queued());
  return count;
}

bool ImpairedPort::has_ready() const {
  if (!arrived_.empty() || !released_.empty()) return true;
  return std::ranges::any_of(departures_, [](const Departures& to) { return to.count != 0; });
}

// The description always names the other end's address, because rules may ask for it.
impair::PacketInfo ImpairedPort::describe(Direction direction, rte_mbuf* packet) const {
  const auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  wire::Packet p;
  if (stage->looks_at_packets() && parse_packet(packet, p) == wire::ParseError::kNone)
    return impair::describe(p, direction == Direction::kRx ? p.src_ip : p.dst_ip, packet->pkt_len);
  impair::PacketInfo info;
  info.bytes = packet->pkt_len;
  return info;
}

// ---- receiving

// Copies an answer to a READ that refers to the memory which is read: answers are read in the order
// in which they have come, and one that is held back is copied at once (rule 18). Returns null if
// there is no buffer.
rte_mbuf* ImpairedPort::copy_answer(rte_mbuf* packet) {
  if (!is_read_answer(packet)) return packet;
  auto* const copy = static_cast<rte_mbuf*>(detach(packet));
  if (copy == nullptr) counters_.add(Counter::rx_no_buffer);
  return copy;
}

void ImpairedPort::arrive(rte_mbuf* packet) {
  if (holds_back_arrived_) packet = copy_answer(packet);
  if (packet == nullptr) return;
  const bool passes = rx_stage_ == nullptr || rx_stage_->pass(packet, now_, [&] {
    return describe(Direction::kRx, packet);
  });
  if (passes && !arrived_.push(packet)) {
    counters_.add(Counter::rx_no_buffer);
    release(packet);
  }
}

// Takes a bundle apart: each of its packets gets a buffer of its own. A packet that finds no buffer
// is lost, as on a network.
void ImpairedPort::take_apart(rte_mbuf* bundle) {
  bool more = true;
  while (more && is_bundle(bundle)) {
    if (rte_mbuf* single = copy_front(bundle, pools_.header, references_); single != nullptr)
      arrive(single);
    else
      counters_.add(Counter::rx_no_buffer);
    more = step_bundle(bundle, references_);
  }
  arrive(bundle);
}

void ImpairedPort::take_arrivals(uint16_t queue, size_t wanted) {
  std::array<rte_mbuf*, kBurst> burst;
  while (arrived_.size() < wanted && arrived_.room() >= kArrivals / 2) {
    const uint16_t count = port_.receive(queue, burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) take_apart(burst[i]);
    if (count == 0) return;
  }
}

uint16_t ImpairedPort::receive_impaired(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  take_arrivals(queue, max);
  uint16_t count = arrived_.pop(packets, max);
  // Due packets come behind what has just arrived: to come first they would have had to be let go
  // first.
  std::array<void*, kBurst> due;
  while (rx_stage_ != nullptr && count < max) {
    const size_t room = std::min<size_t>(due.size(), static_cast<size_t>(max - count));
    const size_t popped = rx_stage_->pop({due.data(), room}, now_);
    for (size_t i = 0; i < popped; ++i) packets[count++] = static_cast<rte_mbuf*>(due[i]);
    if (popped < room) break;
  }
  return count;
}

// ---- sending

bool ImpairedPort::send(size_t peer) {
  Departures& to = departures_[peer];
  uint32_t sent = 0;
  while (sent < to.count) {
    const uint16_t n = port_.transmit(static_cast<uint16_t>(peer), to.packets.data() + sent,
                                      static_cast<uint16_t>(to.count - sent));
    if (n == 0) break;
    sent += n;
  }
  std::copy(to.packets.begin() + sent, to.packets.begin() + to.count, to.packets.begin());
  to.count -= sent;
  return to.count == 0;
}

bool ImpairedPort::has_room(size_t peer) {
  if (departures_[peer].full()) send(peer);
  return !departures_[peer].full();
}

void ImpairedPort::depart(rte_mbuf* packet) {
  Departures& to = departures_[packet->port];
  to.packets[to.count++] = packet;
}

uint16_t ImpairedPort::transmit_impaired(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  uint16_t taken = 0;
  for (; taken < count && has_room(peer); ++taken) {
    rte_mbuf* packet = packets[taken];
    packet->port = peer;
    // A bundle here is left from before packets were impaired, and passes.
    const bool passes =
        tx_stage_ == nullptr || is_bundle(packet) ||
        tx_stage_->pass(packet, now_, [&] { return describe(Direction::kTx, packet); });
    if (passes) depart(packet);
  }
  send(peer);
  return taken;
}

// No more packets are taken from the stage than surely find room: nobody knows before for whom the
// next one is.
void ImpairedPort::send_due() {
  std::array<void*, kBurst> due;
  for (;;) {
    size_t room = due.size();
    for (size_t peer = 0; peer < departures_.size(); ++peer) {
      if (departures_[peer].count >= kBurst) send(peer);
      room = std::min<size_t>(room, departures_[peer].packets.size() - departures_[peer].count);
    }
    size_t count = 0;
    for (rte_mbuf* packet = nullptr; count < room && released_.pop(&packet, 1) != 0; ++count)
      depart(packet);
    if (tx_stage_ != nullptr && count < room) {
      const size_t popped = tx_stage_->pop({due.data(), room - count}, now_);
      for (size_t i = 0; i < popped; ++i) depart(static_cast<rte_mbuf*>(due[i]));
      count += popped;
    }
    if (count == 0) break;
  }
  bool empty = tx_stage_ == nullptr && released_.empty();
  for (size_t peer = 0; peer < departures_.size(); ++peer)
    if (departures_[peer].count != 0 && !send(peer)) empty = false;
  if (empty) departures_.clear();
}

// ---- what a stage does to a packet

void* ImpairedPort::clone(void* packet) {
  return copy_packet(static_cast<rte_mbuf*>(packet), pools_.copies);
}

// Returns a copy: nothing that waits may refer to memory that its owner can change (rule 31,
// external payload).
void* ImpairedPort::detach(void* packet) {
  auto* original = static_cast<rte_mbuf*>(packet);
  if (external_payload(original) == nullptr) return original;
  rte_mbuf* copy = copy_packet(original, pools_.copies);
  release(original);
  return copy;
}

// Everything behind the Ethernet header may be hit; the ICRC, which packets within this process get
// only now, must catch it. The IPv4 header is left alone: the network would have dropped the packet
// at the next hop already.
void ImpairedPort::corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  if ((mbuf->ol_flags & icrc_flag()) == 0) add_icrc_in_place(mbuf);
  constexpr uint32_t kFirst = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (mbuf->data_len <= kFirst) return;
  auto* bytes = rte_pktmbuf_mtod(mbuf, uint8_t*);
  bytes[kFirst + byte_selector % (mbuf->data_len - kFirst)] ^= xor_mask;
}

void ImpairedPort::release(void* packet) {
  release_packet(static_cast<rte_mbuf*>(packet), references_);
}

}  // namespace hostnic
