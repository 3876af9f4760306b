// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/host_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

// <sys/mount.h> and <linux/mount.h> exclude each other in Debian 12, and the latter alone has
// mount_attr.
constexpr unsigned long kNoSuid = 2, kNoDevices = 4, kNoExec = 8, kBind = 4096, kRecursive = 16384;
constexpr unsigned long kHarmless = kNoSuid | kNoDevices | kNoExec;

constexpr const char* kSys = "/sys";
constexpr const char* kClass = "/sys/class";
constexpr const char* kInfiniband = "/sys/class/infiniband";

int mount(const char* source, const char* target, const char* type, unsigned long flags,
          const char* options = nullptr) {
  return static_cast<int>(syscall(SYS_mount, source, target, type, flags, options));
}

// Whether the kernel has it. In a lab this program, too, has the library preloaded, which shows
// other files, and nothing can be mounted on those.
bool exists(const char* path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }

void make_read_only(const char* target) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  syscall(SYS_mount_setattr, AT_FDCWD, target, 0, &attributes, sizeof attributes);
}

Unexpected<std::string> failed(const char* target) {
  return Unexpected(fmt::format("mounting {}: {}", target, strerror(errno)));
}

// Mounts the sysfs of this network namespace, and on it what is mounted on the present one of
// cgroups, which programs ask for limits. Returns whether it could.
bool mount_sysfs() {
  constexpr const char* kCgroups = "/sys/fs/cgroup";
  const UniqueFd cgroups(static_cast<int>(syscall(
      SYS_open_tree, AT_FDCWD, kCgroups, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)));
  if (mount("sysfs", kSys, "sysfs", kHarmless) != 0) return false;
  if (cgroups)
    syscall(SYS_move_mount, cgroups.get(), "", AT_FDCWD, kCgroups, MOVE_MOUNT_F_EMPTY_PATH);
  return true;
}

std::vector<std::string> names_in(const char* path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path), closedir);
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

// Puts a directory of ours in the place of /sys/class, with all that was in there, and room for one
// more: sysfs itself lets nobody make any.
Expected<void, std::string> make_room_in_class(bool own_sysfs) {
  const UniqueFd real(
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, kClass, O_PATH | O_DIRECTORY | O_CLOEXEC)));
  const std::vector<std::string> names = names_in(kClass);
  if (!real || mount("hostnic", kClass, "tmpfs", kHarmless, "mode=0755,size=64k,nr_inodes=1k") != 0)
    return failed(kClass);
  for (const std::string& name : names) {
    if (name == "infiniband" || (name == "net" && !own_sysfs)) continue;
    const std::string from = fmt::format("/proc/self/fd/{}/{}", real.get(), name);
    const std::string to = fmt::format("{}/{}", kClass, name);
    if (mkdir(to.c_str(), 0755) == 0) mount(from.c_str(), to.c_str(), nullptr, kBind | kRecursive);
  }
  if (mkdir(kInfiniband, 0755) != 0) return failed(kInfiniband);
  return {};
}

}  // namespace

Expected<void, std::string> mount_host_files(const std::string& infiniband,
                                             const std::string& hosts) {
  const bool own_sysfs = mount_sysfs();
  const bool has_room = own_sysfs && exists(kInfiniband);
  if (!has_room) {
    if (auto made = make_room_in_class(own_sysfs); !made) return made;
  }
  if (mount(infiniband.c_str(), kInfiniband, nullptr, kBind | kRecursive) != 0)
    return failed(kInfiniband);
  make_read_only(kInfiniband);
  if (!has_room) make_read_only(kClass);
  // Names are a comfort: a machine without /etc/hosts is left as it is.
  constexpr const char* kHosts = "/etc/hosts";
  if (mount(hosts.c_str(), kHosts, nullptr, kBind) == 0) make_read_only(kHosts);
  return {};
}

}  // namespace hostnic::cli
