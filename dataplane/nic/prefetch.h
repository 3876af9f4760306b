// With thousands of queue pairs each packet finds another one's context, which is in no cache near:
// a dozen lines, one miss behind the other. So it is asked for while the packets before it are
// worked on. The NIC's lcore.
#pragma once

#include "dataplane/nic/impl.h"
#include "protocol/prefetch.h"

namespace hostnic {

// Packets or descriptors: enough to hide a memory access, few enough to stay in the cache.
inline constexpr uint32_t kQpsAhead = 3;

// Any number: one that is no queue pair's does nothing.
inline void Nic::Impl::prefetch_qp(uint32_t qpn) const {
  const uint32_t index = qpn & 0xffff;
  if (index >= qps.size() || qps[index] == nullptr) return;
  const QpContext& qp = *qps[index];
  // What a packet in order touches, either way; not the bitmaps.
  prefetch_lines(&qp, reinterpret_cast<const char*>(&qp.requests) + kCacheLineBytes);
  prefetch_line(&qp.recv_next_sn);
  prefetch_line(&qp.ack_owed);
  prefetch_lines(&qp.packets, &qp.responses);
}

}  // namespace hostnic
