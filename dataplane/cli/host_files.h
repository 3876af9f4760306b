// SPDX-License-Identifier: BSD-3-Clause
// What a host of a lab has in other places than this machine: /sys/class/infiniband, its interfaces
// in /sys/class/net, /etc/hosts.
#pragma once

#include <string>

#include "protocol/expected.h"

namespace hostnic::cli {

// Mounts them in this process's mount namespace, a host's own. `infiniband` is the directory to be
// seen at /sys/class/infiniband, `hosts` the file to be seen at /etc/hosts. The kernel lets no user
// namespace mount a sysfs of its own where parts of the machine's are covered, as containers have
// it: then there is no /sys/class/net, which would name somebody else's interfaces.
Expected<void, std::string> mount_host_files(const std::string& infiniband,
                                             const std::string& hosts);

}  // namespace hostnic::cli
