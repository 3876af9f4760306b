// SPDX-License-Identifier: BSD-3-Clause
// The files of a device below /sys/class/infiniband: what programs were seen to read, nothing else.
// The library shows programs private ones, hostnicd (--sysfs) real ones to a host of its own.
#pragma once

#include <string>

#include "protocol/hostif/control_message.h"

namespace hostnic {

// Writes a line; who has the file open sees the new one. Its owner, who need not be root, can write
// it again.
void write_sysfs_file(const std::string& path, const std::string& text);

// Writes the files of a device in `directory`, or refreshes them; makes the directories, also
// counters/ and hw_counters/, which are empty at first.
void write_device_files(const std::string& directory, const DeviceInfo& info);

// Writes the files of counters/ and hw_counters/, from what `show counters` says of the device by
// this name.
void write_counter_files(const std::string& directory, const std::string& name,
                         const std::string& text);

}  // namespace hostnic
