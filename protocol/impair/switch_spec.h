// SPDX-License-Identifier: BSD-3-Clause
// What a user may ask for as the switch between NICs, and the text that says it.
//
//   switch = "none"
//          | "rate" RATE { "queue" PACKETS | "ecn" PACKETS | "paths" N | "planes" N
//                        | "path-rate" RATE | "path-queue" PACKETS | "trim" }
//   RATE   = number and bit, Kbit, Mbit, Gbit or Tbit
//
// The clauses may come in any order, each once. Meaning:
//  - rate, queue: the port towards a NIC, and the cable from the NIC to the switch, have that rate;
//    the port's queue holds so many packets (256).
//  - ecn: what finds at least so many packets in a queue is marked, where its sender allows it.
//  - paths: the core has so many parallel paths to each NIC's port; a flow's packets take the one
//    that their addresses and UDP source port choose. Without it there is one path, without limits.
//  - planes: the paths belong to so many networks, equally many to each (one, if paths is not
//  said).
//    A NIC has a port in each plane, which the sender chooses: it is the UDP source port modulo
//    planes. Each path then has 1/planes of the rate.
//  - path-rate, path-queue: of each path; the port's if they are not said.
//  - trim: a packet that finds a queue full loses its payload instead of being dropped, and its
//    headers go on before all packets that have theirs, if its transport understands that (MRC).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/expected.h"
#include "protocol/impair/spec.h"
#include "protocol/types.h"

namespace hostnic::impair {

// The sum of all queues bounds how many packet buffers a NIC's side of the switch may hold.
inline constexpr uint32_t kMaxSwitchQueue = 4096;

// The ways through a switch's core.
struct PathPlan {
  uint32_t paths = 0;   // 0: there are none to choose from
  uint32_t planes = 1;  // a power of two that divides paths

  constexpr uint32_t paths_of_plane() const { return paths / planes; }
  // The number of the plane, from 1, that a source port chooses; 0: there are no paths.
  constexpr uint32_t plane_of(uint16_t source_port) const {
    return paths == 0 ? 0 : 1 + (source_port & (planes - 1));
  }
  bool operator==(const PathPlan&) const = default;
};

struct SwitchSpec {
  uint64_t rate_bits_per_second = 0;  // of a NIC's port; 0: there is no switch
  uint32_t queue_packets = kDefaultRateQueue;
  uint32_t marks_from_packets = 0;  // in any queue; 0: nothing is marked
  PathPlan plan;                    // no paths: the core has no limits
  uint64_t path_bits_per_second = 0;
  uint32_t path_queue_packets = 0;
  bool trims = false;

  bool is_there() const { return rate_bits_per_second != 0; }
  uint32_t rate_mbps() const { return static_cast<uint32_t>(rate_bits_per_second / 1'000'000); }
  bool operator==(const SwitchSpec&) const = default;
};

// Parses a text; any thread. `none` and an empty text mean no switch. It throws nothing except for
// lack of memory.
Expected<SwitchSpec, SpecError> parse_switch(std::string_view text);

// The canonical text, one line; parse_switch of it gives an equal SwitchSpec.
std::string to_string(const SwitchSpec& spec);

// The number of the path, from 1, that a packet with these header fields takes; 0 if there are no
// paths. Equal fields give equal paths everywhere.
uint32_t path_of(Ipv4Address source, Ipv4Address destination, uint16_t source_port,
                 const PathPlan& plan);

// Why rules can't be in force beside that switch: the first `path` or `plane` that there is not,
// with the remedy; empty if they can.
std::string why_no_path(const Spec& rules, const SwitchSpec& network_switch);

}  // namespace hostnic::impair
