// SPDX-License-Identifier: BSD-3-Clause
// The transports, for all that names one: configuration, what a NIC is told to speak with a host,
// queue pairs in the NIC and in the driver. Its values are in the segment and, but for kUnreliable,
// in questions to hosts (protocol/cm/peer.h).
#pragma once

#include <cstdint>

namespace hostnic {

enum class Transport : uint8_t {
  kHostnic,     // the native one (docs/transport.md), of RC
  kRoce,        // the standard's RC (docs/roce.md)
  kAuto,        // which of the two is found out for each host; never a queue pair's
  kUnreliable,  // UC and UD; never configured
  kMrc,         // Multipath Reliable Connection (docs/mrc.md), of RC
};

// As configuration and `show nic` have it.
constexpr const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::kHostnic:
      return "hostnic";
    case Transport::kRoce:
      return "roce";
    case Transport::kAuto:
      return "auto";
    case Transport::kMrc:
      return "mrc";
    case Transport::kUnreliable:
      break;
  }
  return "unreliable";
}

}  // namespace hostnic
