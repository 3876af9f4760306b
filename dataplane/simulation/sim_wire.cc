// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/sim_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"

namespace hostnic::sim {

class SimWire::SimPort final : public Port {
 public:
  SimPort(SimWire& wire, uint32_t self) : wire_(wire), self_(self) {}

  // Judges and taps look at packets one by one.
  PortCapabilities capabilities() const override {
    const bool is_wire = wire_.settings_.is_wire;
    return {.needs_icrc = !is_wire,
            .needs_arp = !is_wire,
            .allows_external_payload = is_wire,
            .delivers_to_readers = is_wire && !wire_.judge_,
            .delivers_whole_bth = is_wire,
            .carries_bundles = is_wire && !wire_.judge_ && !wire_.tap_};
  }
  uint16_t receive(uint16_t, rte_mbuf** packets, uint16_t max) override {
    auto& queue = wire_.queues_[self_];
    uint16_t count = 0;
    while (count < max && !queue.empty() && queue.front().arrival_ns <= wire_.now_ns_) {
      rte_mbuf*& front = queue.front().packet;
      if (wire_.settings_.takes_bundles_apart && is_bundle(front)) {
        packets[count++] = copy_front(front, front->pool, references_);
        step_bundle(front, references_);
      } else {
        packets[count++] = front;
        queue.pop_front();
      }
    }
    references_.flush();
    for (uint16_t i = 0; i < count && !wire_.settings_.is_wire; ++i)
      packets[i]->ol_flags |= icrc_flag();
    return count;
  }

  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override {
    uint16_t sent = 0;
    while (sent < count) {
      if (!(wire_.settings_.is_wire ? wire_.deliver(self_, peer, packets[sent])
                                    : switch_frame(packets[sent]))) {
        break;
      }
      ++sent;
    }
    full_ = sent < count;
    return sent;
  }
  bool announces_room() const override { return full_ && wire_.settings_.announces_room; }

  int peer_of(uint32_t ip) const override {
    if (!wire_.settings_.is_wire) return 0;
    for (uint32_t host = 0; host < wire_.queues_.size(); ++host)
      if (raw(address_of(host)) == ip) return static_cast<int>(host);
    return -1;
  }
  int peers() const override {
    return wire_.settings_.is_wire ? static_cast<int>(wire_.queues_.size()) : 1;
  }
  bool backlog() const override {
    return wire_.settings_.queue_is_receivers &&
           wire_.queues_[self_].size() > wire_.settings_.queue_packets / 2;
  }
  PortView view() const override { return {}; }

 private:
  // A learning switch with nothing to learn: the last byte of a MAC address is the host's number.
  // Its queues drop, as Ethernet's do.
  bool switch_frame(rte_mbuf* packet) {
    const auto* mac = rte_pktmbuf_mtod(packet, const uint8_t*);
    if ((mac[0] & 1) == 0) {
      if (mac[5] >= wire_.queues_.size() || !wire_.deliver(self_, mac[5], packet))
        release_packet(packet);
      return true;
    }
    for (uint32_t host = 0; host < wire_.queues_.size(); ++host) {
      if (host == self_) continue;
      rte_mbuf* copy = copy_packet(packet, packet->pool);
      if (copy != nullptr && !wire_.deliver(self_, host, copy)) release_packet(copy);
    }
    release_packet(packet);
    return true;
  }

