// SPDX-License-Identifier: BSD-3-Clause
// The devices of this process's hostnicd.
#pragma once

#include <cstdint>
#include <vector>

#include "verbs-shim/abi/objects.h"

namespace hostnic::abi {

// Asks hostnicd for its devices; empty when no hostnicd answers. A device that was seen before
// keeps its object. An unreachable hostnicd is reported once on stderr when $HOSTNIC_SOCKET names a
// socket that nobody serves, else only in the debug log. For any thread; allocates.
std::vector<DeviceObject*> current_devices();

// Whether the program got `device` from us.
bool is_our_device(const ibv_device* device);
DeviceObject* object_of(ibv_device* device);

// A copy of the device's description, since ibv_get_device_list refreshes it.
DeviceInfo info_of(const DeviceObject& device);

// These are for the fork handlers: a child must find the real library's lock of its device list
// free.
void lock_real_search_across_fork();
void unlock_real_search_after_fork();

}  // namespace hostnic::abi
