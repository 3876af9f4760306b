// SPDX-License-Identifier: BSD-3-Clause
// The queue pairs and shared receive queues of this process, as far as faults are about them: which
// one it was of those that the process created, and whether a completion of it was made to fail.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace hostnic::faults {

struct KnownQp {
  ibv_qp* qp = nullptr;      // null: unknown
  uint32_t ordinal = 0;      // from 1
  uint32_t max_send_wr = 0;  // as it was granted
  bool failed = false;
};

// Notes one that was created; librdmacm's are created by libibverbs, and noted once.
void note_created(ibv_qp* qp, uint32_t max_send_wr);
// Forgets one that is about to be destroyed, since another may be at its place at once; it is
// remembered again if it stays.
KnownQp forget(const ibv_qp* qp);
void remember(const KnownQp& known);

// By the number that the device gave it, or by its place among those created.
KnownQp find_qp(const ibv_device* device, uint32_t qpn);
KnownQp find_qp(uint32_t ordinal);
// What it has posted is flushed from now on; until it is reset.
void set_failed(const ibv_qp* qp, bool failed);

// As those of queue pairs. An ordinal of 0: unknown.
void note_created(const ibv_srq* srq);
uint32_t forget(const ibv_srq* srq);
void remember(const ibv_srq* srq, uint32_t ordinal);
uint32_t srq_ordinal(const ibv_srq* srq);
const ibv_srq* find_srq(uint32_t ordinal);

}  // namespace hostnic::faults
