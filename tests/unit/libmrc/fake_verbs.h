// SPDX-License-Identifier: BSD-3-Clause
// Verbs without a NIC, under libmrc's parts: objects that are nothing but their public structures,
// and what was asked of them last.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "verbs-shim/libraries/mrc_door.h"

namespace hostnic::libmrc_test {

struct Fake {
  // The device that contexts are of; `is_ours` false: another vendor's.
  MrcDevice device{.name = "hnic7",
                   .transport = Transport::kMrc,
                   .window = 1024,
                   .mtu_bytes = 4096,
                   .entropy_values = 16,
                   .congestion_allowance_us = 250};
  bool is_ours = true;
  int error = 0;  // what the next calls fail with; 0: they don't

  ibv_qp_init_attr created{};
  ibv_qp_attr modified{};
  uint32_t modified_mask = 0;
  uint32_t modifications = 0;
  MrcQpLimits limits{};
  uint32_t times_limited = 0;
  std::vector<ibv_wr_opcode> posted;
  std::deque<ibv_async_event> events;
  uint32_t acknowledged = 0;
  uint32_t alive = 0;  // objects that are not destroyed
};

// The only one; tests make it new.
Fake& fake();
void reset_fake();
// A context whose posting and polling is the fake's.
ibv_context* context();

}  // namespace hostnic::libmrc_test
