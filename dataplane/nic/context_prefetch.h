// With thousands of queue pairs each packet finds another one's context, which is in no cache near:
// a dozen lines, one miss behind the other. So it is asked for while the packets before it are
// worked on. The NIC's lcore.
#pragma once

#include "dataplane/nic/impl.h"
#include "protocol/prefetch.h"

namespace hostnic {

// Packets or descriptors: enough to hide a memory access, few enough to stay in the cache.
inline constexpr uint32_t kQpsAhead = 3;

// Any number: one that is no queue pair's does nothing. For a descriptor or for a packet that has
// come.
inline void Nic::Impl::prefetch_qp(uint32_t qpn, QpPart part) const {
  const uint32_t index = qpn & 0xffff;
  if (index >= qps.size() || qps[index] == nullptr) return;
  const QpContext& qp = *qps[index];
  prefetch_line(&qp);
  switch (part) {
    case QpPart::kSends:
      return prefetch_lines(&qp.packets, &qp.stamps);
    case QpPart::kReceives:
      return prefetch_lines(&qp.response_flow, &qp.requests);
    case QpPart::kAnswers:
      return prefetch_line(&qp.responses);
  }
}

// The same of the status that what an ACK says goes to: the driver has just read it, on another
// core. The context should be there already.
inline void Nic::Impl::prefetch_status(uint32_t qpn) const {
  if (const QpContext* const qp = find_qp(qpn)) prefetch_line(qp->status);
}

// What the driver has just written on another core, to be had when the payload in between has been
// copied: where the message of receive `sn` will say that it is complete, and the receive behind
// it. The queue pair has receives.
inline void Nic::Impl::prefetch_receives(const QpContext& qp, uint32_t sn) {
  const uint32_t mask = qp.recv_entries - 1;
  // A shared queue's are in no order.
  if (qp.srq != nullptr)
    return prefetch_line(&qp.recv_completions[qp.recv_names[sn & mask] & mask]);
  prefetch_line(&qp.recv_completions[sn & mask]);
  prefetch_line(qp.recv_slots + size_t{(sn + 1) & mask} * recv_slot_bytes(qp.recv_max_sge));
}

}  // namespace hostnic
