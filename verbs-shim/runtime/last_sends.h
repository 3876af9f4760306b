// SPDX-License-Identifier: BSD-3-Clause
// What a program has posted leaves before the program ends by exit(): who has rung an adapter has
// practically sent, and memory that an adapter has pinned outlives the program (docs/transport.md
// rule 28). Any thread.
#pragma once

namespace hostnic::runtime {

class Context;

// A device is open, or is about to be closed: those that are open when the program ends are looked
// after. A forked child looks after its own.
void note_open(Context& context);
void note_closed(Context& context);

}  // namespace hostnic::runtime
