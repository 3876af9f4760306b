// SPDX-License-Identifier: BSD-3-Clause
// A port around a NIC's port: the switch that the NIC hangs on (protocol/impair/switch_model.h).
// Packets that arrive take their path and wait for the port towards the NIC. Packets that leave go
// by a cable that is as fast as that port: a few to each peer wait for it here, first come, first
// served, so that no peer has the cable for itself, and the others stay with the NIC.
//
// It takes packets one by one and keeps them: there are no bundles or trains where there is a
// switch. Without one there is no such port in the chain.
//
// The NIC's lcore. Allocates when it is made alone.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/nic/egress/port_stage.h"
#include "dataplane/nic/limits.h"
#include "protocol/impair/switch_model.h"
#include "protocol/types.h"

namespace hostnic {

// What the links of a NIC's switch have done.
struct SwitchCounters {
  impair::LinkCounters port;
  std::vector<impair::LinkCounters> paths;
};

class SwitchPort final : public PortStage, private impair::SwitchModel::Ops {
 public:
  // `now` is the time of the NIC's turn.
  SwitchPort(Port& port, const impair::SwitchSpec& spec, const TimeNs& now);
  ~SwitchPort() override;

  PortCapabilities capabilities() const override;
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override;
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override;

  // Sends what the cable has room for. Called at the end of each turn.
  void advance() {
    if (leaving_count_ != 0) send_waiting();
  }
  TimeNs next_deadline_ns() const;
  // The number of packets that wait in the switch, and for the cable.
  uint32_t waiting() const { return static_cast<uint32_t>(model_.waiting()) + leaving_count_; }
  SwitchCounters counters() const;
  void clear_counters() { model_.clear_counters(); }

 private:
  // Packets to a peer that wait for the cable, and all of them.
  static constexpr uint32_t kLeavingToPeer = 16, kLeaving = kMaxPeers * kLeavingToPeer;
  struct Leaving {
    rte_mbuf* packet;
    uint16_t peer;
  };

  void send_waiting();
  uint32_t path_of(const rte_mbuf* packet) const;

  // The functions of impair::SwitchModel::Ops.
  bool mark(void* packet) override;
  uint32_t trim(void* packet) override;
  void release(void* packet) override;

  const TimeNs& now_;
  impair::RateLimiter cable_;
  std::array<Leaving, kLeaving> leaving_;  // a ring
  uint32_t leaving_first_ = 0, leaving_count_ = 0;
  std::array<uint8_t, kMaxPeers> leaving_to_{};  // by peer
  impair::SwitchModel model_;
};

}  // namespace hostnic
