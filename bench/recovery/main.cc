// SPDX-License-Identifier: BSD-3-Clause
// Runs cells of the recovery study and prints them as CSV, one line each, in order.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/recovery/cell.h"
#include "tests/support/test_eal.h"

namespace hostnic::recovery {
namespace {

struct Options {
  bool golden = false;
  uint32_t part = 0, parts = 1;
  std::string study, policy;
};

int run_all(const Options& options) {
  const std::vector<Cell> cells = options.golden ? golden_cells() : study_cells();
  fmt::print("cell,{}\n", csv_header());
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i % options.parts != options.part) continue;
    if (!options.study.empty() && options.study != cells[i].study) continue;
    if (!options.policy.empty() && options.policy != policy_name(cells[i])) continue;
    fmt::print("{},{}\n", i, csv_line(cells[i], run(cells[i])));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace hostnic::recovery

int main(int argc, char** argv) {
  hostnic::recovery::Options options;
  CLI::App app("Recovery from loss and reordering, in virtual time; ./run bench recovery uses it");
  app.add_flag("--golden", options.golden, "the cells of golden.csv instead of the whole study");
  app.add_option("--parts", options.parts, "split into so many runs")->check(CLI::Range(1, 64));
  app.add_option("--part", options.part, "which of them, from 0");
  app.add_option("--study", options.study,
                 "only: single, stream, qps64, incast64, reorder, single-reads or reads");
  app.add_option("--policy", options.policy,
                 "only: selective, go-back-n, whole-message, roce-hold or roce");
  CLI11_PARSE(app, argc, argv);
  const hostnic::TestEal eal("recovery-study");
  if (!eal) return 1;
  try {
    return hostnic::recovery::run_all(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "recovery study: {}\n", error.what());
    return 1;
  }
}
