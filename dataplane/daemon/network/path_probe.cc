// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/path_probe.h"

#include <errno.h>
#include <sys/socket.h>

#include "dataplane/daemon/network/socket_address.h"

namespace hostnic {

void PathProbe::send(Kind kind, const Gid& own, const Gid& destination, uint32_t interface_index,
                     uint16_t port) {
  const SocketAddress from = socket_address(own, 0, interface_index);
  const SocketAddress to = socket_address(destination, port, interface_index);
  error_ = 0;
  kind_ = kind;
  const int type = kind == Kind::kDatagram ? SOCK_DGRAM : SOCK_STREAM;
  socket_ = UniqueFd(socket(from.any.sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_ || from.any.sa_family != to.any.sa_family) return;
  if (bind(socket_.get(), &from.any, from.bytes()) != 0 ||
      (connect(socket_.get(), &to.any, to.bytes()) != 0 && errno != EINPROGRESS) ||
      (kind == Kind::kDatagram && ::send(socket_.get(), nullptr, 0, 0) < 0))
    error_ = errno;
}

int PathProbe::error() {
  int error = 0;
  socklen_t size = sizeof error;
  if (error_ == 0 && socket_ && getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0)
    error_ = error;
  SocketAddress peer{};
  size = sizeof peer;
  if (error_ == 0 && socket_ && kind_ == Kind::kHandshake &&
      getpeername(socket_.get(), &peer.any, &size) == 0)
    error_ = EISCONN;
  return error_;
}

}  // namespace hostnic
