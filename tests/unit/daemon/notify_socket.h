// SPDX-License-Identifier: BSD-3-Clause
// A service manager's end of NOTIFY_SOCKET.
#pragma once

#include <gtest/gtest.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class NotifySocket {
 public:
  // Listens on the name, as systemd does, and announces it: a path, or @ and an abstract name.
  explicit NotifySocket(const std::string& name)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, name.size());
    if (name[0] == '@') address.sun_path[0] = 0;
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~NotifySocket() { unsetenv("NOTIFY_SOCKET"); }

  // The next thing that was said; empty: nothing.
  std::string heard() {
    char text[64];
    const ssize_t bytes = recv(socket_.get(), text, sizeof(text), 0);
    return bytes < 0 ? "" : std::string(text, static_cast<size_t>(bytes));
  }

 private:
  UniqueFd socket_;
};

}  // namespace hostnic
