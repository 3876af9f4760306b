// SPDX-License-Identifier: BSD-3-Clause
// Packets of the standard's RC that no NIC of the simulation has sent.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/sim/pair.h"

namespace hostnic::sim {

// A packet of the near end's to the far one's, not from its NIC.
struct Forged {
  wire::Opcode opcode = wire::Opcode::kRcSendOnly;
  uint32_t psn = 0;
  uint64_t va = 0;
  uint32_t rkey = 0, length_bytes = 0;  // RETH
  uint16_t payload_bytes = 0;
  bool ack_request = true;
};

// Has the packet arrive, and runs for 20 us or until `done` says so.
inline void forge(Pair& pair, const Forged& forged, uint32_t source_host = 0,
                  const std::function<bool()>& done = nullptr) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().data);
  ASSERT_NE(packet, nullptr);
  wire::Packet p;
  p.opcode = forged.opcode;
  p.psn = Psn(forged.psn);
  p.dest_qpn = Qpn{pair.far->qpn()};
  p.ack_request = forged.ack_request;
  p.reth = {forged.va, forged.rkey, forged.length_bytes};
  p.payload_bytes = forged.payload_bytes;
  const auto flow =
      wire::make_flow_template({}, {}, pair.world.host(source_host).nic().settings().ip,
                               pair.world.host(1).nic().settings().ip, 0xc123, 0);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t headers = wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  std::memset(frame + headers, 0xbd, forged.payload_bytes);
  packet->data_len = static_cast<uint16_t>(headers + forged.payload_bytes);
  packet->pkt_len = packet->data_len;
  pair.world.wire().inject(1, packet);
  const auto never = [] { return false; };
  pair.world.run_until(done ? done : never, 20 * kMicrosecond, /*idle_is_a_bug=*/false);
}

}  // namespace hostnic::sim
