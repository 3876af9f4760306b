// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace hostnic::cli {
namespace {

// EAL's "/host64/dpdk/hostnic-4194304/dpdk_telemetry.v2" must fit a socket address.
constexpr size_t kMaxDirectoryBytes = 61;
constexpr std::string_view kUniqueLetters = "XXXXXX";

void remove_tree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Opens and locks a directory of this user's. Returns none when it is gone, or somebody has it.
UniqueFd lock_directory(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  const bool ours = fd && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
                    fstat(fd.get(), &status) == 0 && status.st_nlink > 0 &&
                    status.st_uid == geteuid();
  return ours ? std::move(fd) : UniqueFd();
}

void remove_abandoned(const std::string& base, std::string_view prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(base.c_str()), closedir);
  if (directory == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name.size() == prefix.size() + kUniqueLetters.size())
      found.push_back(base + "/" + entry->d_name);
  }
  for (const std::string& path : found)
    if (const UniqueFd lock = lock_directory(path)) remove_tree(path);
}

}  // namespace

Expected<LabDirectory, std::string> LabDirectory::create(const char* prefix) {
  const char* base = getenv("TMPDIR");
  const size_t own_bytes = 1 + strlen(prefix) + kUniqueLetters.size();
  if (base == nullptr || *base == 0 || strlen(base) > kMaxDirectoryBytes - own_bytes) base = "/tmp";
  // Hosts find it from wherever they are.
  std::error_code gone;
  const std::string absolute = std::filesystem::absolute(base, gone);
  if (!gone && absolute.size() <= kMaxDirectoryBytes - own_bytes) base = absolute.c_str();
  const bool removed_by_others = strcmp(prefix, kHostsPrefix) == 0;
  if (removed_by_others) remove_abandoned(base, prefix);
  LabDirectory directory;
  // There are two attempts: another lab may take the fresh, still unlocked directory for an
  // abandoned one.
  for (int attempt = 0; attempt < 2 && !directory.lock_; ++attempt) {
    std::string name = fmt::format("{}/{}{}", base, prefix, kUniqueLetters);
    if (mkdtemp(name.data()) == nullptr)
      return Unexpected(fmt::format("a directory in {}: {}", base, strerror(errno)));
    directory.path_ = name;
    directory.lock_ = lock_directory(name);
  }
  if (!directory.lock_)
    return Unexpected(fmt::format("{} can't be locked: {}", directory.path_, strerror(errno)));
  return directory;
}

LabDirectory::LabDirectory(LabDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

void LabDirectory::remove() {
  if (!path_.empty()) remove_tree(path_);
  path_.clear();
}

std::string LabDirectory::keep() {
  const std::filesystem::path from(path_);
  const std::string letters = path_.substr(path_.size() - kUniqueLetters.size());
  const std::filesystem::path to = from.parent_path() / (kLabPrefix + letters);
  std::error_code failed;
  if (from != to) std::filesystem::rename(from, to, failed);
  path_.clear();
  return failed ? from.string() : to.string();
}

}  // namespace hostnic::cli
