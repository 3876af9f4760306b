// SPDX-License-Identifier: BSD-3-Clause
// A port to a network outside this process, as hostnicd looks at it: what the kernel or the driver
// says of its link, and how the lcore learns that packets have arrived.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/nic/port.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/wire/ethernet.h"

namespace hostnic {

class NetworkPort : public Port {
 public:
  virtual wire::MacAddress mac() const = 0;
  // The largest IP packet that leaves in one piece, in bytes.
  virtual uint32_t ip_mtu_bytes() const = 0;
  virtual bool link_up() const = 0;
  virtual uint32_t speed_mbps() const = 0;  // 0: unknown
  // Descriptors that become readable when packets arrive; none: unknown.
  virtual std::span<const UniqueFd> sockets() const = 0;
  // Whether the sockets surely become readable.
  virtual bool announces_packets() const = 0;
};

}  // namespace hostnic
