// SPDX-License-Identifier: BSD-3-Clause
// Sockets of RDMA netlink (socket(AF_NETLINK, ..., NETLINK_RDMA)), on which stock tools see our
// devices. What a program has is one end of a pair; the requests that it sends are taken from the
// other end when it sends or receives, hostnicd answers them (protocol/nldev/), and the answers
// wait there. For any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "verbs-shim/base/known_sockets.h"

namespace hostnic::netlink {

// Opens such a socket of this type (SOCK_RAW | SOCK_CLOEXEC, ...): a descriptor, or -1 with errno.
// -2: this process has no devices of ours; the socket is the kernel's.
int open_socket(int type) noexcept;

inline bool is_socket(int fd) {
  return may_be_known(fd) && known_name(fd, SocketKind::kNetlink) != 0;
}

// Answers what was sent on a socket of ours, as far as there is room for the answers. errno stays.
void serve(int fd) noexcept;

// What libc's functions do, for a socket of ours: 0, or -1 with errno.
int bind_socket(int fd, const sockaddr* address, socklen_t length) noexcept;
int socket_name(int fd, sockaddr* address, socklen_t* length) noexcept;
int set_option(int fd, int option, const void* value, socklen_t length) noexcept;
// Writes the address of the kernel, which all answers come from. `room` is how long the address may
// be; returns its length.
socklen_t put_sender(void* address, socklen_t room) noexcept;

// While one lives, the calling thread's sockets are the kernel's: the real libibverbs looks for its
// devices, and knows nothing of ours.
class KernelsOnly {
 public:
  KernelsOnly();
  ~KernelsOnly();
  KernelsOnly(const KernelsOnly&) = delete;
  KernelsOnly& operator=(const KernelsOnly&) = delete;
};

}  // namespace hostnic::netlink
