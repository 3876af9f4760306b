// SPDX-License-Identifier: BSD-3-Clause
// A port as people and monitors are shown it: values. Text is made of them in
// daemon/observe/view_text.h.
#pragma once

#include <cstdint>
#include <string>

namespace hostnic {

enum class PortKind : uint8_t { kWire, kUdp, kEthernet, kOther };

// Made by Port::view(), for any thread. Counts are since the port was opened; those that a kind of
// port has no use for stay 0.
struct PortView {
  PortKind kind = PortKind::kOther;
  std::string device;      // virtual wire: its ring; udp: the interface; Ethernet: DPDK's arguments
  uint32_t wire_nics = 0;  // NICs on the virtual wire
  uint32_t mtu_bytes = 0;  // of the network; 0: there is none
  bool link_up = true;
  bool sends_segments = false;      // udp: several packets in a system call's buffer
  bool receives_coalesced = false;  // udp: so does the kernel
  uint64_t lost_without_link = 0;   // packets
  uint64_t socket_full = 0;         // packets that found the socket's buffer full
  uint64_t without_number = 0;      // packets of hosts for which no number was left
  uint64_t malformed = 0;           // datagrams that were no packets
  uint64_t waits_for_room = 0;      // times that the port was full
  uint64_t refused_by_kernel = 0;   // packets
  int refused_with = 0;             // errno of the last of them
  // What a driver of DPDK's has counted, as it was up to a second ago, in packets:
  uint64_t missed = 0;          // arrived while its receive queue was full
  uint64_t without_buffer = 0;  // arrived while there was no buffer for them
  uint64_t bad_frames = 0;      // arrived broken
  uint64_t not_sent = 0;        // could not leave
};

}  // namespace hostnic
