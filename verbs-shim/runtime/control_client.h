// SPDX-License-Identifier: BSD-3-Clause
// The client's end of hostnicd's control socket (protocol/hostif/control_message.h): one request,
// one reply.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/control_socket.h"
#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/runtime/context_error.h"

namespace hostnic::runtime {

struct ControlAnswer {
  uint32_t count = 0;
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;

  // The payload's first bytes as a T; a default T when the payload is shorter.
  template <class T>
  T as(size_t index = 0) const {
    T value{};
    if (payload.size() >= (index + 1) * sizeof(T))
      std::memcpy(&value, payload.data() + index * sizeof(T), sizeof(T));
    return value;
  }
};

class ControlClient {
 public:
  // Connects to default_socket_path(). The error names the socket and the remedy.
  static Expected<ControlClient, ContextError> connect();
  ControlClient(ControlClient&&) = default;

  // May be called by any thread, one at a time. The error is hostnicd's own line, or says that
  // hostnicd is gone (EIO).
  Expected<ControlAnswer, ContextError> call(ControlKind kind, std::span<const std::byte> payload,
                                             std::span<const int> fds);
  // Makes a call that is answered by success or an error only: returns 0 or an errno value. This
  // allocates nothing.
  int tell(ControlKind kind, std::span<const std::byte> payload);
  // From now on an answer may take as long as it takes; until then 60 s (ETIMEDOUT).
  void wait_without_limit();
  // Whether hostnicd has closed the connection.
  bool closed() const;
  void close() { socket_.reset(); }

 private:
  explicit ControlClient(OwnFd socket) : socket_(std::move(socket)) {}
  OwnFd socket_;
};

}  // namespace hostnic::runtime
