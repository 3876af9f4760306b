// SPDX-License-Identifier: BSD-3-Clause
// The socket addresses in a program's rdma_cm commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/expected.h"
#include "protocol/gid.h"

namespace hostnic {

// What a program names by a socket address.
struct CmAddress {
  bool given = false;  // a family was named
  // The address, where :: and ::1 stand as 0.0.0.0 and 127.0.0.1, which mean this host as well, and
  // as it was named.
  Gid address = gid_of(Ipv4Address{}), named = address;
  uint16_t port = 0;
  bool ipv6 = false;
  bool nobodys = false;  // no host can have the address
};

// Parses an address of either family. An error is an errno value.
Expected<CmAddress, int> parse_cm_address(std::span<const std::byte> bytes);

}  // namespace hostnic
