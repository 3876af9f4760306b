// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/control_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdlib>
#include <cstring>

namespace hostnic {
namespace {

bool send_datagram(int fd, int flags, std::span<const std::byte> header,
                   std::span<const std::byte> payload, std::span<const int> fds) {
  iovec parts[2] = {{const_cast<std::byte*>(header.data()), header.size()},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxControlFds * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(fd, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

void take_descriptors(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int passed = -1;
      std::memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(passed);
    }
  }
}

}  // namespace

std::string default_socket_path() {
  if (const char* path = getenv("HOSTNIC_SOCKET"); path != nullptr && *path != 0) return path;
  if (const char* dir = getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != 0)
    return std::string(dir) + "/hostnic/hostnicd.sock";
  return "/run/hostnic/hostnicd.sock";
}

std::optional<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

namespace {

ReceiveResult receive(int fd, int flags, std::span<char> control, ControlDatagram& out) {
  out.bytes.resize(kMaxControlBytes);
  out.fds.clear();
  iovec part{out.bytes.data(), out.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC);
  if (received < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? ReceiveResult::kAgain
                                                                     : ReceiveResult::kClosed;
  take_descriptors(message, out.fds);
  // An empty datagram looks like the end; no message is empty.
  if (received == 0) return ReceiveResult::kClosed;
  out.bytes.resize(static_cast<size_t>(received));
  const bool descriptors_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  out.had_descriptors = !out.fds.empty() || descriptors_cut;
  out.cut = (message.msg_flags & MSG_TRUNC) != 0 || (descriptors_cut && !control.empty()) ||
            out.fds.size() > kMaxControlFds;
  return ReceiveResult::kOk;
}

}  // namespace

ReceiveResult receive_datagram(int fd, int flags, ControlDatagram& out) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  return receive(fd, flags, control, out);
}

ReceiveResult receive_bytes(int fd, int flags, ControlDatagram& out) {
  return receive(fd, flags, {}, out);
}

bool send_reply(int fd, int flags, ControlReply reply, std::span<const std::byte> payload,
                std::span<const int> fds) {
  reply.payload_bytes = static_cast<uint32_t>(payload.size());
  return send_datagram(fd, flags, std::as_bytes(std::span(&reply, 1)), payload, fds);
}

bool send_request(int fd, ControlKind kind, std::span<const std::byte> payload,
                  std::span<const int> fds) {
  ControlRequest request;
  request.kind = kind;
  request.payload_bytes = static_cast<uint32_t>(payload.size());
  return send_datagram(fd, 0, std::as_bytes(std::span(&request, 1)), payload, fds);
}

void limit_waiting(int fd, uint32_t seconds) {
  const timeval limit{static_cast<time_t>(seconds), 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

std::optional<ReceivedReply> receive_reply(int fd) {
  ControlDatagram datagram;
  ReceiveResult result = ReceiveResult::kAgain;
  do {
    errno = 0;
    result = receive_datagram(fd, 0, datagram);
    if (result == ReceiveResult::kAgain && errno != EINTR) {
      errno = ETIMEDOUT;
      return std::nullopt;
    }
  } while (result == ReceiveResult::kAgain);
  errno = 0;
  ReceivedReply reply;
  if (result != ReceiveResult::kOk || datagram.bytes.size() < sizeof(reply.header))
    return std::nullopt;
  std::memcpy(&reply.header, datagram.bytes.data(), sizeof(reply.header));
  reply.header.build[sizeof(reply.header.build) - 1] = 0;
  reply.header.message[sizeof(reply.header.message) - 1] = 0;
  reply.payload.assign(datagram.bytes.begin() + sizeof(reply.header), datagram.bytes.end());
  reply.fds = std::move(datagram.fds);
  return reply;
}

}  // namespace hostnic
