// SPDX-License-Identifier: BSD-3-Clause
// hostnic-simulate, which `hostnic simulate` becomes: studies in virtual time, as a table, CSV or a
// picture.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "dataplane/simulation/study/output.h"
#include "dataplane/simulation/study/recovery_cells.h"
#include "dataplane/simulation/study/runner.h"
#include "dataplane/simulation/study/svg.h"
#include "dataplane/simulation/study/sweep.h"
#include "protocol/hostif/standard_descriptors.h"

namespace hostnic::study {
namespace {

constexpr const char* kFooter = R"(
Options may be lists (0,1%,5%) and ranges (0..5%); every combination is a cell. All numbers follow from
the options and the version of hostnic alone: the same call prints the same bytes everywhere.

Examples:
  hostnic simulate --policy all --loss 0..5% --svg -o loss.svg
  hostnic simulate --policy selective,roce --impair 'reorder 1% distance 64' --window 32..1024
  hostnic simulate --policy all --impair 'drop burst p 0.1% r 30%' --message 64K --rate 25Gbit --delay 50us)";

struct Options {
  SweepOptions sweep;
  std::string study, output;
  uint32_t jobs = std::max(std::thread::hardware_concurrency(), 1u);
  bool golden = false, csv = false, svg = false;
};

int fail(const std::string& line) {
  fmt::print(stderr, "hostnic simulate: {}\n", line);
  return 1;
}

void declare_sweep(CLI::App& app, SweepOptions& sweep) {
  app.add_option("--policy", sweep.policies,
                 "how losses are repaired: selective (default), go-back-n, whole-message; by the "
                 "standard's RC roce-hold, roce; all");
  app.add_option("--op", sweep.op, "write (default), send or read");
  app.add_option("--loss", sweep.losses, "so many of all packets are lost (default 0)");
  app.add_option("--reorder", sweep.reorders, "so many of the data packets are late (default 0)");
  app.add_option("--distance", sweep.distances,
                 "late packets are overtaken by so many others (default 16)");
  app.add_option(
         "--impair", sweep.impairments,
         "[rx|tx] SPEC of every host, as for labs; repeatable. The hosts are 10.0.0.1, which "
         "data go to, and 10.0.0.2")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--message", sweep.messages_bytes, "size of a message (default 64K)");
  app.add_option("--mtu", sweep.mtu_bytes, "256, 512, 1024, 2048 or 4096 (default)");
  app.add_option("--rate", sweep.rates, "of the link (default 100Gbit)");
  app.add_option("--delay", sweep.delays, "of the link, one way (default 5us)");
  app.add_option("--window", sweep.windows, "in packets, 32 to 4096 (default 1024)");
  app.add_option("--qps", sweep.qps, "queue pairs with the same work (default 1)");
  app.add_flag("--incast", sweep.incast,
               "queue pairs are of 16 hosts at most, which send to one through a switch");
  app.add_option("--depth", sweep.depths,
                 "messages outstanding on each queue pair (default: what keeps the link busy)");
  app.add_option("--messages", sweep.messages,
                 "messages of each queue pair (default: 32,768 packets, 200 messages at least)");
  app.add_option("--points", sweep.points, "values in a range of equal steps (default 11)");
  app.add_option("--seed", sweep.seed, "of everything that is random (default 7)");
}

void declare(CLI::App& app, Options& options) {
  app.footer(kFooter);
  declare_sweep(app, options.sweep);
  app.add_option(
      "--study", options.study,
      "instead of all that: recovery, the study of docs/recovery.md, or one of its parts, "
      "single, stream, qps64, incast64, reorder, single-reads, reads");
  app.add_flag("--golden", options.golden, "")->group("");  // what CI compares
  auto* csv = app.add_flag("--csv", options.csv, "all numbers as CSV, not a table");
  app.add_flag("--svg", options.svg, "a picture")->excludes(csv);
  app.add_option("-o,--output", options.output, "write to this file, not to stdout");
  app.add_option("--jobs", options.jobs,
                 "so many cells at a time (default: one for each processor)")
      ->check(CLI::Range(1, 256));
}

Expected<std::vector<Cell>, std::string> study_named(const Options& options) {
  std::vector<Cell> cells = options.golden ? golden_cells() : study_cells();
  if (options.study == "recovery") return cells;
  std::erase_if(cells, [&](const Cell& cell) { return cell.study != options.study; });
  if (cells.empty())
    return Unexpected(
        fmt::format("--study {:.40}: no such study (there are recovery, single, stream, qps64, "
                    "incast64, reorder, single-reads, reads)",
                    options.study));
  return cells;
}

int write(const Options& options, const std::string& text) {
  if (options.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : fail(fmt::format("stdout: {}", strerror(errno)));
  }
  std::ofstream file(options.output, std::ios::binary);
  file << text;
  file.close();
  return file ? 0 : fail(fmt::format("{}: {}", options.output, strerror(errno)));
}

int simulate(const Options& options) {
  const auto cells = options.study.empty() ? cells_of(options.sweep) : study_named(options);
  if (!cells) return fail(cells.error());
  if (options.svg)
    if (auto drawn = svg_of(*cells, std::vector<Result>(cells->size())); !drawn)
      return fail(drawn.error());  // before the work, not behind it
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](size_t done) {
    if (shows_progress) fmt::print(stderr, "\r{} of {} cells ", done, cells->size());
  };
  const auto results = run_all(*cells, options.jobs, progress);
  if (shows_progress) fmt::print(stderr, "\r\033[K");
  if (!results) return fail(results.error());
  if (options.csv) return write(options, csv_of(*cells, *results));
  if (!options.svg) return write(options, table_of(*cells, *results));
  const auto drawn = svg_of(*cells, *results);
  return drawn ? write(options, *drawn) : fail(drawn.error());
}

}  // namespace
}  // namespace hostnic::study

int main(int argc, char** argv) {
  hostnic::open_standard_descriptors();
  hostnic::study::Options options;
  CLI::App app("what loss, reordering and delay cost: both halves of hostnic in virtual time",
               "hostnic simulate");
  hostnic::study::declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "hostnic simulate: {} (`hostnic simulate --help` explains)\n", error.what());
    return 2;
  }
  return hostnic::study::simulate(options);
}
