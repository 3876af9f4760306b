// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/control_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "protocol/hostif/version.h"

namespace hostnic::runtime {
namespace {

// A hostnicd that lives answers within milliseconds.
constexpr uint32_t kAnswerLimitS = 60;

Unexpected<ContextError> gone() {
  if (errno == ETIMEDOUT || errno == EAGAIN)
    return failure(ETIMEDOUT, "hostnicd has not answered for " + std::to_string(kAnswerLimitS) +
                                  " s: see its log, or whether it is stopped");
  return failure(EIO, "hostnicd closed the connection: see its log");
}

}  // namespace

Expected<ControlClient, ContextError> ControlClient::connect() {
  const std::string path = default_socket_path();
  const auto address = socket_address(path);
  if (!address) {
    return failure(ENAMETOOLONG, "hostnicd's socket " + path +
                                     ": path too long; set HOSTNIC_SOCKET to a shorter one");
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failure(errno, std::string("socket: ") + strerror(errno));
  limit_waiting(socket.get(), kAnswerLimitS);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) !=
      0) {
    const int error = errno;
    return failure(error, "no hostnicd on " + path + ": " + strerror(error) +
                              "; start hostnicd, or run the program under `hostnic lab --`");
  }
  OwnFd own = OwnFd::copy_of(socket.get());
  if (!own)
    return failure(errno, std::string("no descriptor for hostnicd's socket: ") + strerror(errno));
  return ControlClient(std::move(own));
}

void ControlClient::wait_without_limit() { limit_waiting(socket_.get(), 0); }

Expected<ControlAnswer, ContextError> ControlClient::call(ControlKind kind,
                                                          std::span<const std::byte> payload,
                                                          std::span<const int> fds) {
  if (sizeof(ControlRequest) + payload.size() > kMaxControlBytes || fds.size() > kMaxControlFds) {
    return failure(E2BIG, "a request to hostnicd is too large");
  }
  if (!send_request(socket_.get(), kind, payload, fds)) return gone();
  auto reply = receive_reply(socket_.get());
  if (!reply) return gone();
  const ControlReply& header = reply->header;
  if (header.abi_version != kHostAbiVersion) {
    return failure(EPROTO, std::string("hostnicd (build ") + header.build +
                               ") speaks ABI version " + std::to_string(header.abi_version) +
                               ", this library (build " + HOSTNIC_VERSION + ") version " +
                               std::to_string(kHostAbiVersion) + ": use both from one build");
  }
  if (header.error != 0) return failure(header.error, header.message);
  return ControlAnswer{header.count, std::move(reply->payload), std::move(reply->fds)};
}

int ControlClient::tell(ControlKind kind, std::span<const std::byte> payload) {
  if (!send_request(socket_.get(), kind, payload, {})) return EIO;
  ControlReply reply;
  ssize_t received = -1;
  do {
    received = recv(socket_.get(), &reply, sizeof(reply), 0);
  } while (received < 0 && errno == EINTR);
  return received == sizeof(reply) ? reply.error : EIO;
}

bool ControlClient::closed() const {
  pollfd watched{socket_.get(), POLLIN, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace hostnic::runtime
