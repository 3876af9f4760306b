// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/capture_dump.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/process.h"

namespace hostnic::cli {
namespace {

constexpr int kLookMs = 20, kPatienceMs = 60'000;

bool is_done(const CaptureState& state, uint32_t wish) {
  return static_cast<int32_t>(state.dumps_done - wish) >= 0;
}

// The captures of these that have not written yet; one that has ended meanwhile has.
std::vector<CaptureState> unfinished(const std::vector<CaptureState>& wished,
                                     const std::vector<CaptureState>& now) {
  std::vector<CaptureState> left;
  for (const CaptureState& each : wished)
    for (const CaptureState& state : now)
      if (state.pid == each.pid && std::string(state.nic) == each.nic &&
          !is_done(state, each.dumps_wanted))
        left.push_back(state);
  return left;
}

}  // namespace

int run_dump(const CaptureOptions& options) {
  const auto wished = dump_captures(options.socket_path, /*wish=*/true);
  if (!wished) return fail("capture", wished.error());
  if (wished->empty())
    return fail("capture",
                "--dump: nobody keeps packets here (hostnic capture --last 10s -w FILE does)");
  std::vector<CaptureState> left = *wished, now = *wished;
  for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += kLookMs) {
    auto states = dump_captures(options.socket_path, /*wish=*/false);
    if (!states) return fail("capture", states.error());
    now = std::move(*states);
    left = unfinished(*wished, now);
    if (left.empty()) break;
    poll(nullptr, 0, kLookMs);
  }
  if (!left.empty())
    return fail("capture", fmt::format("--dump: process {}, which captures {}, does not write: is "
                                       "it stopped?",
                                       left[0].pid, left[0].nic));
  // A process that captures several NICs writes one file.
  std::map<std::string, std::string> nics_of;
  bool well = true;
  for (const CaptureState& each : *wished) {
    std::string& nics = nics_of[fmt::format("{} (pid {})", each.file, each.pid)];
    nics += (nics.empty() ? "" : ", ") + std::string(each.nic);
  }
  for (const CaptureState& state : now) well = well && state.dump_error == 0;
  for (const auto& [file, nics] : nics_of) fmt::print("{}: {}\n", nics, file);
  return well ? 0 : fail("capture", "--dump: not all could be written");
}

}  // namespace hostnic::cli
