// SPDX-License-Identifier: BSD-3-Clause
// hostnic-micro-bench [--count ITERATIONS] [Google Benchmark's options]: what the parts of the data
// path cost. Needs no hugepages and no rights.
//
// --count, under callgrind: the instructions of so many iterations of each benchmark, one of
// callgrind's files for each. instructions.py runs it, and --about, which says what was built how.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <rte_version.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/micro/report.h"
#include "dataplane/simulation/small_eal.h"

namespace hostnic {
namespace {

// The console's table, and whether any benchmark found what it does to be wrong.
class CheckedReporter final : public benchmark::ConsoleReporter {
 public:
  explicit CheckedReporter(bool counts) : counts_(counts) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      failed_ = failed_ || run.error_occurred;
      if (counts_ && !run.error_occurred) dump(run.run_name);
    }
    ConsoleReporter::ReportRuns(runs);
  }
  bool failed() const { return failed_; }

 private:
  // Titled "NAME OPERATIONS". Not what this CPU doesn't have.
  static void dump(const benchmark::BenchmarkName& name) {
    const uint64_t operations = std::exchange(bench::counting().operations, 0);
    if (operations == 0) return;
    bench::dump_counts(fmt::format("{}{}{} {}", name.function_name, name.args.empty() ? "" : "/",
                                   name.args, operations));
  }

  bool counts_, failed_ = false;
};

// What an instruction count depends on, beside the source.
void print_about() {
  const std::string_view dpdk = rte_version();
  fmt::print("g++ {}, {}, glibc {}, {}\n", __VERSION__, HOSTNIC_BUILT, gnu_get_libc_version(),
             dpdk.substr(0, dpdk.rfind('.')));
}

// Takes "--count N" out of the arguments. 0: not there, -1: not like that.
int take_count(int& argc, char** argv) {
  if (argc < 2 || strcmp(argv[1], "--count") != 0) return 0;
  int count = 0;
  if (argc < 3) return -1;
  const char* end = argv[2] + strlen(argv[2]);
  const auto [rest, error] = std::from_chars(argv[2], end, count);
  if (error != std::errc() || rest != end || count <= 0) return -1;
  std::copy(argv + 3, argv + argc + 1, argv + 1);
  argc -= 2;
  return count;
}

int run(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--about") == 0) {
    print_about();
    return 0;
  }
  const int count = take_count(argc, argv);
  if (count < 0 || (count != 0 && !bench::can_count())) {
    fmt::print(stderr,
               "--count ITERATIONS comes first, under callgrind (./run bench instructions)\n");
    return 1;
  }
  if (count != 0)
    for (auto* benchmark : bench::counting().benchmarks) benchmark->Iterations(count);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // With vectors as wide as the CPU has them, as hostnicd does.
  const SmallEal eal("bench", {"--force-max-simd-bitwidth=512"});
  if (!eal) return 1;
  CheckedReporter reporter(count != 0);
  // A pattern that matches nothing, and a benchmark whose checks failed, are failures.
  const bool ran = benchmark::RunSpecifiedBenchmarks(&reporter) != 0;
  benchmark::Shutdown();
  return ran && !reporter.failed() ? 0 : 1;
}

}  // namespace
}  // namespace hostnic

int main(int argc, char** argv) {
  try {
    return hostnic::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostnic-micro-bench: %s\n", error.what());
    return 1;
  }
}
