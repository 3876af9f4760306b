// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd and systemd, or whoever else started it in its way, tell each other: that hostnicd
// is ready and alive (sd_notify(3)), and which sockets it is to listen on (sd_listen_fds(3)). The
// protocol is environment variables, numbers of descriptors and a datagram.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// Tells the service manager something, such as "READY=1". Does nothing where there is none, and
// returns whether somebody was told: a manager that is gone is no reason to end.
bool tell_service_manager(std::string_view state);

// The sockets that the service manager passes (LISTEN_FDS), which it keeps as well; none if it
// passes none to this process. Later calls find none.
Expected<std::vector<UniqueFd>, std::string> take_passed_sockets();

// How long the service manager lets this process be silent (WATCHDOG_USEC), in nanoseconds; 0: for
// ever.
uint64_t watchdog_limit_ns();

}  // namespace hostnic
