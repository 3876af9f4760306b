// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "protocol/hostif/sysfs_files.h"

namespace hostnic::hooks {
namespace {

void remove_tree(const std::string& root) {
  std::error_code ignored;
  std::filesystem::remove_all(root, ignored);
}

// A tree that is being made is called so until it is locked: what has a tree's name and no lock is
// abandoned.
constexpr char kNewPrefix[] = "hostnic-new-sysfs.";
// A program that made one, and was killed before it had locked it, did so longer ago than this.
constexpr time_t kLongestMakingS = 60;

bool begins_with(const char* name, const char* prefix) {
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool is_old(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && time(nullptr) - status.st_mtime > kLongestMakingS;
}

// Opens and locks a tree. Returns -1 when it is gone or its owner lives.
int lock_directory(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat status;
  // A cleaner may have won the race for the lock, and removed it.
  if (flock(fd, LOCK_EX | flags) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0 &&
      status.st_uid == geteuid()) {
    return fd;
  }
  close(fd);
  return -1;
}

// Removes the trees that programs left which were killed; their locks went with them.
void remove_abandoned(const std::string& base) {
  DIR* directory = opendir(base.c_str());
  if (directory == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(directory)) {
    std::string path = base + "/" + entry->d_name;
    if (begins_with(entry->d_name, kTreePrefix) ||
        (begins_with(entry->d_name, kNewPrefix) && is_old(path)))
      found.push_back(std::move(path));
  }
  closedir(directory);
  for (const std::string& path : found) {
    const int fd = lock_directory(path, LOCK_NB);
    if (fd < 0) continue;
    remove_tree(path);
    close(fd);
  }
}

}  // namespace

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
  remove_abandoned(base);
  SysfsTree tree;
  std::string made = base + "/" + kNewPrefix + std::string(kUniqueLetters, 'X');
  if (mkdtemp(made.data()) == nullptr) return {};
  tree.lock_fd_ = lock_directory(made, 0);
  tree.owner_pid_ = getpid();
  tree.root_ = base + "/" + kTreePrefix + made.substr(made.size() - kUniqueLetters);
  if (tree.lock_fd_ >= 0 && rename(made.c_str(), tree.root_.c_str()) == 0) return tree;
  tree.root_ = std::move(made);
  return {};  // the tree that could not be finished goes with `tree`
}

SysfsTree::SysfsTree(SysfsTree&& other) noexcept { *this = std::move(other); }

SysfsTree& SysfsTree::operator=(SysfsTree&& other) noexcept {
  std::swap(root_, other.root_);
  std::swap(lock_fd_, other.lock_fd_);
  std::swap(owner_pid_, other.owner_pid_);
  return *this;
}

SysfsTree::~SysfsTree() {
  if (lock_fd_ < 0) return;
  if (owner_pid_ == getpid()) remove_tree(root_);
  close(lock_fd_);
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
