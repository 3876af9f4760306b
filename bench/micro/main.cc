// hostnic-micro-bench [Google Benchmark's options]: what the parts of the data path cost. Needs no
// hugepages and no rights.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "tests/support/test_eal.h"

namespace hostnic {
namespace {

// The console's table, and whether any benchmark found what it does to be wrong.
class CheckedReporter final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) failed_ = failed_ || run.error_occurred;
    ConsoleReporter::ReportRuns(runs);
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // With vectors as wide as the CPU has them, as hostnicd does.
  const TestEal eal("bench", {"--force-max-simd-bitwidth=512"});
  if (!eal) return 1;
  CheckedReporter reporter;
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
