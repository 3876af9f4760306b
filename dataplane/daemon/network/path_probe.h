// SPDX-License-Identifier: BSD-3-Clause
// Asks the kernel's network about a port of a host: what answers is not the host's programs, but
// its kernel, or nobody. Needs no privilege and waits for nothing. One thread at a time.
#pragma once

#include <cstdint>

#include "protocol/gid.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class PathProbe {
 public:
  enum class Kind : uint8_t {
    kDatagram,   // an empty one; ICMP refuses it, but Linux says so once a second and host only
    kHandshake,  // TCP's, which is refused each time
  };
  // A port that nobody serves (RFC 863, discard): a host that is up refuses it.
  static constexpr uint16_t kDiscardPort = 9;

  // Begins, from an own address; the interface is that of link-local ones.
  void send(Kind kind, const Gid& own, const Gid& destination, uint32_t interface_index,
            uint16_t port);
  // What has come back until now, as errno: ECONNREFUSED (nobody listens on the port),
  // EHOSTUNREACH (no such host, or a firewall that says so), ENETUNREACH (no way), EPERM (a
  // firewall here), EISCONN (somebody does serve the port); 0: nothing.
  int error();

 private:
  UniqueFd socket_;
  Kind kind_ = Kind::kDatagram;
  int error_ = 0;
};

}  // namespace hostnic
