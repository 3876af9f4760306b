// SPDX-License-Identifier: BSD-3-Clause
// The few requests of rtnetlink that make the network of a lab's hosts: interfaces, addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"

namespace hostnic::cli {

// Speaks to the network namespace in which it was opened, wherever the process goes afterwards.
// Errors are one line that says what was wanted and why the kernel refused.
class Netlink {
 public:
  using Result = Expected<void, std::string>;

  static Expected<Netlink, std::string> open();

  Result add_bridge(const std::string& name);
  // Makes `name` here and its other end, `peer`, in another network namespace.
  Result add_veth(const std::string& name, const std::string& peer, int peer_namespace,
                  uint32_t mtu_bytes);
  // Puts an interface on a bridge.
  Result join(const std::string& name, const std::string& bridge);
  Result add_address(const std::string& name, Ipv4Address address, uint32_t prefix_length);
  Result set_up(const std::string& name);

 private:
  explicit Netlink(UniqueFd socket) : socket_(std::move(socket)) {}
  Expected<uint32_t, std::string> index_of(const std::string& name);
  // Sends a request and awaits the answer to it; `what` is named in the error.
  Result request(const std::vector<char>& message, const std::string& what);

  UniqueFd socket_;
};

}  // namespace hostnic::cli
