// SPDX-License-Identifier: BSD-3-Clause
// What a device says about itself through verbs: attributes, port, GID, P_Key. Pure functions of
// DeviceInfo.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "protocol/hostif/control_message.h"

namespace hostnic::abi {

void fill_device_attr(const DeviceInfo& info, ibv_device_attr& attr);
// Fills the first `size_bytes` of `attr`, which may be an older, smaller structure. Returns EINVAL
// when it is smaller than ibv_device_attr.
int fill_device_attr_ex(const DeviceInfo& info, ibv_device_attr_ex* attr, size_t size_bytes);
// Fills the first `size_bytes` of a port's attributes. Returns EINVAL for a port that does not
// exist.
int fill_port_attr(const DeviceInfo& info, uint32_t port, void* attr, size_t size_bytes);
// The size of the structure behind ibv_query_port@IBVERBS_1.1: all fields before port_cap_flags2.
inline constexpr size_t kLegacyPortAttrBytes = offsetof(ibv_port_attr, port_cap_flags2);

// The interface index here and now of the netdev that belongs to the NIC; 0 when it does not exist.
uint32_t netdev_index(const DeviceInfo& info);

}  // namespace hostnic::abi
