// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/scheduling_group.h"

#include <fmt/format.h>

#include <fstream>

namespace hostnic {
namespace {

// The first word of a file: "/autogroup-N" of "/autogroup-N nice 0".
std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

bool scheduled_apart_from(uint32_t pid, const std::string& proc) {
  if (first_word(proc + "/sys/kernel/sched_autogroup_enabled") != "1") return false;
  const std::string ours = first_word(proc + "/self/autogroup");
  const std::string theirs = first_word(fmt::format("{}/{}/autogroup", proc, pid));
  return !ours.empty() && !theirs.empty() && ours != theirs;
}

}  // namespace hostnic
