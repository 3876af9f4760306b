// SPDX-License-Identifier: BSD-3-Clause
// Standard input, output and error, which whoever starts a program may have closed.
#pragma once

namespace hostnic {

// Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Without this the next file,
// pipe or socket gets that number, is written to as if it were the terminal, or is replaced when a
// child is given its own. To be called first in main(), with one thread.
void open_standard_descriptors();

}  // namespace hostnic
