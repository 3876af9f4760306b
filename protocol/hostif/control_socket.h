// SPDX-License-Identifier: BSD-3-Clause
// Both ends of the control socket: its address, and its messages (control_message.h) with the
// descriptors they carry. Any thread, one at a time for each socket.
#pragma once

#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocol/hostif/control_message.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// Where hostnicd listens and where its clients look: $HOSTNIC_SOCKET, else
// $XDG_RUNTIME_DIR/hostnic/hostnicd.sock, else /run/hostnic/hostnicd.sock.
std::string default_socket_path();
// The address of a socket; nullopt: the path is longer than an address can be.
std::optional<sockaddr_un> socket_address(const std::string& path);

// ---- hostnicd's end

// One received datagram.
struct ControlDatagram {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
  bool cut = false;  // longer, or with more descriptors, than allowed
  bool had_descriptors = false;
};
// How many descriptors a datagram may have for the kernel. All of a datagram's are taken: those for
// which there is no room the kernel would close, which the receiving thread has to wait for.
inline constexpr size_t kMostDescriptors = 253;

enum class ReceiveResult { kOk, kAgain, kClosed };
// Receives one datagram; `flags` is MSG_DONTWAIT or 0.
ReceiveResult receive_datagram(int fd, int flags, ControlDatagram& out);
// The same, but what descriptors come along are dropped, or with MSG_PEEK left where they are. To
// drop a stranger's takes as long as he likes: who can't wait peeks first, and takes what has none.
ReceiveResult receive_bytes(int fd, int flags, ControlDatagram& out);
// Sends an answer; returns false when the peer is gone, or (MSG_DONTWAIT) doesn't read. It may have
// at most kMaxControlFds descriptors.
bool send_reply(int fd, int flags, ControlReply reply, std::span<const std::byte> payload = {},
                std::span<const int> fds = {});

// ---- the client's end

struct ReceivedReply {
  ControlReply header;  // its texts end in 0
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;
};

// Sends a request; returns false, with errno set, if it was not sent. It may have at most
// kMaxControlFds descriptors.
bool send_request(int fd, ControlKind kind, std::span<const std::byte> payload,
                  std::span<const int> fds = {});
// Lets connecting, sending and receiving wait so long and no longer; 0: without limit.
void limit_waiting(int fd, uint32_t seconds);
// Waits for a reply. Returns nullopt if hostnicd has closed the connection (errno 0), or where
// there is a limit, does not answer within it (errno ETIMEDOUT).
std::optional<ReceivedReply> receive_reply(int fd);

}  // namespace hostnic
