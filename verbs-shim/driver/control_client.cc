#include "verbs-shim/driver/control_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace hostnic::driver {
namespace {

using memory::UniqueFd;

Unexpected<ContextError> failure(int error, std::string message) {
  return Unexpected(ContextError{error, std::move(message)});
}

Unexpected<ContextError> gone() {
  return failure(EIO, "hostnicd closed the connection: see its log");
}

bool send_request(int socket, const ControlRequest& request, std::span<const std::byte> payload,
                  std::span<const int> fds) {
  iovec parts[2] = {{const_cast<ControlRequest*>(&request), sizeof(request)},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxControlFds)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

void collect_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

bool receive_reply(int socket, ControlReply& reply, ControlAnswer& answer) {
  answer.payload.resize(kMaxControlBytes);
  iovec parts[2] = {{&reply, sizeof(reply)}, {answer.payload.data(), answer.payload.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxControlFds)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < static_cast<ssize_t>(sizeof(reply))) return false;
  answer.payload.resize(static_cast<size_t>(received) - sizeof(reply));
  collect_fds(message, answer.fds);
  return true;
}

}  // namespace

std::string control_socket_path() {
  if (const char* path = getenv("HOSTNIC_SOCKET"); path != nullptr && *path != '\0') return path;
  if (const char* runtime = getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0') {
    return std::string(runtime) + "/hostnic/hostnicd.sock";
  }
  return "/run/hostnic/hostnicd.sock";
}

Expected<ControlClient, ContextError> ControlClient::connect() {
  const std::string path = control_socket_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return failure(ENAMETOOLONG, "hostnicd's socket " + path +
                                     ": path too long; set HOSTNIC_SOCKET to a shorter one");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failure(errno, std::string("socket: ") + strerror(errno));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    return failure(error, "no hostnicd on " + path + ": " + strerror(error) +
                              "; start hostnicd, or run the program under `hostnic lab --`");
  }
  return ControlClient(std::move(socket));
}

Expected<ControlAnswer, ContextError> ControlClient::call(ControlKind kind,
                                                          std::span<const std::byte> payload,
                                                          std::span<const int> fds) {
  if (sizeof(ControlRequest) + payload.size() > kMaxControlBytes || fds.size() > kMaxControlFds) {
    return failure(E2BIG, "a request to hostnicd is too large");
  }
  ControlRequest request;
  request.kind = kind;
  request.payload_bytes = static_cast<uint32_t>(payload.size());
  ControlReply reply;
  ControlAnswer answer;
  if (!send_request(socket_.get(), request, payload, fds) ||
      !receive_reply(socket_.get(), reply, answer))
    return gone();
  if (reply.abi_version != kHostAbiVersion) {
    return failure(EPROTO, "hostnicd (build " +
                               std::string(reply.build, strnlen(reply.build, sizeof(reply.build))) +
                               ") speaks ABI version " + std::to_string(reply.abi_version) +
                               ", this library (build " + HOSTNIC_VERSION + ") version " +
                               std::to_string(kHostAbiVersion) + ": use both from one build");
  }
  if (reply.error != 0) {
    return failure(reply.error,
                   std::string(reply.message, strnlen(reply.message, sizeof(reply.message))));
  }
  answer.count = reply.count;
  return answer;
}

bool ControlClient::closed() const {
  pollfd watched{socket_.get(), POLLIN, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace hostnic::driver
