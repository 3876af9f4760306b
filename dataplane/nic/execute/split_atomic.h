// SPDX-License-Identifier: BSD-3-Clause
// An atomic whose word has been read and is written later, which only NICs do whose `ordering` is
// adversarial (docs/ordering.md): IBV_ATOMIC_HCA promises no more than that no other atomic of the
// same device comes in between. The NIC's lcore; a device has at most one.
#pragma once

#include <cstdint>

#include "protocol/psn.h"
#include "protocol/types.h"

namespace hostnic {

struct QpContext;

struct SplitAtomic {
  const QpContext* qp = nullptr;  // null: there is none
  Psn psn;
  uint64_t before = 0;  // what was read
  TimeNs until_ns = 0;  // when it is written
};

}  // namespace hostnic
