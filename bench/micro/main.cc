// hostnic-micro-bench [Google Benchmark's options]: what the parts of the data path cost. Needs no
// hugepages and no rights.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace {

// EAL pins its lcores; ours stays on all CPUs we may use.
std::string floating_lcore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  return fmt::format("--lcores=0@({})", cpus);
}

// As hostnicd does, except for its devices: with vectors as wide as the CPU has them.
bool start_eal() {
  setenv("XDG_RUNTIME_DIR", "/tmp", 0);
  std::vector<std::string> words = {"hostnic-micro-bench",
                                    "--no-huge",
                                    "--no-shconf",
                                    "--no-pci",
                                    "--no-telemetry",
                                    "-m",
                                    "512",
                                    "--log-level=error",
                                    "--force-max-simd-bitwidth=512",
                                    fmt::format("--file-prefix=hostnic-bench-{}", getpid()),
                                    floating_lcore()};
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) >= 0) return true;
  fmt::print(stderr, "DPDK doesn't start: {}\n", rte_strerror(rte_errno));
  return false;
}

// EAL leaves its runtime directory behind.
void stop_eal() {
  const std::string directory = rte_eal_get_runtime_dir();
  rte_eal_cleanup();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

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
  if (!start_eal()) return 1;
  CheckedReporter reporter;
  // A pattern that matches nothing, and a benchmark whose checks failed, are failures.
  const bool ran = benchmark::RunSpecifiedBenchmarks(&reporter) != 0;
  benchmark::Shutdown();
  stop_eal();
  return ran && !reporter.failed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostnic-micro-bench: %s\n", error.what());
    return 1;
  }
}
