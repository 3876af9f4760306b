// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/locked_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace hostnic {
namespace {

// A directory is called so until it is locked: what has its final name and no lock is abandoned,
// however many are made at the same moment.
constexpr std::string_view kNewPrefix = "new-";
// A process that made one, and was killed before it had locked it, did so longer ago than this.
constexpr time_t kLongestMakingS = 60;

// Opens and locks a directory of this user's. Returns none when it is gone, or somebody has it.
UniqueFd lock_directory(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  const bool ours = fd && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
                    fstat(fd.get(), &status) == 0 && status.st_nlink > 0 &&
                    status.st_uid == geteuid();
  return ours ? std::move(fd) : UniqueFd();
}

bool is_old(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && time(nullptr) - status.st_mtime > kLongestMakingS;
}

bool has_letters(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() == prefix.size() + kUniqueLetters;
}

}  // namespace

std::optional<LockedDirectory> make_locked_directory(const std::string& base,
                                                     std::string_view prefix) {
  std::string made =
      base + "/" + std::string(kNewPrefix) + std::string(prefix) + std::string(kUniqueLetters, 'X');
  if (mkdtemp(made.data()) == nullptr) return std::nullopt;
  LockedDirectory directory{
      base + "/" + std::string(prefix) + made.substr(made.size() - kUniqueLetters),
      lock_directory(made)};
  if (directory.lock && rename(made.c_str(), directory.path.c_str()) == 0) return directory;
  rmdir(made.c_str());
  return std::nullopt;
}

void remove_abandoned_directories(const std::string& base, std::string_view prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(opendir(base.c_str()), closedir);
  if (listed == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(listed.get())) {
    const std::string_view name = entry->d_name;
    std::string path = base + "/" + entry->d_name;
    if (has_letters(name, prefix) ||
        (name.starts_with(kNewPrefix) && has_letters(name.substr(kNewPrefix.size()), prefix) &&
         is_old(path)))
      found.push_back(std::move(path));
  }
  std::error_code ignored;
  for (const std::string& path : found)
    if (const UniqueFd lock = lock_directory(path)) std::filesystem::remove_all(path, ignored);
}

}  // namespace hostnic
