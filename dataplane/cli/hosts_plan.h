// SPDX-License-Identifier: BSD-3-Clause
// What `hostnic lab --hosts` is asked for: read from its options, and checked before anything is
// made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/cli/lab.h"
#include "protocol/expected.h"
#include "protocol/types.h"

namespace hostnic::cli {

enum class HostsPort { kUdp, kAfPacket, kWire };

// The interface that a host has.
inline constexpr const char* kHostInterface = "eth0";

struct HostPlan {
  std::string name;  // host1, host2, ...
  Ipv4Address address{};
  // The arguments of its hostnicd, or what one hostnicd for all gets for it: all but paths.
  std::vector<std::string> daemon_arguments;
};

struct HostsPlan {
  std::string device_name = "hnic0";  // of each host's NIC, in the host
  HostsPort port = HostsPort::kUdp;
  uint32_t mtu_bytes = 1500;  // of the interfaces
  uint32_t prefix_length = 24;
  std::vector<HostPlan> hosts;
  std::vector<std::string> common_arguments;  // of every hostnicd
};

// An error is one line that says what can be done.
Expected<HostsPlan, std::string> plan_hosts(const LabOptions& options);

// The value of a host in its list of names: "host2" or "2"; -1: there is none.
int host_number(const std::string& word, size_t hosts);

}  // namespace hostnic::cli
