// SPDX-License-Identifier: BSD-3-Clause
// Where a NIC's packets come from and go to. The hardware half knows ports only through this. What
// changes packets, or looks at them, is a port around a port (egress/port_stage.h), so that neither
// the NIC nor the port knows of it.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

#include "dataplane/nic/port_view.h"

namespace hostnic {

// What a port can do, and what it needs. A NIC asks again in each turn: some of it may change.
struct PortCapabilities {
  // Whether packets leave and arrive with pad and ICRC. A port that needs none can still take
  // packets that have one (packet/packet.h: icrc_flag()).
  bool needs_icrc = true;
  // Whether the port itself adds ICRCs, and checks those that arrive.
  bool adds_icrc = false;
  // Whether the MAC address of a destination, or of the gateway towards it, has to be in the
  // packet.
  bool needs_arp = true;
  // Whether a packet's payload may stay in the memory of the client that sends it
  // (packet/external_payload.h): where the port has read it when transmit() returns, or the
  // receiver is in this process.
  bool allows_external_payload = false;
  // Whether the receiver is in this process for sure, reads external payload when it takes the
  // packet, and gets those lost on the way, too, marked as such (lost_flag()), where they have to
  // be read.
  bool delivers_to_readers = false;
  // Whether each buffer that arrives begins with a whole BTH: then it may be looked at before it is
  // parsed.
  bool delivers_whole_bth = false;
  // Whether several packets may be handed over as one buffer, and arrive so (packet/bundle.h).
  bool carries_bundles = false;
  // Whether packets leave in the order in which they are handed over, and each once.
  bool keeps_order = true;
  // The number of receive queues that the port spreads arrivals over. NICs use one so far.
  uint16_t rx_queues = 1;
};

class Port {
 public:
  virtual ~Port() = default;

  virtual PortCapabilities capabilities() const = 0;

  // Called by the lcore of the NIC only. Fills `packets` with up to `max` packets received in
  // `queue`; the caller owns them. Packets that end in pad and ICRC have icrc_flag().
  virtual uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) = 0;
  // Called by the lcore of the NIC only. Sends the first n of `packets` and returns n; the caller
  // keeps the rest. `peer` is what peer_of() answered. Packets sent belong to the port.
  virtual uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) = 0;

  // The peer that packets to this address (host order) are handed to; -1: nobody has the address.
  // Where MAC addresses decide there is one peer, 0.
  virtual int peer_of(uint32_t ip) const = 0;
  // The number of peers, numbered from 0, this NIC included where it is one of them. Where MAC
  // addresses decide there is one.
  virtual int peers() const = 0;
  // The number that this NIC has among the peers; -1: it is none of them.
  virtual int own_peer() const { return -1; }
  // Has packets to a multicast group (host order) arrive, or not any more. Called by the lcore of
  // the NIC, once for each group that it has members of. join() returns 0 or an errno value. Ports
  // that take all groups need neither.
  virtual int join([[maybe_unused]] uint32_t group) { return 0; }
  virtual void leave([[maybe_unused]] uint32_t group) {}
  // Whether the receive side is more than half full: ACKs then carry a congestion mark. The call is
  // cheap.
  virtual bool backlog() const = 0;
  // Whether the port is full, and wakes the lcore when it is no longer: until then there is nothing
  // to do for what waits for it.
  virtual bool announces_room() const { return false; }
  // What people are shown of the port. For any thread.
  virtual PortView view() const = 0;
};

}  // namespace hostnic
