// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_directory.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <filesystem>
#include <utility>

#include "protocol/hostif/locked_directory.h"

namespace hostnic::cli {
namespace {

// EAL's "/host64/dpdk/hostnic-4194304/dpdk_telemetry.v2" must fit a socket address.
constexpr size_t kMaxDirectoryBytes = 61;

void remove_tree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

Expected<LabDirectory, std::string> LabDirectory::create(const char* prefix) {
  const char* base = getenv("TMPDIR");
  const size_t own_bytes = 1 + strlen(prefix) + kUniqueLetters;
  if (base == nullptr || *base == 0 || strlen(base) > kMaxDirectoryBytes - own_bytes) base = "/tmp";
  // Hosts find it from wherever they are.
  std::error_code gone;
  const std::string absolute = std::filesystem::absolute(base, gone);
  if (!gone && absolute.size() <= kMaxDirectoryBytes - own_bytes) base = absolute.c_str();
  const bool removed_by_others = strcmp(prefix, kHostsPrefix) == 0;
  if (removed_by_others) remove_abandoned_directories(base, prefix);
  auto made = make_locked_directory(base, prefix);
  if (!made) return Unexpected(fmt::format("a directory in {}: {}", base, strerror(errno)));
  LabDirectory directory;
  directory.path_ = std::move(made->path);
  directory.lock_ = std::move(made->lock);
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
  const std::string letters = path_.substr(path_.size() - kUniqueLetters);
  const std::filesystem::path to = from.parent_path() / (kLabPrefix + letters);
  std::error_code failed;
  if (from != to) std::filesystem::rename(from, to, failed);
  path_.clear();
  return failed ? from.string() : to.string();
}

}  // namespace hostnic::cli
