// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/blocking_memory.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

void add_device_of(int fd, std::set<dev_t>& devices) {
  const UniqueFd file(fd);
  struct stat status {};
  if (file && fstat(file.get(), &status) == 0) devices.insert(status.st_dev);
}

// The devices of file systems that are memory: those that are mounted, and the kernel's own, where
// memfds, System V segments and shared anonymous memory lie.
std::set<dev_t> memory_devices() {
  std::set<dev_t> devices;
  add_device_of(memfd_create("hostnic-device", MFD_CLOEXEC), devices);
  for (const unsigned page : {MFD_HUGE_2MB, MFD_HUGE_1GB})
    add_device_of(memfd_create("hostnic-device", MFD_CLOEXEC | MFD_HUGETLB | page), devices);
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    unsigned major = 0, minor = 0;
    if (std::sscanf(line.c_str(), "%*u %*u %u:%u", &major, &minor) != 2) continue;
    const size_t type = line.find(" - ");
    if (type == std::string::npos) continue;
    std::istringstream rest(line.substr(type + 3));
    std::string name;
    rest >> name;
    if (name == "tmpfs" || name == "hugetlbfs" || name == "ramfs" || name == "devtmpfs")
      devices.insert(makedev(major, minor));
  }
  return devices;
}

}  // namespace

bool may_block(pid_t process, std::span<const MappedPiece> pieces) {
  const auto by_mem_fd = [](const MappedPiece& piece) { return piece.by_mem_fd(); };
  if (std::ranges::none_of(pieces, by_mem_fd)) return false;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  if (!maps) return true;
  const std::set<dev_t> devices = memory_devices();
  auto piece = pieces.begin();
  std::string line;
  bool any = false;
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0, inode = 0;
    unsigned major = 0, minor = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*x %x:%x %lu", &begin, &end, &major, &minor,
                    &inode) != 5)
      return true;
    any = true;
    while (piece != pieces.end() && piece->va + piece->length_bytes <= begin) ++piece;
    if (inode == 0 || devices.contains(makedev(major, minor))) continue;
    for (auto each = piece; each != pieces.end() && each->va < end; ++each)
      if (by_mem_fd(*each) && each->va + each->length_bytes > begin) return true;
  }
  return !any;
}

}  // namespace hostnic
