// SPDX-License-Identifier: BSD-3-Clause
// What a command of a client may say: every enumeration, range and transition is judged here, once,
// before anything else looks at the command. Offsets into the arena, keys and queue pair numbers
// are judged where they are looked up.
#pragma once

#include "protocol/hostif/descriptors.h"

namespace hostnic {

// Each returns 0, or EINVAL. The library never sends what is refused here.
int check_command(const CreateQpCommand& command, uint32_t max_qps);
int check_command(const ModifyQpCommand& command, QpType type, QpState from);
int check_command(const CreateWindowCommand& command);

}  // namespace hostnic
