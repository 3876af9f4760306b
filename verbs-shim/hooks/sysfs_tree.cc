// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/sysfs_tree.h"

#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "protocol/hostif/locked_directory.h"
#include "protocol/hostif/sysfs_files.h"

namespace hostnic::hooks {
std::string uverbs_name(std::string_view device) { return "uverbs_" + std::string(device); }

std::string sysfs_tree_base() {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  for (const char* candidate : {runtime, "/dev/shm"}) {
    if (candidate != nullptr && candidate[0] == '/' && access(candidate, W_OK | X_OK) == 0) {
      return candidate;
    }
  }
  return "/tmp";
}

SysfsTree SysfsTree::create(const std::string& base) {
  remove_abandoned_directories(base, kTreePrefix);
  SysfsTree tree;
  auto made = make_locked_directory(base, kTreePrefix);
  if (!made) return tree;
  tree.root_ = std::move(made->path);
  tree.lock_ = std::move(made->lock);
  tree.owner_pid_ = getpid();
  return tree;
}

SysfsTree::SysfsTree(SysfsTree&& other) noexcept { *this = std::move(other); }

SysfsTree& SysfsTree::operator=(SysfsTree&& other) noexcept {
  std::swap(root_, other.root_);
  std::swap(number_names_, other.number_names_);
  std::swap(lock_, other.lock_);
  std::swap(owner_pid_, other.owner_pid_);
  return *this;
}

SysfsTree::~SysfsTree() {
  std::error_code ignored;
  if (lock_ && owner_pid_ == getpid()) std::filesystem::remove_all(root_, ignored);
}

std::string SysfsTree::device_directory(std::string_view device) const {
  return root_ + "/infiniband/" + std::string(device);
}

std::string SysfsTree::verbs_directory(std::string_view uverbs) const {
  return root_ + "/infiniband_verbs/" + std::string(uverbs);
}

void SysfsTree::show(const DeviceInfo& info) {
  if (root_.empty()) return;
  const std::string name(info.name, strnlen(info.name, sizeof info.name));
  const std::string device = device_directory(name);
  write_device_files(device, info);
  const std::string verbs = verbs_directory(uverbs_name(name));
  std::error_code ignored;
  std::filesystem::create_directories(verbs, ignored);
  write_sysfs_file(verbs + "/ibdev", name);
  std::filesystem::create_directories(cm_directory(), ignored);
  write_sysfs_file(cm_directory() + "/abi_version", std::to_string(RDMA_USER_CM_ABI_VERSION));
  link(dev_directory(), "rdma_cm", "/dev/null");
  link(dev_directory(), uverbs_name(name), "/dev/null");
  const std::string number_name = "uverbs" + std::to_string(info.index);
  if (!std::filesystem::is_symlink(dev_directory() + "/" + number_name, ignored)) {
    link(dev_directory(), number_name, "/dev/null");
    number_names_.insert(number_name);
  }
}

void SysfsTree::show_counters(const std::string& device, const std::string& text) {
  if (!root_.empty()) write_counter_files(device_directory(device), device, text);
}

void SysfsTree::link(const std::string& directory, const std::string& name,
                     const std::string& target) {
  if (root_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  std::filesystem::create_symlink(target, directory + "/" + name, ignored);
}

}  // namespace hostnic::hooks
