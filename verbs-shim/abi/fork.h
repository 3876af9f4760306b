// SPDX-License-Identifier: BSD-3-Clause
// What happens to open devices in a forked child: they are dead there, and must not touch the
// parent's session.
#pragma once

namespace hostnic::abi {

// Installs the fork handlers; called from the first look for devices on. It is idempotent, for any
// thread.
void watch_forks();

}  // namespace hostnic::abi
