// SPDX-License-Identifier: BSD-3-Clause
// Files of the NICs as below /sys/class/infiniband, for programs that the library is not preloaded
// into (--sysfs). They are written anew once a second, where something has changed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dataplane/daemon/daemon.h"

namespace hostnic {

class SysfsExport {
 public:
  // The files come into DIRECTORY/infiniband/NIC; without a directory there are none.
  SysfsExport(Daemon& daemon, const std::string& directory);

  bool wanted() const { return !nics_.empty(); }
  // Called by the control thread; does something when the last time is long enough ago, or `now`.
  void refresh(bool now = false);

  static constexpr int kIntervalMs = 1000;

 private:
  struct Exported {
    const NicInstance* instance = nullptr;
    std::string directory;
    DeviceInfo info{};  // as the files say
    std::string counters;
  };
  void refresh(Exported& nic);

  Daemon& daemon_;
  std::vector<Exported> nics_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace hostnic
