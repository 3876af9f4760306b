// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/sysfs_export.h"

#include <string.h>

#include "dataplane/daemon/control/command.h"
#include "protocol/hostif/sysfs_files.h"

namespace hostnic {

SysfsExport::SysfsExport(Daemon& daemon, const std::string& directory) : daemon_(daemon) {
  if (directory.empty()) return;
  for (const NicInstance& instance : daemon.nics())
    nics_.push_back({&instance, directory + "/infiniband/" + instance.plan.settings.name, {}, {}});
}

void SysfsExport::refresh(bool now) {
  if (nics_.empty()) return;
  const auto time = std::chrono::steady_clock::now();
  if (!now && time < next_) return;
  next_ = time + std::chrono::milliseconds(kIntervalMs);
  for (Exported& nic : nics_) refresh(nic);
}

void SysfsExport::refresh(Exported& nic) {
  const std::string& name = nic.instance->plan.settings.name;
  DeviceInfo info = daemon_.device_info(*nic.instance);
  for (const View& view : daemon_.plan().views)
    if (view.nic_name == name) info = view.shown(info);
  // Padding that differs makes us write again, no more.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  if (memcmp(&info, &nic.info, sizeof info) != 0) write_device_files(nic.directory, info);
  nic.info = info;
  std::string counters = run_command(daemon_, Asker{}, "show counters " + name + " all").text;
  if (counters == nic.counters) return;
  write_counter_files(nic.directory, name, counters);
  nic.counters = std::move(counters);
}

}  // namespace hostnic
