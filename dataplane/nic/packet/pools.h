// SPDX-License-Identifier: BSD-3-Clause
// Packet buffers of one lcore.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <string>

namespace hostnic {

// The pools of packet buffers, which the NICs of one lcore share.
struct MbufPools {
  rte_mempool* header = nullptr;  // headers of packets whose payload is external, and of small ones
  rte_mempool* data =
      nullptr;  // headers and copied payloads; room for a whole packet of the largest MTU
  rte_mempool* control = nullptr;  // ACKs, ARP: small and never starved by data
  rte_mempool* resend = nullptr;   // whole packets, for retransmissions when the others are empty
  rte_mempool* copies = nullptr;   // copies of packets reordered, delayed or corrupted
};
// Creates the pools with enough room for packets of an IB MTU of `mtu_bytes`; `scale` 1 is about
// 16,000 buffers, 100 MB at 4096. EAL must be up. Returns null pools with rte_errno set on failure.
MbufPools create_mbuf_pools(const std::string& name_prefix, uint32_t mtu_bytes, double scale,
                            int socket);
void free_mbuf_pools(MbufPools& pools);

// How many buffers somebody holds, and how many there are. For people: others may take and return
// some meanwhile.
struct MbufUse {
  uint32_t in_use = 0, all = 0;
};
MbufUse mbuf_use(const MbufPools& pools);

}  // namespace hostnic
