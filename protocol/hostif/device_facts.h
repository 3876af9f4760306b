// SPDX-License-Identifier: BSD-3-Clause
// What a device says of itself in verbs as well as in files, made from its description.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/hostif/control_message.h"
#include "protocol/hostif/device_offer.h"

namespace hostnic {

inline constexpr uint8_t kDevicePort = 1;  // the number of its only port
// Port capabilities: a connection manager, GIDs that are IP addresses.
inline constexpr uint32_t kPortCapabilities = 0x04010000;

// What the device can, with the verbs' values (ibv_device_attr::device_cap_flags).
uint32_t device_capabilities(const DeviceInfo& info);

struct LinkRate {
  uint8_t width;       // ibv_port_attr::active_width
  uint8_t speed;       // ibv_port_attr::active_speed
  const char* sysfs;   // "100 Gb/sec (4X EDR)"
  uint32_t rate_mbps;  // rate that width and speed amount to
};
// The fastest InfiniBand rate that is not above `speed_mbps` (the slowest there is, below it).
const LinkRate& link_rate(uint32_t speed_mbps);

// The netdev that belongs to the NIC: the one that has its address, or that its port sits on, else
// "lo", since a software port has none and some programs insist on a name.
std::string netdev_name(const DeviceInfo& info);

// The entry of a device's GID table; null where there is none.
const GidEntry* gid_entry_at(const DeviceInfo& device, uint32_t index);

}  // namespace hostnic
