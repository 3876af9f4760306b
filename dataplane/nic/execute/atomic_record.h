// SPDX-License-Identifier: BSD-3-Clause
// What the last atomics of a connection found in memory: an atomic executes once, and is answered
// from here when it comes again (InfiniBand 9.7.5.1.5; docs/transport.md rule 19). The NIC's lcore.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/nic/qp/qp_context.h"
#include "protocol/psn.h"

namespace hostnic {

inline void record_atomic(QpContext& qp, Psn psn, uint64_t before) {
  qp.atomics[qp.atomic_next] = {true, psn, before};
  qp.atomic_next = (qp.atomic_next + 1) % kAtomicRecords;
}

// What the atomic with that PSN found; nothing: none is remembered.
inline std::optional<uint64_t> recorded_atomic(const QpContext& qp, Psn psn) {
  for (const auto& record : qp.atomics)
    if (record.valid && record.psn == psn) return record.result;
  return std::nullopt;
}

}  // namespace hostnic
