// SPDX-License-Identifier: BSD-3-Clause
// The GID table of an open device, which changes when addresses of hostnicd's machine come and go.
#pragma once

#include <algorithm>
#include <mutex>

#include "protocol/hostif/control_message.h"

namespace hostnic::runtime {

class LiveGids {
 public:
  // Takes the table that hostnicd tells of now. Any thread.
  void set(const DeviceInfo& now) {
    const std::lock_guard lock(mutex_);
    count_ = now.gid_count;
    std::ranges::copy(now.gids, gids_);
    known_ = true;
  }
  // A device as it was when it was opened, with the table of now. Any thread.
  DeviceInfo on(const DeviceInfo& opened) const {
    DeviceInfo device = opened;
    if (abandoned_) return device;
    const std::lock_guard lock(mutex_);
    if (!known_) return device;
    device.gid_count = count_;
    std::ranges::copy(gids_, device.gids);
    return device;
  }
  // Called in a forked child, where the mutex may be a lost thread's: the table is the one of when
  // the device was opened.
  void abandon_after_fork() { abandoned_ = true; }

 private:
  mutable std::mutex mutex_;
  bool known_ = false, abandoned_ = false;
  uint32_t count_ = 0;
  GidEntry gids_[kMaxGids];
};

}  // namespace hostnic::runtime
