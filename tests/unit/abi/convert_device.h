// SPDX-License-Identifier: BSD-3-Clause
// The device whose addresses and attributes are converted.
#pragma once

#include "tests/unit/abi/gids.h"
#include "verbs-shim/abi/device_attr.h"
#include "verbs-shim/abi/limits.h"

namespace hostnic::abi {

inline constexpr uint32_t kOwnIp = 0x0a000001;  // 10.0.0.1

inline DeviceInfo device(uint32_t mtu_bytes = 4096) {
  DeviceInfo info{};
  info.ip = kOwnIp;
  set_gids(info, {hostnic::gid_of(Ipv4Address{kOwnIp})});
  info.mtu_bytes = mtu_bytes;
  info.speed_mbps = 100'000;
  info.link_up = 1;
  info.max_qps = 100;
  info.max_mrs = 200;
  return info;
}

}  // namespace hostnic::abi
