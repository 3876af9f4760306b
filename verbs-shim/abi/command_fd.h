// SPDX-License-Identifier: BSD-3-Clause
// The descriptor behind ibv_context::cmd_fd, one for all open devices of the process. With an
// adapter it is the kernel's device file; programs duplicate it, hand it to ibv_import_device and
// watch or pass it on. Ours is a socket that leads nowhere: each ioctl on it is ENOTTY, each write
// ENOTCONN, mapping it ENODEV.
#pragma once

namespace hostnic::abi {

// Returns a descriptor for one more open device; -1 with errno set.
int acquire_command_fd();
void release_command_fd();
// Whether a descriptor is one of these, of this process or another, or a duplicate.
bool is_command_fd(int fd);

}  // namespace hostnic::abi
