// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/lab_programs.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::hooks {
namespace {

struct Process {
  pid_t parent = 0;
  char state = '?';
  uint64_t cpu_ticks = 0, started_ticks = 0;
};

// Not by a stream, which throws where the process ends before it is read.
std::string content(const std::string& path) {
  std::string text;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[4096];
  for (ssize_t got = 0; fd && (got = read(fd.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(got));
  return text;
}

bool read_process(pid_t pid, Process& process) {
  const std::string stat = content("/proc/" + std::to_string(pid) + "/stat");
  // The name in parentheses may contain anything.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  int parent = 0;
  unsigned long user = 0, system = 0;
  unsigned long long started = 0;
  if (sscanf(stat.c_str() + name_end + 1,
             " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s %*s %*s %*s %llu",
             &process.state, &parent, &user, &system, &started) != 5)
    return false;
  process.parent = parent;
  process.cpu_ticks = user + system;
  process.started_ticks = started;
  return true;
}

using Processes = std::unordered_map<pid_t, Process>;

Processes all_processes() {
  Processes found;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    const pid_t pid = atoi(entry->d_name);
    Process process;
    if (pid > 0 && read_process(pid, process)) found[pid] = process;
  }
  closedir(directory);
  return found;
}

// Whether `below` descends from `above`, or is it.
bool descends(const Processes& processes, pid_t below, pid_t above) {
  for (int steps = 0; below > 0 && steps < 1000; ++steps) {
    if (below == above) return true;
    const auto found = processes.find(below);
    if (found == processes.end()) return false;
    below = found->second.parent;
  }
  return false;
}

// Whether a process is in this lab, of which an entry of the environment is known.
bool in_this_lab(pid_t pid, const std::string& known) {
  const std::string environment =
      '\0' + content("/proc/" + std::to_string(pid) + "/environ") + '\0';
  const auto has = [&](const std::string& entry) {
    return environment.find('\0' + entry) != std::string::npos;
  };
  return has("HOSTNIC_LAB=") && has(known + '\0');
}

}  // namespace

std::vector<LabProgram> other_lab_programs(uint64_t max_age_ms) {
  // Labs differ in their sockets. Where each host has its own they differ in their directories.
  const char* directory = getenv("HOSTNIC_LAB_DIR");
  const char* socket = getenv("HOSTNIC_SOCKET");
  if (directory == nullptr && socket == nullptr) return {};
  const std::string known = directory != nullptr ? std::string("HOSTNIC_LAB_DIR=") + directory
                                                 : std::string("HOSTNIC_SOCKET=") + socket;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto now_ms =
      static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
  const auto tick_ms = static_cast<uint64_t>(1000 / std::max(sysconf(_SC_CLK_TCK), 1L));
  const Processes processes = all_processes();
  std::vector<LabProgram> found;
  for (const auto& [pid, process] : processes) {
    const uint64_t started_ms = process.started_ticks * tick_ms;
    const uint64_t age_ms = now_ms > started_ms ? now_ms - started_ms : 0;
    if (age_ms > max_age_ms || process.state == 'Z' || process.state == 'X') continue;
    if (descends(processes, pid, getpid()) || descends(processes, getpid(), pid)) continue;
    if (!in_this_lab(pid, known)) continue;
    found.push_back(
        {age_ms, process.cpu_ticks * tick_ms, process.state == 'R' || process.state == 'D'});
  }
  return found;
}

}  // namespace hostnic::hooks
