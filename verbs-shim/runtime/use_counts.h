// SPDX-License-Identifier: BSD-3-Clause
// Where a device that is opened counts what it carries: on the board of whoever has started this
// program, if there is one.
#pragma once

#include "protocol/hostif/use_board.h"

namespace hostnic::runtime {

// A place of its own for one device; null: nobody wants to know. Any thread.
TrafficCounts* claim_use_counts();

}  // namespace hostnic::runtime
