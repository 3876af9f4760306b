// With thousands of queue pairs each packet finds another one's context, which is in no cache near:
// a dozen lines, one miss behind the other. So it is asked for while the packets before it are
// worked on. The NIC's lcore.
#pragma once

#include <rte_prefetch.h>

#include "dataplane/nic/impl.h"

namespace hostnic {

// Packets or descriptors: enough to hide a memory access, few enough to stay in the cache.
inline constexpr uint32_t kQpsAhead = 3;

// Any number: one that is no queue pair's does nothing.
inline void Nic::Impl::prefetch_qp(uint32_t qpn) const {
  const uint32_t index = qpn & 0xffff;
  if (index >= qps.size() || qps[index] == nullptr) return;
  const QpContext& qp = *qps[index];
  const auto lines = [](const void* first, const void* last) {
#pragma GCC unroll 8
    for (auto* line = static_cast<const char*>(first); line <= last; line += RTE_CACHE_LINE_SIZE)
      rte_prefetch0(line);
  };
  // What a packet in order touches, either way; not the bitmaps.
  lines(&qp, reinterpret_cast<const char*>(&qp.requests) + RTE_CACHE_LINE_SIZE);
  rte_prefetch0(&qp.recv_next_sn);
  rte_prefetch0(&qp.ack_owed);
  lines(&qp.packets, &qp.responses);
}

}  // namespace hostnic
