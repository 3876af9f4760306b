// SPDX-License-Identifier: BSD-3-Clause
// A port around a port: what it does not change goes to the port within. Stages make a chain, of
// which the NIC and the port at its end know nothing.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

#include "dataplane/nic/port.h"

namespace hostnic {

class PortStage : public Port {
 public:
  PortStage(const PortStage&) = delete;
  PortStage& operator=(const PortStage&) = delete;

  PortCapabilities capabilities() const override { return port_.capabilities(); }
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override {
    return port_.receive(queue, packets, max);
  }
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override {
    return port_.transmit(peer, packets, count);
  }
  int peer_of(uint32_t ip) const override { return port_.peer_of(ip); }
  int peers() const override { return port_.peers(); }
  int own_peer() const override { return port_.own_peer(); }
  int join(uint32_t group) override { return port_.join(group); }
  void leave(uint32_t group) override { port_.leave(group); }
  bool backlog() const override { return port_.backlog(); }
  bool announces_room() const override { return port_.announces_room(); }
  PortView view() const override { return port_.view(); }

 protected:
  explicit PortStage(Port& port) : port_(port) {}

  Port& port_;
};

}  // namespace hostnic
