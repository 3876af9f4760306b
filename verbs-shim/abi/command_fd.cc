// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/command_fd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "verbs-shim/base/own_descriptors.h"

namespace hostnic::abi {
namespace {

constexpr char kName[] = "hostnic-command";  // what duplicates are known by

std::mutex mutex;
int shared_fd = -1;
uint32_t users = 0;

// Gives a socket a name that no file has (it starts with a zero byte), and only one socket at a
// time.
int bind_name(int fd, uint32_t number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s.%d.%u", kName,
                              static_cast<int>(getpid()), number);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes);
}

int open_socket() {
  constexpr uint32_t kTries = 64;  // processes of other PID namespaces have the same numbers
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  for (uint32_t number = 0; number < kTries; ++number) {
    if (bind_name(fd, number) == 0) return fd;
    if (errno != EADDRINUSE) break;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

int acquire_command_fd() {
  const std::lock_guard lock(mutex);
  if (users == 0 || !still_ours(shared_fd)) {  // the program may have closed it
    shared_fd = open_socket();
    if (shared_fd < 0) return -1;
    lend(shared_fd);
  }
  ++users;
  return shared_fd;
}

void release_command_fd() {
  const std::lock_guard lock(mutex);
  if (users == 0 || --users != 0) return;
  close_ours(std::exchange(shared_fd, -1));
}

bool is_command_fd(int fd) {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return false;
  constexpr size_t kNameBytes = sizeof kName - 1;
  return address.sun_family == AF_UNIX &&
         bytes > offsetof(sockaddr_un, sun_path) + 1 + kNameBytes && address.sun_path[0] == '\0' &&
         memcmp(address.sun_path + 1, kName, kNameBytes) == 0;
}

}  // namespace hostnic::abi
