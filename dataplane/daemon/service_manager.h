// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd tells systemd, or whoever else started it and set NOTIFY_SOCKET.
#pragma once

namespace hostnic {

// Tells the service manager that hostnicd serves clients (sd_notify(3), READY=1). Does nothing
// where there is none, and returns whether somebody was told: a manager that is gone is no reason
// to end.
bool tell_service_manager_ready();

}  // namespace hostnic
