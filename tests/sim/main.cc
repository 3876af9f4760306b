// sim-test [gtest flags] [--seeds N] [--first-seed S] [--profile NAME]
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/sim/options.h"
#include "tests/support/test_eal.h"

namespace hostnic::sim {
Options& options() {
  static Options options;
  return options;
}
}  // namespace hostnic::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto& options = hostnic::sim::options();
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--seeds") == 0) {
      options.seeds = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 0));
    } else if (has_value && std::strcmp(argv[i], "--first-seed") == 0) {
      options.first_seed = std::strtoull(argv[++i], nullptr, 0);
    } else if (has_value && std::strcmp(argv[i], "--profile") == 0) {
      options.profile = argv[++i];
    } else {
      fmt::print(stderr,
                 "{}: unknown option; there are --seeds N, --first-seed S, --profile NAME\n",
                 argv[i]);
      return 2;
    }
  }
  const hostnic::TestEal eal("sim");
  return eal ? RUN_ALL_TESTS() : 1;
}
