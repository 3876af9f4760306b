// SPDX-License-Identifier: BSD-3-Clause
// What a node of MRC knows of ports, one for each plane: which of its own are down, and which its
// peers have said are down (docs/mrc.md, "Planes and ports"). Bit N of a mask is port N, from 1, as
// in phy_port_mask of OCP's API. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "protocol/types.h"

namespace hostnic::mrc {

class PortStatus {
 public:
  // The table has room for so many peers. It forgets the one that was heard of longest ago, whose
  // ports that are down are found by losses then.
  static constexpr uint32_t kPeers = 64;

  static constexpr uint32_t mask_of(uint32_t port) { return uint32_t{1} << port; }
  // All ports of a node with so many.
  static constexpr uint32_t all_of(uint32_t ports) {
    return static_cast<uint32_t>((uint64_t{2} << ports) - 2);
  }
  // The port of a plane that is counted from 0.
  static constexpr uint32_t port_of(uint32_t plane) { return plane + 1; }

  uint32_t own_down() const { return own_down_; }
  void set_own(uint32_t port, bool is_up) {
    own_down_ = is_up ? own_down_ & ~mask_of(port) : own_down_ | mask_of(port);
  }

  // A peer's ports that are down; 0: it has said nothing.
  uint32_t down_of(Ipv4Address peer) const {
    for (const Peer& each : peers_)
      if (each.is_used && each.address == peer) return each.down;
    return 0;
  }
  void note_peer(Ipv4Address peer, uint32_t down) {
    Peer* place = &peers_[next_];
    for (Peer& each : peers_)
      if (each.is_used && each.address == peer) place = &each;
    if (place == &peers_[next_]) next_ = (next_ + 1) % kPeers;
    *place = {peer, down, true};
  }

 private:
  struct Peer {
    Ipv4Address address{};
    uint32_t down = 0;
    bool is_used = false;
  };

  uint32_t own_down_ = 0;
  std::array<Peer, kPeers> peers_{};
  uint32_t next_ = 0;
};

}  // namespace hostnic::mrc