  SimWire& wire_;
  uint32_t self_;
  bool full_ = false;
  PayloadReferences references_;
};

SimWire::SimWire(uint32_t hosts, const LinkSettings& settings, Trace& trace)
    : settings_(settings),
      trace_(trace),
      queues_(hosts),
      link_free_ns_(hosts),
      port_free_ns_(hosts),
      longest_queue_(hosts),
      cut_(hosts) {
  for (uint32_t host = 0; host < hosts; ++host)
    ports_.push_back(std::make_unique<SimPort>(*this, host));
}

SimWire::~SimWire() {
  for (auto& queue : queues_)
    for (const InFlight& in_flight : queue) release_packet(in_flight.packet);
}

Port& SimWire::port(uint32_t host) { return *ports_[host]; }

void SimWire::inject(uint32_t to, rte_mbuf* packet, uint64_t late_ns) {
  const TimeNs soonest_ns = now_ns_ + settings_.delay_ns + late_ns;
  auto& queue = queues_[to];
  queue.push_back(
      {queue.empty() ? soonest_ns : std::max(soonest_ns, queue.back().arrival_ns), packet});
}

void SimWire::cut(uint32_t host, bool cut) { cut_[host] = cut; }

bool SimWire::deliver(uint32_t from, uint32_t to, rte_mbuf* packet) {
  auto& queue = queues_[to];
  if (queue.size() >= settings_.queue_packets) return false;
  trace_.packet(now_ns_, packet, has_icrc(packet));
  if (is_bundle(packet))
    trace_.note(now_ns_, fmt::format("  and the {} behind it", packets_in(packet) - 1));
  if (tap_) tap_(from, to, packet);
  const Fate fate = judge_ ? fate_of(to, packet) : Fate{};
  if (cut_[to] || cut_[from] || fate.drop) {
    if (fate.drop) trace_.note(now_ns_, "  dropped");
    release_packet(packet);
    return true;
  }
  const auto busy_ns =
      static_cast<uint64_t>(static_cast<double>(wire_bytes_of(packet) * 8) / settings_.gigabits);
  link_free_ns_[from] = std::max(link_free_ns_[from], now_ns_) + busy_ns;
  TimeNs arrival_ns = link_free_ns_[from] + settings_.delay_ns;
  if (settings_.network_switch.gigabits != 0) arrival_ns = pass_switch(to, packet, arrival_ns);
  // Several senders share the receiver's link: first come, first served.
  if (!queue.empty() && !judge_) arrival_ns = std::max(arrival_ns, queue.back().arrival_ns);
  if (fate.delay_ns != 0) trace_.note(now_ns_, fmt::format("  late by {} ns", fate.delay_ns));
  if (fate.flipped_byte >= 0 && fate.flipped_byte < packet->data_len) {
    rte_pktmbuf_mtod(packet, uint8_t*)[fate.flipped_byte] ^= 0x55;
    ++flipped_;
    trace_.note(now_ns_, fmt::format("  byte {} flipped", fate.flipped_byte));
  }
  rte_mbuf* copy = fate.duplicate ? copy_packet(packet, packet->pool) : nullptr;
  arrive(queue, {arrival_ns + fate.delay_ns, packet});
  if (copy != nullptr) {
    trace_.note(now_ns_, "  duplicated");
    arrive(queue, {arrival_ns + fate.delay_ns, copy});
  }
  return true;
}

// When a packet that arrives at the switch has left it. It is marked by how many bytes are before
// it.
TimeNs SimWire::pass_switch(uint32_t to, rte_mbuf* packet, TimeNs arrival_ns) {
  const SwitchSettings& s = settings_.network_switch;
  const TimeNs begin_ns = std::max(port_free_ns_[to], arrival_ns);
  const auto queue_bytes =
      static_cast<uint64_t>(static_cast<double>(begin_ns - arrival_ns) * s.gigabits / 8);
  longest_queue_[to] = std::max(longest_queue_[to], queue_bytes);
  const double between = queue_bytes <= s.marks_from_bytes
                             ? 0
                             : static_cast<double>(queue_bytes - s.marks_from_bytes) /
                                   static_cast<double>(s.marks_all_from_bytes - s.marks_from_bytes);
  if (draw(between >= 1 ? 1 : between * s.marks_at_most))
    wire::mark_congestion({rte_pktmbuf_mtod(packet, std::byte*), packet->data_len});
  port_free_ns_[to] =
      begin_ns + static_cast<uint64_t>(static_cast<double>(wire_bytes_of(packet) * 8) / s.gigabits);
  return port_free_ns_[to];
}

bool SimWire::draw(double chance) {
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  return static_cast<double>(random_ >> 11) < chance * static_cast<double>(uint64_t{1} << 53);
}

bool SimWire::has_icrc(const rte_mbuf* packet) const {
  return !settings_.is_wire || (packet->ol_flags & icrc_flag()) != 0;
}

Fate SimWire::fate_of(uint32_t to, const rte_mbuf* packet) const {
  wire::Packet headers;
  const std::span<const std::byte> first(rte_pktmbuf_mtod(packet, const std::byte*),
                                         packet->data_len);
  const auto error = wire::parse(first, packet->pkt_len, has_icrc(packet), headers);
  return error == wire::ParseError::kNone ? judge_(to, headers) : Fate{};
}

void SimWire::arrive(std::deque<InFlight>& queue, InFlight in_flight) {
  const auto behind = std::upper_bound(
      queue.begin(), queue.end(), in_flight.arrival_ns,
      [](TimeNs at_ns, const InFlight& other) { return at_ns < other.arrival_ns; });
  queue.insert(behind, in_flight);
}

TimeNs SimWire::next_arrival_ns(const std::function<bool(uint32_t to)>& listens) const {
  TimeNs earliest = UINT64_MAX;
  for (uint32_t to = 0; to < queues_.size(); ++to)
    if (!queues_[to].empty() && listens(to))
      earliest = std::min(earliest, queues_[to].front().arrival_ns);
  return earliest;
}

}  // namespace hostnic::sim
