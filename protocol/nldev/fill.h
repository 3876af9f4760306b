// SPDX-License-Identifier: BSD-3-Clause
// Devices and objects as attributes of messages, those that the kernel's device netlink has.
#pragma once

#include "protocol/nldev/message.h"
#include "protocol/nldev/objects.h"

namespace hostnic::nldev {

// The one port that a device has.
inline constexpr uint32_t kPort = 1;

// Index and name, which each message begins with.
void fill_handle(MessageWriter& message, const Device& device);
void fill_device(MessageWriter& message, const Device& device);
void fill_port(MessageWriter& message, const Device& device);

void fill(MessageWriter& message, const Qp& qp);
void fill(MessageWriter& message, const Cq& cq);
void fill(MessageWriter& message, const Pd& pd);
void fill(MessageWriter& message, const Mr& mr);
void fill(MessageWriter& message, const Srq& srq);
void fill(MessageWriter& message, const OpenContext& context);
void fill(MessageWriter& message, const CmId& id);

// An entry of the table that `rdma res` shows, and of a port's counters.
void fill_count(MessageWriter& message, const char* name, uint64_t count);
void fill_counter(MessageWriter& message, const std::string& name, uint64_t value);

}  // namespace hostnic::nldev
