// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/wait_status.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace hostnic {
namespace {

// The kernel's struct pidfd_info, which Debian 12's headers do not have.
struct PidFdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];
  int32_t exit_code;
};
static_assert(sizeof(PidFdInfo) == 64);
constexpr uint64_t kExitWanted = 1 << 3;

// As a pidfd says it, of a process whose parent has asked.
std::optional<int> status_of_reaped(int pid_fd) {
  PidFdInfo info{};
  info.mask = kExitWanted;
  if (ioctl(pid_fd, _IOWR(0xff, 11, PidFdInfo), &info) != 0 || (info.mask & kExitWanted) == 0)
    return std::nullopt;
  return info.exit_code;
}

// As /proc says it, of a process whose parent has not.
std::optional<int> status_of_zombie(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, field;
  rest >> state;
  if (state != "Z" && state != "X") return std::nullopt;
  // proc(5): the state is field 3, the exit code the 52nd and last; others than its user see 0.
  for (int i = 4; i < 52; ++i) rest >> field;
  int status = 0;
  if (!(rest >> status)) return std::nullopt;
  return status;
}

}  // namespace

std::optional<int> wait_status_of(int pid_fd, pid_t pid, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (const auto status = status_of_reaped(pid_fd)) return status;
    // A 0 may mean that we may not know: it counts when nothing better is said in time.
    const auto status = pid > 0 ? status_of_zombie(pid) : std::nullopt;
    if ((status && *status != 0) || std::chrono::steady_clock::now() >= until) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace hostnic
