// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/processor_wait.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace hostnic::cli {

ProcessorWaits processor_waits(const std::string& tasks) {
  ProcessorWaits waits;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(tasks, error)) {
    const std::string name = entry.path().filename();
    pid_t thread = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), thread);
    if (bad != std::errc{} || end != name.data() + name.size()) continue;
    // Nanoseconds on a processor, nanoseconds in line for one, times that it got one.
    std::ifstream file(entry.path() / "schedstat");
    uint64_t ran_ns = 0, waited_ns = 0;
    if (file >> ran_ns >> waited_ns) waits[thread] = waited_ns;
  }
  return waits;
}

uint64_t longest_wait_ns(const ProcessorWaits& before, const ProcessorWaits& after) {
  uint64_t longest_ns = 0;
  for (const auto& [thread, waited_ns] : after) {
    const auto known = before.find(thread);
    const uint64_t earlier_ns = known == before.end() ? 0 : known->second;
    longest_ns = std::max(longest_ns, waited_ns - std::min(waited_ns, earlier_ns));
  }
  return longest_ns;
}

}  // namespace hostnic::cli
