// SPDX-License-Identifier: BSD-3-Clause
// sim-test [gtest flags] [--seeds N] [--first-seed S] [--profile NAME] [--pattern N]
//          [--sample N] [--policy NAME]
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dataplane/simulation/resources.h"
#include "dataplane/simulation/small_eal.h"
#include "tests/sim/options.h"

namespace hostnic::sim {
Options& options() {
  static Options options;
  return options;
}
}  // namespace hostnic::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Worlds come and go by the thousand: their blocks stay with us instead of going back to the
  // kernel, except the large ones that are zero pages mostly.
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  auto& options = hostnic::sim::options();
  options.program = argv[0];
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--seeds") == 0) {
      options.seeds = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 0));
    } else if (has_value && std::strcmp(argv[i], "--first-seed") == 0) {
      options.first_seed = std::strtoull(argv[++i], nullptr, 0);
    } else if (has_value && std::strcmp(argv[i], "--profile") == 0) {
      options.profile = argv[++i];
    } else if (has_value && std::strcmp(argv[i], "--policy") == 0) {
      const std::string_view name = argv[++i];
      options.policy = name == "go-back-n"       ? hostnic::wire::Policy::kGoBackN
                       : name == "whole-message" ? hostnic::wire::Policy::kWholeMessage
                                                 : hostnic::wire::Policy::kSelective;
    } else if (has_value && std::strcmp(argv[i], "--pattern") == 0) {
      options.pattern = std::strtoll(argv[++i], nullptr, 0);
    } else if (has_value && std::strcmp(argv[i], "--sample") == 0) {
      options.sample = std::max(1u, static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 0)));
    } else {
      fmt::print(
          stderr,
          "{}: unknown option; there are --seeds N, --first-seed S, --profile NAME, --policy NAME, "
          "--pattern N, --sample N\n",
          argv[i]);
      return 2;
    }
  }
  const hostnic::SmallEal eal("sim");
  if (!eal) return 1;
  const int status = RUN_ALL_TESTS();
  hostnic::sim::free_unused();
  return status;
}
