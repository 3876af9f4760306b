// SPDX-License-Identifier: BSD-3-Clause
// Directories that belong to a process for as long as it holds their lock: a lab's, a program's
// sysfs files. What a killed process leaves behind is known by its lock being free, and is removed
// by the next that makes one. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// The letters that differ, at the end of such a directory's name.
inline constexpr size_t kUniqueLetters = 6;

struct LockedDirectory {
  std::string path;
  UniqueFd lock;  // of forked children as well
};

// Makes "BASE/PREFIXxxxxxx", for this user alone. Nothing, with errno: it can't be made or locked.
std::optional<LockedDirectory> make_locked_directory(const std::string& base,
                                                     std::string_view prefix);

// Removes this user's directories of this prefix below `base` that nobody has locked.
void remove_abandoned_directories(const std::string& base, std::string_view prefix);

}  // namespace hostnic
