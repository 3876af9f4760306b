// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/path_map.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include "protocol/hostif/locked_directory.h"
#include "verbs-shim/abi/devices.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/elf/symbols.h"
#include "verbs-shim/runtime/discovery.h"

namespace hostnic::hooks {
namespace {

constexpr std::string_view kClass = "/sys/class/infiniband";
constexpr std::string_view kVerbsClass = "/sys/class/infiniband_verbs";
constexpr std::string_view kCmClass = "/sys/class/misc/rdma_cm";
constexpr std::string_view kDev = "/dev/infiniband";

// The rest of `path` behind `directory`, without slashes at its start; nothing if not below it.
std::optional<std::string_view> below(std::string_view path, std::string_view directory) {
  if (path.substr(0, directory.size()) != directory) return std::nullopt;
  std::string_view rest = path.substr(directory.size());
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  while (!rest.empty() && rest.front() == '/') rest.remove_prefix(1);
  return rest;
}

bool is_one_of(std::string_view rest, const std::vector<std::string>& names, bool as_uverbs) {
  const std::string_view first = rest.substr(0, rest.find('/'));
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return first == (as_uverbs ? uverbs_name(name) : name);
  });
}

// The process's tree and the devices shown in it. It is leaked except for the files, which
// at_exit() removes: other threads may still look.
struct Shown {
  std::mutex mutex;
  SysfsTree tree;
  bool tried = false;
  std::vector<DeviceInfo> devices;  // devices as their files say
  std::vector<std::string> names;
};

Shown& shown() {
  static Shown& instance = *new Shown;
  return instance;
}

// Links what is there beside our devices, so that it stays to be seen. In a host of a lab (`hostnic
// lab --hosts`) our devices are there as well, in files that are not this process's to write.
void link_what_is_real(SysfsTree& tree, std::string_view from, const std::string& to,
                       const std::vector<DeviceInfo>& ours) {
  // The function is libc's own, since our hook leads back here.
  using Opendir = DIR* (*)(const char*);
  const auto libc_opendir = reinterpret_cast<Opendir>(elf::libc_symbol("opendir"));
  DIR* directory = libc_opendir != nullptr ? libc_opendir(std::string(from).c_str()) : nullptr;
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    const bool is_ours = std::any_of(ours.begin(), ours.end(), [&](const DeviceInfo& info) {
      return strncmp(entry->d_name, info.name, sizeof info.name) == 0;
    });
    if (entry->d_name[0] != '.' && !is_ours)
      tree.link(to, entry->d_name, std::string(from) + "/" + entry->d_name);
  }
  closedir(directory);
}

// The device whose counters a path below the class asks for; empty: it asks for none.
std::string counted_device(std::string_view path) {
  const auto rest = below(path, kClass);
  if (!rest || (rest->find("/counters") == std::string_view::npos &&
                rest->find("/hw_counters") == std::string_view::npos))
    return {};
  return std::string(rest->substr(0, rest->find('/')));
}

// Whether a path below the class asks for a GID table, which changes with the machine's addresses.
bool asks_for_gids(std::string_view path) {
  const auto rest = below(path, kClass);
  return rest && rest->find("/gid") != std::string_view::npos;
}

// Shows a device; writes only what changed, because another thread may be reading. The lock must be
// held.
void show_device(const DeviceInfo& info) {
  const std::string name(info.name, strnlen(info.name, sizeof info.name));
  const auto& names = shown().names;
  const size_t at = std::find(names.begin(), names.end(), name) - names.begin();
  if (at == names.size()) {
    shown().names.push_back(name);
    shown().devices.push_back(info);
    // Padding that differs makes us write again, no more.
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  } else if (memcmp(&shown().devices[at], &info, sizeof info) == 0) {
    return;
  } else {
    shown().devices[at] = info;
  }
  shown().tree.show(info);
}

[[gnu::destructor]] void remove_files_at_exit() {
  // The mutex is not waited for: a thread that exit() stopped may have held it.
  if (!shown().mutex.try_lock()) return;
  { SysfsTree removed = std::move(shown().tree); }
  shown().mutex.unlock();
}

}  // namespace

