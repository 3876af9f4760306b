// SPDX-License-Identifier: BSD-3-Clause
// What a program asks hostnicd without opening a device. For any thread; each call is a connection.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/control_message.h"
#include "verbs-shim/runtime/context_error.h"

namespace hostnic::runtime {

// The devices of the hostnicd behind default_socket_path(), filtered by $HOSTNIC_DEVICE
// (comma-separated names; unset: all).
Expected<std::vector<DeviceInfo>, ContextError> list_devices();

// The text that `show counters DEVICE all` answers; empty when nobody answers.
std::string counters_text(std::string_view device);

// What hostnicd answers to a datagram of RDMA netlink: messages, and why something was refused
// (nldev::Refusal).
struct NetlinkAnswer {
  std::vector<std::byte> messages;
  uint32_t refused = 0;
};
// The error is an errno value; EIO: nobody answers.
Expected<NetlinkAnswer, int> ask_netlink(const RdmaNetlinkRequest& as,
                                         std::span<const std::byte> datagram);

}  // namespace hostnic::runtime
