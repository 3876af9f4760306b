// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/netlink/kernel_answers.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <algorithm>

#include "protocol/nldev/message.h"
#include "protocol/nldev/request.h"

namespace hostnic::netlink {

Whose whose(std::span<const std::byte> datagram, uint32_t first_index) {
  const auto message = nldev::next_message(datagram);
  if (!message) return Whose::kKernels;
  const auto request = nldev::parse_request(*message);
  if (!request || request->client != RDMA_NL_NLDEV) return Whose::kKernels;
  if (request->device) return *request->device >= first_index ? Whose::kOurs : Whose::kKernels;
  if (request->lists) return Whose::kBoths;
  // The device of rdma_cm is the kernel's where there is one: programs find it by its number.
  return Whose::kKernels;
}

uint32_t index_behind(const std::vector<Bytes>& answers) {
  uint32_t behind = 0;
  for (const Bytes& each : answers) {
    std::span<const std::byte> rest(each);
    while (const auto message = nldev::next_message(rest)) {
      if (message->type < NLMSG_MIN_TYPE) continue;
      auto attributes = message->payload;
      while (const auto attribute = nldev::next_attribute(attributes)) {
        if (attribute->type != RDMA_NLDEV_ATTR_DEV_INDEX) continue;
        if (const auto index = attribute->u32()) behind = std::max(behind, *index + 1);
      }
    }
  }
  return behind;
}

std::vector<Bytes> without_end(std::vector<Bytes> answers) {
  for (Bytes& each : answers) {
    std::span<const std::byte> rest(each);
    while (const auto message = nldev::next_message(rest)) {
      if (message->type != NLMSG_DONE) continue;
      each.resize(static_cast<size_t>(message->whole.data() - each.data()));
      break;
    }
  }
  std::erase_if(answers, [](const Bytes& each) { return each.empty(); });
  return answers;
}

Bytes device_list_request() {
  Bytes request;
  {
    // It writes the length at its end.
    const nldev::MessageWriter writer(request,
                                      {.type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET),
                                       .flags = NLM_F_REQUEST | NLM_F_DUMP});
  }
  return request;
}

}  // namespace hostnic::netlink
