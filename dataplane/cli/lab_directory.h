// SPDX-License-Identifier: BSD-3-Clause
// The directory of a lab: sockets, logs, EAL's files.
#pragma once

#include <string>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

class LabDirectory {
 public:
  // Makes a directory whose name begins with `prefix` in $TMPDIR or /tmp, and removes those there
  // that labs of that kind left which were killed: a lab's processes hold a lock on it.
  static Expected<LabDirectory, std::string> create(const char* prefix);
  LabDirectory(LabDirectory&& other) noexcept;
  LabDirectory& operator=(LabDirectory&&) = delete;
  ~LabDirectory() { remove(); }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void remove();
  // Leaves the directory behind under a name by which no later lab removes it. Returns its path.
  std::string keep();
  // Leaves it to another process, which has it as well after a fork.
  void forget() { path_.clear(); }

 private:
  LabDirectory() = default;
  std::string path_;
  UniqueFd lock_;
};

// Beginnings of their names.
inline constexpr const char* kLabPrefix = "hostnic-lab-";
inline constexpr const char* kHostsPrefix = "hostnic-hosts-";

}  // namespace hostnic::cli
