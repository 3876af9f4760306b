// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/service_manager.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {

bool tell_service_manager_ready() {
  const char* path = getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : strlen(path);
  if (length == 0 || length >= sizeof(address.sun_path)) return false;
  memcpy(address.sun_path, path, length);
  // A name that begins with @ is one in the abstract namespace: it begins with a null byte, and its
  // length counts.
  if (path[0] == '@') address.sun_path[0] = 0;
  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return false;
  constexpr char kReady[] = "READY=1";
  return sendto(socket_fd.get(), kReady, sizeof(kReady) - 1, MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)) > 0;
}

}  // namespace hostnic
