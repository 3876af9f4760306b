// SPDX-License-Identifier: BSD-3-Clause
// What a program asks of RDMA netlink (rdma/rdma_netlink.h), read from untrusted bytes. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/expected.h"
#include "protocol/nldev/message.h"

namespace hostnic::nldev {

struct Request {
  uint16_t client = 0;     // RDMA_NL_NLDEV, or another that there is nothing of here
  uint16_t operation = 0;  // enum rdma_nldev_command
  bool lists = false;      // NLM_F_DUMP
  std::optional<uint32_t> device, port;
  // The object that is asked for, by the attribute that says so: RDMA_NLDEV_ATTR_RES_LQPN, ...
  uint16_t id_attribute = 0;
  std::optional<uint32_t> id;
  std::optional<uint32_t> statistics_of;  // RDMA_NLDEV_ATTR_RES_QP: counters of queue pairs
  bool asks_for_mode = false;             // how queue pairs are bound to counters
  std::string character_device;           // its type: "uverbs"
};

// The error is an errno value: EINVAL, an attribute is shorter than its type.
Expected<Request, int> parse_request(const Message& message);

}  // namespace hostnic::nldev
