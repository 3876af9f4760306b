// Bundles of ACKs (followers.h): plain ACKs to one peer that are due in one turn.
#pragma once

#include "dataplane/nic/followers.h"

namespace hostnic {

// An ACK without a bitmap that differs from the one in front in this.
struct AckFollower {
  Qpn dest_qpn{}, src_qpn{};
  uint32_t msn = 0;
  uint16_t src_port = 0;
  wire::Sack sack;

  // Turns the headers of any ACK of the bundle into this one's.
  void apply_to(wire::Packet& ack) const {
    ack.dest_qpn = dest_qpn;
    ack.src_qpn = src_qpn;
    ack.aeth.msn = msn;
    ack.src_port = src_port;
    ack.sack = sack;
    ack.psn = sack.base;
  }
};

using AckFollowers = Followers<AckFollower, 10>;

// What a buffer must hold.
inline constexpr uint32_t kAckBundleBytes = kFollowersOffset + sizeof(AckFollowers);

inline AckFollowers& ack_followers(rte_mbuf* packet) { return followers_in<AckFollowers>(packet); }

using AckBundleBuilder = SmallBundleBuilder<AckFollowers>;

}  // namespace hostnic
