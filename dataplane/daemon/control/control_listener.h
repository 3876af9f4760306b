// SPDX-License-Identifier: BSD-3-Clause
// Making the listening socket, without stealing a living hostnicd's.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// The rights to connect, beside the owner's.
struct SocketAccess {
  uint32_t mode = 0600;
  std::string group = {};  // name or number; empty: the owner's
};

// The listening socket. The file of one that was made here is removed, and its lock released, when
// this is destroyed.
class ControlListener {
 public:
  // Makes the socket, and its directory if it is missing: 0700, or 0711 where others may connect. A
  // socket that nobody listens on is replaced; that is decided under a lock file beside it, so that
  // two starting hostnicds don't both decide so. An error is one line.
  static Expected<ControlListener, std::string> create(const std::string& path,
                                                       const SocketAccess& access = {});
  // Takes a listening socket that the service manager has made, and keeps: its rights and its file
  // are the manager's business. An error is one line.
  static Expected<ControlListener, std::string> adopt(UniqueFd socket);
  ControlListener(ControlListener&&) noexcept = default;
  ControlListener& operator=(ControlListener&&) = delete;
  ~ControlListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  ControlListener() = default;
  UniqueFd lock_, socket_;  // no lock: the socket is the service manager's
  std::string path_;
};

}  // namespace hostnic
