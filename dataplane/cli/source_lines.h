// SPDX-License-Identifier: BSD-3-Clause
// Functions and lines of source for places in programs, as addr2line (binutils) knows them.
#pragma once

#include "dataplane/cli/check_report.h"
#include "protocol/hostif/check_board.h"

namespace hostnic::cli {

// Where there is no addr2line, or the program has no such information, the place has what the
// dynamic linker knows. A child process for each.
SourcePlace source_of(const CheckPlace& place);

}  // namespace hostnic::cli
