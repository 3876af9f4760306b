// SPDX-License-Identifier: BSD-3-Clause
// The queue pair state machines of ibv_modify_qp: which transitions exist, which attributes each
// one requires and allows, by type (InfiniBand 10.3.1 and 11.2.5.2, table 91; man ibv_modify_qp).
// Pure.
#pragma once

#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

// Returns 0, or EINVAL when the state table refuses `mask` for a QP in state `from`. The next state
// is attr.state if the mask has kQpState, else `from`.
int check_transition(QpType type, QpState from, const QpAttr& attr, uint32_t mask);

struct DeviceLimits {
  uint32_t mtu_bytes = 4096;
  uint32_t max_rd_atomic = 16;
};
// Returns nullptr, or what is wrong with an attribute named by `mask`.
const char* refused_attribute(const QpAttr& attr, uint32_t mask, const DeviceLimits& limits);

// Copies the attributes named by `mask` from `attr` to `into`, kQpState excepted.
void apply_attributes(QpAttr& into, const QpAttr& attr, uint32_t mask);

// The time an RNR NAK's 5-bit code stands for (InfiniBand table 45).
uint64_t rnr_timer_ns(uint32_t code);
// The time that a timeout code stands for: 4.096 us x 2^timeout; 0 (for ever) for timeout 0.
uint64_t ack_timeout_ns(uint32_t timeout);

}  // namespace hostnic::driver
