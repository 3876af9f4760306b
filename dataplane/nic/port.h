// Where a NIC's packets come from and go to. The hardware half knows ports only through this.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <string>

namespace hostnic {

class Port {
 public:
  virtual ~Port() = default;

  // The NIC's lcore only. Fills `packets` with up to `max` received packets; the caller owns them.
  virtual uint16_t receive(rte_mbuf** packets, uint16_t max) = 0;
  // The NIC's lcore only. Sends the first n of `packets` and returns n; the caller keeps the rest.
  // `peer` is what peer_of() answered (always 0 on Ethernet ports). Packets sent belong to the
  // port.
  virtual uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) = 0;

  // The in-process wire: which NIC has this address (host order), or -1. Ethernet ports answer 0:
  // the MAC decides.
  virtual int peer_of(uint32_t ip) const = 0;
  // The in-process wire: how many NICs it joins, this one included; peers are numbered from 0.
  // Ethernet ports answer 1.
  virtual int peers() const = 0;
  // True on the in-process wire: packets carry no pad and ICRC, payload may be external, in
  // client memory (external_payload.h), MAC addresses need no ARP.
  virtual bool is_wire() const = 0;
  // True when several packets may be handed over as one buffer (bundle.h) and arrive so.
  virtual bool carries_bundles() const { return false; }
  // True when the receive side is more than half full: ACKs then carry a congestion mark. Cheap.
  virtual bool backlog() const = 0;
  virtual std::string describe() const = 0;
};

}  // namespace hostnic
