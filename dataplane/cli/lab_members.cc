// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_members.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>

#include "dataplane/cli/namespaces.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

constexpr int kLookIntervalMs = 10;
// The limit for the end of those that were killed: a process in a system call may take a while.
constexpr int kKillLimitMs = 5'000;

std::set<pid_t> all_processes() {
  std::set<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc"), closedir);
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory.get()))
    if (const pid_t pid = atoi(entry->d_name); pid > 0) found.insert(pid);
  return found;
}

// The parent of a process that lives; 0: it does not.
pid_t parent_of(pid_t pid) {
  // Not by a stream, which throws where the process ends before it is read.
  const UniqueFd fd(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[1024];
  const ssize_t got = fd ? read(fd.get(), bytes, sizeof bytes - 1) : -1;
  const std::string stat(bytes, got > 0 ? static_cast<size_t>(got) : 0);
  // The name in parentheses may contain anything.
  const size_t name_end = stat.rfind(')');
  char state = 'X';
  int parent = 0;
  if (name_end == std::string::npos ||
      sscanf(stat.c_str() + name_end + 1, " %c %d", &state, &parent) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : parent;
}

}  // namespace

std::set<pid_t> processes_in(const std::set<ino_t>& network_ids, const std::set<pid_t>& except) {
  std::set<pid_t> found;
  for (const pid_t pid : all_processes())
    if (!except.contains(pid) && network_ids.contains(network_id_of(pid))) found.insert(pid);
  return found;
}

std::set<pid_t> with_descendants(const std::set<pid_t>& pids) {
  std::map<pid_t, pid_t> parents;
  for (const pid_t each : all_processes())
    if (const pid_t parent = parent_of(each); parent > 0) parents[each] = parent;
  std::set<pid_t> found;
  for (const pid_t pid : pids)
    if (parents.contains(pid)) found.insert(pid);
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (const auto& [each, parent] : parents)
      if (found.contains(parent)) found.insert(each);
  }
  return found;
}

void end_processes(const std::function<std::set<pid_t>()>& find, int patience_ms) {
  std::set<pid_t> asked;
  for (int waited_ms = 0; waited_ms < patience_ms + kKillLimitMs; waited_ms += kLookIntervalMs) {
    const std::set<pid_t> found = find();
    if (found.empty()) return;
    for (const pid_t pid : found) {
      if (waited_ms >= patience_ms) kill(pid, SIGKILL);
      if (asked.insert(pid).second) {
        kill(pid, SIGTERM);
        kill(pid, SIGCONT);  // one that is stopped would not hear
      }
    }
    const timespec pause{0, long{kLookIntervalMs} * 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace hostnic::cli
