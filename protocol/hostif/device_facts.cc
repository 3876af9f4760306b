// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/device_facts.h"

#include <algorithm>
#include <cstring>

namespace hostnic {
namespace {

// Bits of enum ibv_device_cap_flags.
constexpr uint32_t kPortActiveEvent = 1u << 10, kSysImageGuid = 1u << 11, kRnrNakGen = 1u << 12;
constexpr uint32_t kMemWindow = 1u << 17, kMemMgtExtensions = 1u << 21, kMemWindowType2b = 1u << 24;

constexpr uint8_t kWidth1x = 1, kWidth4x = 2;
constexpr uint8_t kSpeedSdr = 1, kSpeedQdr = 4, kSpeedEdr = 32, kSpeedHdr = 64, kSpeedNdr = 128;
constexpr LinkRate kLinkRates[] = {
    {kWidth1x, kSpeedSdr, "2.5 Gb/sec (1X SDR)", 2'500},
    {kWidth4x, kSpeedSdr, "10 Gb/sec (4X SDR)", 10'000},
    {kWidth1x, kSpeedEdr, "25 Gb/sec (1X EDR)", 25'000},
    {kWidth4x, kSpeedQdr, "40 Gb/sec (4X QDR)", 40'000},
    {kWidth1x, kSpeedHdr, "50 Gb/sec (1X HDR)", 50'000},
    {kWidth4x, kSpeedEdr, "100 Gb/sec (4X EDR)", 100'000},
    {kWidth4x, kSpeedHdr, "200 Gb/sec (4X HDR)", 200'000},
    {kWidth4x, kSpeedNdr, "400 Gb/sec (4X NDR)", 400'000},
};

}  // namespace

uint32_t device_capabilities(const DeviceInfo& info) {
  uint32_t can = kSysImageGuid | kRnrNakGen | kPortActiveEvent;
  if (!info.offer.lacks(kMissingWindows)) can |= kMemWindow | kMemWindowType2b;
  if (info.offer.has_mem_mgt_extensions != 0) can |= kMemMgtExtensions;
  return can;
}

const LinkRate& link_rate(uint32_t speed_mbps) {
  const LinkRate* best = &kLinkRates[0];
  for (const LinkRate& rate : kLinkRates) {
    if (rate.rate_mbps <= speed_mbps) best = &rate;
  }
  return *best;
}

std::string netdev_name(const DeviceInfo& info) {
  return {info.netdev, strnlen(info.netdev, sizeof info.netdev)};
}

const GidEntry* gid_entry_at(const DeviceInfo& device, uint32_t index) {
  if (index >= std::min(device.gid_count, kMaxGids)) return nullptr;
  const GidEntry& entry = device.gids[index];
  return gid_in(entry.gid) == Gid{} ? nullptr : &entry;
}

}  // namespace hostnic
