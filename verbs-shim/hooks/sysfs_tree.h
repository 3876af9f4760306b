// SPDX-License-Identifier: BSD-3-Clause
// The directory that stands for the devices' corner of /sys/class: real files in a private
// temporary directory, so that most readers need no hook. Offers what programs were seen to read,
// nothing else; in particular no infiniband_verbs/uverbsN, which libibverbs would enumerate.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/hostif/control_message.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::hooks {

// The name of the device's imaginary character device: /dev/infiniband/<name>.
std::string uverbs_name(std::string_view device);

// Names of the trees' directories begin so, and end with kUniqueLetters (locked_directory.h).
inline constexpr char kTreePrefix[] = "hostnic-sysfs.";

class SysfsTree {
 public:
  // Makes the directory under `base` and removes those there that dead processes left behind. It is
  // locked (flock) as long as this process or a forked child lives. Returns an object without
  // root() if that failed.
  static SysfsTree create(const std::string& base);
  SysfsTree() = default;
  SysfsTree(SysfsTree&& other) noexcept;
  SysfsTree& operator=(SysfsTree&& other) noexcept;
  // Removes the directory, unless a fork came between: the directory belongs to the process that
  // made it.
  ~SysfsTree();

  const std::string& root() const { return root_; }
  // Writes a device's files, or refreshes those of a device that is there.
  void show(const DeviceInfo& info);
  // Writes the files of counters/ and hw_counters/, from what `show counters` says of the device.
  void show_counters(const std::string& device, const std::string& text);
  // Makes a symbolic link for what is real, so that a listing of one of these directories has it
  // too.
  void link(const std::string& directory, const std::string& name, const std::string& target);

  std::string verbs_class_directory() const { return root_ + "/infiniband_verbs"; }
  // The directory that a listing of /dev/infiniband shows.
  std::string dev_directory() const { return root_ + "/dev"; }
  std::string class_directory() const { return root_ + "/infiniband"; }
  // The directory of the rdma_cm device.
  std::string cm_directory() const { return root_ + "/misc/rdma_cm"; }
  // Whether a name of /dev/infiniband is the one by which scripts look for a device of ours
  // ("uverbs0"): no adapter of the machine's has it.
  bool has_number_name(std::string_view name) const { return number_names_.contains(name); }
  std::string device_directory(std::string_view device) const;
  std::string verbs_directory(std::string_view uverbs) const;

 private:
  std::string root_;
  std::set<std::string, std::less<>> number_names_;
  UniqueFd lock_;
  int owner_pid_ = 0;
};

// The base directory for create(): $XDG_RUNTIME_DIR, /dev/shm or /tmp, the first that is writable.
std::string sysfs_tree_base();

}  // namespace hostnic::hooks
