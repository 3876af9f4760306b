// SPDX-License-Identifier: BSD-3-Clause
// Lines that say why something failed or does not go on. In a lab they are for whoever sits there,
// and on; elsewhere HOSTNIC_LOG=info asks for them. A process says so many in a lab, so that what
// fails a thousand times does not fill a terminal. Any thread; errno stays.
#pragma once

namespace hostnic {

// Whether anybody wants the next one: making it may cost a question to hostnicd.
bool explanations_wanted();
// Takes printf formats, without a newline.
[[gnu::format(printf, 1, 2)]] void explain(const char* format, ...);

}  // namespace hostnic
