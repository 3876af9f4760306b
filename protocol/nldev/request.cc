// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/nldev/request.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <cerrno>

namespace hostnic::nldev {
namespace {

constexpr size_t kLongestType = 64;  // of a character device, with its 0

// The attribute that names an object of the kind that the operation is about; 0: none does.
uint16_t id_attribute_of(uint16_t operation) {
  switch (operation) {
    case RDMA_NLDEV_CMD_RES_QP_GET:
      return RDMA_NLDEV_ATTR_RES_LQPN;
    case RDMA_NLDEV_CMD_RES_CQ_GET:
      return RDMA_NLDEV_ATTR_RES_CQN;
    case RDMA_NLDEV_CMD_RES_MR_GET:
      return RDMA_NLDEV_ATTR_RES_MRN;
    case RDMA_NLDEV_CMD_RES_PD_GET:
      return RDMA_NLDEV_ATTR_RES_PDN;
    case RDMA_NLDEV_CMD_RES_CM_ID_GET:
      return RDMA_NLDEV_ATTR_RES_CM_IDN;
    case RDMA_NLDEV_CMD_RES_CTX_GET:
      return RDMA_NLDEV_ATTR_RES_CTXN;
    case RDMA_NLDEV_CMD_RES_SRQ_GET:
      return RDMA_NLDEV_ATTR_RES_SRQN;
    default:
      return 0;
  }
}

// Whether there are lists of what the operation is about; the others' flags mean something else.
bool can_list(const Request& request) {
  switch (request.operation) {
    case RDMA_NLDEV_CMD_GET:
    case RDMA_NLDEV_CMD_PORT_GET:
    case RDMA_NLDEV_CMD_RES_GET:
    case RDMA_NLDEV_CMD_STAT_GET:
      return true;
    default:
      return request.id_attribute != 0;
  }
}

// Takes an attribute that matters; others are left alone, as the kernel leaves them. Returns 0 or
// an errno value.
int take(const Attribute& attribute, Request& request) {
  const auto number = [&](std::optional<uint32_t>& to) {
    to = attribute.u32();
    return to ? 0 : EINVAL;
  };
  if (request.id_attribute != 0 && attribute.type == request.id_attribute)
    return number(request.id);
  switch (attribute.type) {
    case RDMA_NLDEV_ATTR_DEV_INDEX:
      return number(request.device);
    case RDMA_NLDEV_ATTR_PORT_INDEX:
      return number(request.port);
    case RDMA_NLDEV_ATTR_STAT_RES:
      return number(request.statistics_of);
    case RDMA_NLDEV_ATTR_STAT_MODE:
      request.asks_for_mode = true;
      return attribute.u32() ? 0 : EINVAL;
    case RDMA_NLDEV_ATTR_CHARDEV_TYPE:
      if (attribute.text().empty() || attribute.text().size() >= kLongestType) return EINVAL;
      request.character_device = attribute.text();
      return 0;
    default:
      return 0;
  }
}

}  // namespace

Expected<Request, int> parse_request(const Message& message) {
  Request request;
  request.client = RDMA_NL_GET_CLIENT(message.type);
  request.operation = RDMA_NL_GET_OP(message.type);
  if (request.client != RDMA_NL_NLDEV) return request;
  request.id_attribute = id_attribute_of(request.operation);
  request.lists = (message.flags & NLM_F_DUMP) == NLM_F_DUMP && can_list(request);
  auto rest = message.payload;
  while (const auto attribute = next_attribute(rest))
    if (const int error = take(*attribute, request); error != 0) return Unexpected(error);
  return request;
}

}  // namespace hostnic::nldev
