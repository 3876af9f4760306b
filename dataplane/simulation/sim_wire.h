// SPDX-License-Identifier: BSD-3-Clause
// The network of a simulation: in-memory links between NICs on virtual time, with a delay, a rate
// and bounded queues that push back, as the in-process wire does. It loses nothing, which is the
// impairment stages' business, unless a judge decides about each packet.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/nic/port.h"
#include "dataplane/simulation/trace.h"
#include "protocol/types.h"

namespace hostnic::sim {

// A switch with a port for each receiver, whose queue has no end and marks as RED does, with the
// figures of the paper about DCQCN.
struct SwitchSettings {
  double gigabits = 0;  // 0: there is no switch, and receivers take what all senders send
  uint64_t marks_from_bytes = 5'000;        // K_min
  uint64_t marks_all_from_bytes = 200'000;  // K_max
  double marks_at_most = 0.01;              // P_max, shortly before that
};

struct LinkSettings {
  uint64_t delay_ns = 1'000;
  double gigabits = 100;
  uint32_t queue_packets = 4096;
  // False: an Ethernet segment. Packets carry an ICRC, addresses are resolved by ARP.
  bool is_wire = true;
  // Whether a queue that is more than half full is the receiver's, who then is behind and says so;
  // else it is the sender's, as a slow interface's is.
  bool queue_is_receivers = true;
  // Bundles arrive as their packets, all at the same time.
  bool takes_bundles_apart = false;
  // A port whose queue is full says so, as one does that will wake its lcore.
  bool announces_room = false;
  SwitchSettings network_switch;
};

inline Ipv4Address address_of(uint32_t host) { return Ipv4Address{0x0a000001u + host}; }

// What becomes of one packet.
struct Fate {
  bool drop = false;
  bool duplicate = false;
  uint64_t delay_ns = 0;      // later packets may overtake it
  int32_t flipped_byte = -1;  // that one arrives damaged, if the packet is so long
};

class SimWire {
 public:
  using Judge = std::function<Fate(uint32_t to, const wire::Packet& headers)>;
  SimWire(uint32_t hosts, const LinkSettings& settings, Trace& trace);
  ~SimWire();
  Port& port(uint32_t host);
  void set_time(TimeNs now_ns) { now_ns_ = now_ns; }
  // At those receivers that listens(host) says look for it.
  TimeNs next_arrival_ns(const std::function<bool(uint32_t to)>& listens) const;
  // Packets to this host vanish: its process died.
  void cut(uint32_t host, bool cut);
  // Sees each packet as it leaves, also one that a cut will swallow.
  using Tap = std::function<void(uint32_t from, uint32_t to, rte_mbuf* packet)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // A packet that nobody sent arrives after `late_ns`, or behind those on their way. Takes it.
  void inject(uint32_t to, rte_mbuf* packet, uint64_t late_ns = 0);
  // Asked about every packet; a null one lets all pass. Flipping bytes wants packets with ICRC.
  void set_judge(Judge judge) { judge_ = std::move(judge); }
  uint64_t flipped() const { return flipped_; }
  // The longest that the switch's queue to a host has been since this was last asked.
  uint64_t take_longest_queue_bytes(uint32_t to) { return std::exchange(longest_queue_[to], 0); }

 private:
  class SimPort;
  struct InFlight {
    TimeNs arrival_ns;
    rte_mbuf* packet;
  };
  bool deliver(uint32_t from, uint32_t to, rte_mbuf* packet);
  bool has_icrc(const rte_mbuf* packet) const;
  TimeNs pass_switch(uint32_t to, rte_mbuf* packet, TimeNs arrival_ns);
  bool draw(double chance);
  Fate fate_of(uint32_t to, const rte_mbuf* packet) const;
  static void arrive(std::deque<InFlight>& queue, InFlight in_flight);

  LinkSettings settings_;
  Trace& trace_;
  Judge judge_;
  uint64_t flipped_ = 0;
  TimeNs now_ns_ = 0;
  std::vector<std::deque<InFlight>> queues_;  // by receiver
  std::vector<TimeNs> link_free_ns_;          // by sender
  std::vector<TimeNs> port_free_ns_;          // of the switch, by receiver
  std::vector<uint64_t> longest_queue_;       // of the switch, by receiver
  uint64_t random_ = 1;
  std::vector<bool> cut_;
  Tap tap_;
  std::vector<std::unique_ptr<SimPort>> ports_;
};

}  // namespace hostnic::sim