std::string map_path(std::string_view path, const SysfsTree& tree,
                     const std::vector<std::string>& names) {
  if (tree.root().empty() || names.empty()) return {};
  if (const auto rest = below(path, kClass)) {
    if (rest->empty() || *rest == ".") return tree.class_directory();
    if (*rest == "..") return "/sys/class";
    if (is_one_of(*rest, names, false)) return tree.device_directory(*rest);
  } else if (const auto verbs = below(path, kVerbsClass)) {
    if (verbs->empty() || *verbs == ".") return tree.verbs_class_directory();
    if (is_one_of(*verbs, names, true)) return tree.verbs_directory(*verbs);
  } else if (const auto cm = below(path, kCmClass)) {
    std::string mapped = tree.cm_directory();
    if (!cm->empty()) mapped.append("/").append(*cm);
    return mapped;
  } else if (const auto dev = below(path, kDev)) {
    if (dev->empty() || *dev == ".") return tree.dev_directory();
    if (*dev == "rdma_cm" || tree.has_number_name(*dev)) return "/dev/null";
    if (is_one_of(*dev, names, true) && dev->find('/') == std::string_view::npos)
      return "/dev/null";
  }
  return {};
}

const SysfsTree& show_in_sysfs(const std::vector<DeviceInfo>& devices) {
  std::lock_guard lock(shown().mutex);
  SysfsTree& tree = shown().tree;
  if (!shown().tried && !devices.empty()) {
    shown().tried = true;
    tree = SysfsTree::create(sysfs_tree_base());
    if (tree.root().empty())
      log_debug("no directory for sysfs files in %s", sysfs_tree_base().c_str());
    link_what_is_real(tree, kClass, tree.class_directory(), devices);
    link_what_is_real(tree, kVerbsClass, tree.verbs_class_directory(), devices);
    link_what_is_real(tree, kDev, tree.dev_directory(), devices);
  }
  for (const DeviceInfo& info : devices) show_device(info);
  return tree;
}

void lock_tree_across_fork() { shown().mutex.lock(); }
void unlock_tree_after_fork() { shown().mutex.unlock(); }

std::string map_path(const char* path) {
  bool first = false;
  {
    std::lock_guard lock(shown().mutex);
    first = shown().names.empty();
  }
  if (first || asks_for_gids(path)) abi::current_devices();
  // The counters are written now, so that a listing or reading finds them as they are.
  const std::string counted = counted_device(path);
  const std::string counters = counted.empty() ? "" : runtime::counters_text(counted);
  std::lock_guard lock(shown().mutex);
  if (!counters.empty() && is_one_of(counted, shown().names, false))
    shown().tree.show_counters(counted, counters);
  return map_path(path, shown().tree, shown().names);
}

bool refuse_verbs_device(const char* path) noexcept {
  constexpr std::string_view kPrefix = "/dev/infiniband/uverbs";
  const std::string_view whole(path);
  if (!whole.starts_with(kPrefix) || whole.size() == kPrefix.size() ||
      whole[kPrefix.size()] < '0' || whole[kPrefix.size()] > '9')
    return false;
  const int saved_errno = errno;
  bool is_ours = false;
  try {
    is_ours = !map_path(path).empty();
  } catch (const std::bad_alloc&) {
    // Without memory the path is used as it is and leads nowhere.
  }
  errno = saved_errno;
  if (!is_ours) return false;
  log_warn(
      "%s: there is no kernel driver behind it: hostnic's devices are opened by libibverbs "
      "(ibv_open_device), which this process has preloaded",
      path);
  errno = ENXIO;
  return true;
}

std::string unmap_path(std::string_view path) {
  // The tree may be another process's: a shell's, whose working directory its programs inherit.
  const std::string roots = sysfs_tree_base() + "/" + kTreePrefix;
  if (path.substr(0, roots.size()) != roots || path.size() < roots.size() + kUniqueLetters)
    return {};
  const std::string_view inside = path.substr(roots.size() + kUniqueLetters);
  const std::pair<std::string, std::string_view> places[] = {
      {"/infiniband", kClass}, {"/infiniband_verbs", kVerbsClass}, {"/dev", kDev}};
  for (const auto& [ours, shown_as] : places) {
    const auto rest = below(inside, ours);
    if (rest) return std::string(shown_as) + (rest->empty() ? "" : "/") + std::string(*rest);
  }
  return {};
}

}  // namespace hostnic::hooks
