// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/small_eal.h"

#include <errno.h>
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace hostnic {
namespace {

// EAL pins its lcores; ours floats over all CPUs we may use.
std::string floating_lcore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  return fmt::format("--lcores=0@({})", cpus);
}

// Whether `name` is `prefix` and the id of a process that is no more.
bool is_of_dead_process(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size() || pid <= 0) return false;
  return kill(pid, 0) != 0 && errno == ESRCH;
}

void remove_left_directories(const std::filesystem::path& parent, const std::string& prefix) {
  std::error_code ignored;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored))
    if (is_of_dead_process(entry.path().filename().string(), prefix)) left.push_back(entry.path());
  for (const auto& path : left) std::filesystem::remove_all(path, ignored);
}

}  // namespace

SmallEal::SmallEal(const std::string& name, const std::vector<std::string>& more_arguments) {
  setenv("XDG_RUNTIME_DIR", "/tmp", 0);
  const std::string prefix = fmt::format("hostnic-{}-", name);
  std::vector<std::string> words = {name,
                                    "--no-huge",
                                    "--no-shconf",
                                    "--no-pci",
                                    "--no-telemetry",
                                    "-m",
                                    "512",
                                    "--log-level=error",
                                    fmt::format("--file-prefix={}{}", prefix, getpid()),
                                    floating_lcore()};
  words.insert(words.end(), more_arguments.begin(), more_arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  started_ = rte_eal_init(static_cast<int>(argv.size()), argv.data()) >= 0;
  if (!started_) {
    fmt::print(stderr, "DPDK doesn't start: {}\n", rte_strerror(rte_errno));
    return;
  }
  remove_left_directories(std::filesystem::path(rte_eal_get_runtime_dir()).parent_path(), prefix);
}

// EAL leaves its runtime directory behind.
SmallEal::~SmallEal() {
  if (!started_) return;
  const std::string directory = rte_eal_get_runtime_dir();
  rte_eal_cleanup();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace hostnic
