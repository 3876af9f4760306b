// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/foreign_descriptors.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <system_error>
#include <thread>
#include <utility>

namespace hostnic {

bool is_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

void close_apart(std::vector<UniqueFd> fds) {
  if (fds.empty()) return;
  try {
    std::thread([fds = std::move(fds)] {}).detach();
  } catch (const std::system_error&) {
    // No thread is left: they were moved, and are closed here.
  }
}

Expected<void, std::string> check_files_are_memory(std::span<const UniqueFd> fds) {
  for (const UniqueFd& fd : fds) {
    struct statfs file_system {};
    if (fstatfs(fd.get(), &file_system) != 0)
      return Unexpected(std::string("unusable descriptor: ") + strerror(errno));
    if (file_system.f_type != TMPFS_MAGIC && file_system.f_type != HUGETLBFS_MAGIC)
      return Unexpected(std::string("a descriptor is no file of tmpfs or hugetlbfs"));
  }
  return {};
}

}  // namespace hostnic
