// SPDX-License-Identifier: BSD-3-Clause
// Which descriptors of this process are rdma_cm files (base/known_sockets.h).
#pragma once

#include <cstdint>

#include "verbs-shim/base/known_sockets.h"

namespace hostnic::cm_device {

// Remembers `fd`, which hostnicd calls `name`. Returns false if there is no memory.
inline bool add_file(int fd, uint64_t name) { return add_known(fd, SocketKind::kCm, name); }

inline bool may_be_file(int fd) { return may_be_known(fd); }

// The name that hostnicd gives the file, for a descriptor that may be one. 0: it is none.
inline uint64_t file_name(int fd) { return known_name(fd, SocketKind::kCm); }

}  // namespace hostnic::cm_device
