// SPDX-License-Identifier: BSD-3-Clause
// --addresses: a network from which NICs or hosts get their addresses, the first, second, ...
#pragma once

#include <cstdint>
#include <string>

#include "protocol/expected.h"
#include "protocol/types.h"

namespace hostnic::config {

struct Network {
  Ipv4Address base{};
  uint32_t prefix_length = 0;

  Ipv4Address address(uint32_t number) const { return Ipv4Address{raw(base) + number}; }
};

// Parses "10.77.0.0/24"; there must be room for `count` addresses. An error is one line that begins
// with the option's name.
Expected<Network, std::string> parse_network(const std::string& text, size_t count);

}  // namespace hostnic::config
