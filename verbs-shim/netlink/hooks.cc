// SPDX-License-Identifier: BSD-3-Clause
// The C library's functions on sockets that have to know those of RDMA netlink. Compiled without
// sanitizers: sanitizer runtimes call these before they are ready. Where libc's function is a
// cancellation point the frame here has nothing to clean up.
#include <linux/netlink.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>

#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/netlink/sockets.h"

namespace {

namespace netlink = hostnic::netlink;
using hostnic::elf::next_function;

bool is_ours(int fd) {
  return __builtin_expect(hostnic::may_be_known(fd), 0) && netlink::is_socket(fd);
}

}  // namespace

// The name in C++ differs, so that libc's declaration need not be repeated.
#define HOSTNIC_NETLINK_HOOK(result, name, parameters)                                        \
  extern "C"                                                                                  \
      [[gnu::visibility("default")]] result hostnic_netlink_##name parameters __asm__(#name); \
  static std::atomic<result(*) parameters> next_##name;                                       \
  result hostnic_netlink_##name parameters

#define NEXT(name) next_function(next_##name, #name)

HOSTNIC_NETLINK_HOOK(int, socket, (int domain, int type, int protocol)) {
  if (__builtin_expect(domain == AF_NETLINK && protocol == NETLINK_RDMA, 0)) {
    const int fd = netlink::open_socket(type);
    if (fd != -2) return fd;
  }
  return NEXT(socket)(domain, type, protocol);
}

HOSTNIC_NETLINK_HOOK(int, bind, (int fd, const sockaddr* address, socklen_t length)) {
  if (is_ours(fd)) return netlink::bind_socket(fd, address, length);
  return NEXT(bind)(fd, address, length);
}

HOSTNIC_NETLINK_HOOK(int, getsockname, (int fd, sockaddr* address, socklen_t* length)) {
  if (is_ours(fd)) return netlink::socket_name(fd, address, length);
  return NEXT(getsockname)(fd, address, length);
}

HOSTNIC_NETLINK_HOOK(int, setsockopt,
                     (int fd, int level, int option, const void* value, socklen_t length)) {
  if (level == SOL_NETLINK && is_ours(fd)) return netlink::set_option(fd, option, value, length);
  return NEXT(setsockopt)(fd, level, option, value, length);
}

HOSTNIC_NETLINK_HOOK(ssize_t, send, (int fd, const void* bytes, size_t size, int flags)) {
  const ssize_t sent = NEXT(send)(fd, bytes, size, flags);
  if (is_ours(fd)) netlink::serve(fd);
  return sent;
}

HOSTNIC_NETLINK_HOOK(ssize_t, sendto,
                     (int fd, const void* bytes, size_t size, int flags, const sockaddr* to,
                      socklen_t length)) {
  const ssize_t sent = NEXT(sendto)(fd, bytes, size, flags, to, length);
  if (is_ours(fd)) netlink::serve(fd);
  return sent;
}

HOSTNIC_NETLINK_HOOK(ssize_t, sendmsg, (int fd, const msghdr* message, int flags)) {
  const ssize_t sent = NEXT(sendmsg)(fd, message, flags);
  if (is_ours(fd)) netlink::serve(fd);
  return sent;
}

HOSTNIC_NETLINK_HOOK(ssize_t, recv, (int fd, void* bytes, size_t size, int flags)) {
  const bool ours = is_ours(fd);
  if (ours) netlink::serve(fd);
  const ssize_t got = NEXT(recv)(fd, bytes, size, flags);
  if (ours) netlink::serve(fd);
  return got;
}

HOSTNIC_NETLINK_HOOK(ssize_t, recvfrom,
                     (int fd, void* bytes, size_t size, int flags, sockaddr* from,
                      socklen_t* length)) {
  const bool ours = is_ours(fd);
  if (ours) netlink::serve(fd);
  const socklen_t room = ours && length != nullptr ? *length : 0;
  const ssize_t got = NEXT(recvfrom)(fd, bytes, size, flags, from, length);
  if (!ours) return got;
  if (got >= 0 && from != nullptr && length != nullptr) *length = netlink::put_sender(from, room);
  netlink::serve(fd);
  return got;
}

HOSTNIC_NETLINK_HOOK(ssize_t, recvmsg, (int fd, msghdr* message, int flags)) {
  const bool ours = is_ours(fd);
  if (ours) netlink::serve(fd);
  const socklen_t room = ours ? message->msg_namelen : 0;
  const ssize_t got = NEXT(recvmsg)(fd, message, flags);
  if (!ours) return got;
  if (got >= 0 && message->msg_name != nullptr)
    message->msg_namelen = netlink::put_sender(message->msg_name, room);
  netlink::serve(fd);
  return got;
}

// These are what _FORTIFY_SOURCE makes of the two above it.
HOSTNIC_NETLINK_HOOK(ssize_t, __recv_chk,
                     (int fd, void* bytes, size_t size, size_t room, int flags)) {
  const bool ours = is_ours(fd);
  if (ours) netlink::serve(fd);
  const ssize_t got = NEXT(__recv_chk)(fd, bytes, size, room, flags);
  if (ours) netlink::serve(fd);
  return got;
}

HOSTNIC_NETLINK_HOOK(ssize_t, __recvfrom_chk,
                     (int fd, void* bytes, size_t size, size_t bytes_room, int flags,
                      sockaddr* from, socklen_t* length)) {
  const bool ours = is_ours(fd);
  if (ours) netlink::serve(fd);
  const socklen_t room = ours && length != nullptr ? *length : 0;
  const ssize_t got = NEXT(__recvfrom_chk)(fd, bytes, size, bytes_room, flags, from, length);
  if (!ours) return got;
  if (got >= 0 && from != nullptr && length != nullptr) *length = netlink::put_sender(from, room);
  netlink::serve(fd);
  return got;
}
