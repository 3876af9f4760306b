// SPDX-License-Identifier: BSD-3-Clause
// Where the paths lead that programs build themselves, instead of using ibv_device::ibdev_path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "protocol/hostif/control_message.h"
#include "verbs-shim/hooks/sysfs_tree.h"

namespace hostnic::hooks {

// The rules, for a tree that shows the devices in `names`:
//   /sys/class/infiniband                    -> the tree, which links real adapters too
//   /sys/class/infiniband/hnicN/...          -> the tree
//   /sys/class/infiniband_verbs                -> the tree, without an abi_version of ours, so that
//                                               the real library looks no further
//   /sys/class/infiniband_verbs/uverbs_hnicN/...  -> the tree
//   /dev/infiniband                           -> the tree, for listings
//   /dev/infiniband/uverbsN                   -> /dev/null, where no adapter has the name: scripts
//                                               look whether it is there; opening it is refused
//   /dev/infiniband/uverbs_hnicN             -> /dev/null, a character device that all may open:
//                                               UCX looks for one, nobody reads it
//   /sys/class/misc/rdma_cm/...              -> the tree
//   /dev/infiniband/rdma_cm                  -> /dev/null as well; opening it is another matter
//                                               (verbs-shim/cm/device.h)
// Everything else stays. Empty: not ours.
std::string map_path(std::string_view path, const SysfsTree& tree,
                     const std::vector<std::string>& names);

// False for nearly every path, without a lock or an allocation. Inline, because hooks ask before
// anything else of this library may run.
inline bool may_be_mapped(const char* path) {
  if (path == nullptr || path[0] != '/') return false;
  const char* prefix = "/dev/infiniband";
  // For "/sys/class/", the only prefix that two kinds of paths share, the next letter decides.
  constexpr int kSysClassBytes = 11;
  if (path[1] == 's') {
    prefix = "/sys/class/infiniband";
    for (int i = 0; i < kSysClassBytes; ++i)
      if (path[i] != prefix[i]) return false;
    if (path[kSysClassBytes] == 'm') prefix = "/sys/class/misc/rdma_cm";
  }
  while (*prefix != '\0' && *path == *prefix) {
    ++path;
    ++prefix;
  }
  return *prefix == '\0';
}

// The process's tree, made at first use, with these devices shown in it.
const SysfsTree& show_in_sysfs(const std::vector<DeviceInfo>& devices);

// Maps a path that may_be_mapped(), for path hooks: asks hostnicd for devices if nobody did yet.
// The result is empty if the path is not ours. For any thread.
std::string map_path(const char* path);

// Whether a path, which may_be_mapped(), is a uverbsN of ours, which nobody can open: then errno is
// ENXIO, and a line on stderr says what to do instead. For any thread.
bool refuse_verbs_device(const char* path) noexcept;

// The path by which a program knows a place in the tree; empty: it is not in the tree.
std::string unmap_path(std::string_view path);

// These are for the fork handlers: a child must find the tree's lock free.
void lock_tree_across_fork();
void unlock_tree_after_fork();

}  // namespace hostnic::hooks
