// SPDX-License-Identifier: BSD-3-Clause
// Lines that say why something failed or does not go on. In a lab, and where stderr is a terminal,
// somebody sits who reads them, and they are on; elsewhere HOSTNIC_LOG=info asks for them. A
// process says so many there, so that what fails a thousand times does not fill a terminal. Any
// thread; errno stays.
#pragma once

namespace hostnic {

// Whether somebody reads what nobody has asked for: in a lab, or at a terminal.
bool somebody_reads();
// Whether anybody wants the next one: making it may cost a question to hostnicd.
bool explanations_wanted();
// Takes printf formats, without a newline.
[[gnu::format(printf, 1, 2)]] void explain(const char* format, ...);

}  // namespace hostnic
