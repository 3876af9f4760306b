// SPDX-License-Identifier: BSD-3-Clause
// Studies run: their numbers, that they are the same each time, and their picture.
#include <gtest/gtest.h>

#include "dataplane/simulation/study/output.h"
#include "dataplane/simulation/study/recovery_cells.h"
#include "dataplane/simulation/study/runner.h"
#include "dataplane/simulation/study/svg.h"
#include "dataplane/simulation/study/sweep.h"

namespace hostnic::study {
namespace {

struct Study {
  std::vector<Cell> cells;
  std::vector<Result> results;
};

Study study(const SweepOptions& options, uint32_t jobs = 2) {
  auto cells = cells_of(options);
  EXPECT_TRUE(cells.has_value()) << cells.error();
  if (!cells) return {};
  auto results = run_all(*cells, jobs, [](size_t) {});
  EXPECT_TRUE(results.has_value()) << results.error();
  return {*cells, results ? *results : std::vector<Result>(cells->size())};
}

SweepOptions small() {
  SweepOptions options;
  options.messages = "100";
  return options;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Study, WithoutLossTheLinkIsFull) {
  SweepOptions options = small();
  options.messages = "1000";
  options.policies = "selective,roce-hold";
  options.rates = "25Gbit";
  const Study s = study(options);
  for (const Result& result : s.results) {
    EXPECT_EQ(result.outcome, Outcome::kDone);
    EXPECT_EQ(result.completed, 1000u);
    EXPECT_EQ(result.sent_packets, 16000u);
    EXPECT_EQ(result.lost_packets + result.resent_packets + result.timeouts, 0u);
    // A packet of 4096 bytes has some 60 more.
    EXPECT_GT(goodput_bits_per_second(result), 0.97 * 25e9 * 4096 / 4166);
    EXPECT_LE(goodput_bits_per_second(result), 25e9);
  }
}

TEST(Study, LossCostsSelectiveRepeatLess) {
  SweepOptions options = small();
  options.policies = "selective,go-back-n";
  options.losses = "1%";
  const Study s = study(options);
  EXPECT_GT(s.results[0].lost_packets, 5u);
  EXPECT_EQ(s.results[0].completed, 100u);
  EXPECT_GT(s.results[1].resent_packets, s.results[0].resent_packets);
  EXPECT_GT(goodput_bits_per_second(s.results[0]), goodput_bits_per_second(s.results[1]));
}

TEST(Study, ImpairmentsOfBothDirectionsHit) {
  SweepOptions options = small();
  options.impairments = {"rx drop nth 7 kind data", "tx drop nth 11 kind data"};
  const Study s = study(options);
  EXPECT_EQ(s.results[0].lost_packets, 2u);
  EXPECT_EQ(s.results[0].completed, 100u);
  EXPECT_NE(csv_of(s.cells, s.results).find("rx drop nth 7 kind data; tx drop nth 11 kind data"),
            std::string::npos);
}

TEST(Study, TheWholeNetworkLostIsAFailureThatIsSaid) {
  SweepOptions options = small();
  options.losses = "100%";
  const Study s = study(options);
  EXPECT_EQ(s.results[0].outcome, Outcome::kFailed);
  EXPECT_NE(table_of(s.cells, s.results).find("a request failed: retries exceeded"),
            std::string::npos);
}

TEST(Study, TheExtremesOfEachOptionRun) {
  for (const auto& [op, message, depth, qps] :
       {std::array{"send", "1", "1024", "1"}, std::array{"read", "1M", "64", "1"},
        std::array{"write", "4K", "16", "64"}, std::array{"send", "8M", "2", "1"}}) {
    SweepOptions options;
    options.op = op;
    options.messages_bytes = message;
    options.depths = depth;
    options.qps = qps;
    options.messages = "20";
    options.incast = std::string(qps) == "64";
    const Study s = study(options);
    EXPECT_EQ(s.results[0].outcome, Outcome::kDone) << op << " of " << message;
    EXPECT_EQ(s.results[0].completed, 20u * s.cells[0].qps) << op << " of " << message;
  }
}

TEST(Study, EqualCallsGiveEqualBytesWhateverTheProcesses) {
  SweepOptions options = small();
  options.policies = "all";
  options.losses = "0,1%";
  const Study one = study(options, 1), three = study(options, 3);
  EXPECT_EQ(csv_of(one.cells, one.results), csv_of(three.cells, three.results));
  EXPECT_EQ(*svg_of(one.cells, one.results), *svg_of(three.cells, three.results));
  options.seed = 8;
  const Study other = study(options);
  EXPECT_NE(csv_of(one.cells, one.results), csv_of(other.cells, other.results));
}

TEST(Study, ThePictureHasAMarkForEachNumber) {
  SweepOptions options = small();
  options.policies = "selective,go-back-n";
  options.losses = "0..2%";
  options.points = 3;
  options.messages_bytes = "4K,64K";
  const Study s = study(options);
  const auto drawn = svg_of(s.cells, s.results);
  ASSERT_TRUE(drawn.has_value());
  // Three panels, two rows, three losses; and the legend.
  EXPECT_EQ(count(*drawn, "<circle"), 3u * 2 * 3 + 1);
  EXPECT_EQ(count(*drawn, "<polygon"), 3u * 2 * 3 + 1);
  EXPECT_EQ(count(*drawn, ">message, bytes: 64K<"), 1u);
  EXPECT_EQ(count(*drawn, "prefers-color-scheme: dark"), 1u);
}

TEST(Study, APictureThatWouldBeTooMuchIsRefused) {
  SweepOptions options;
  options.losses = "0..5%";
  options.windows = "32..4096";
  options.qps = "1,2";
  const auto cells = cells_of(options);
  ASSERT_TRUE(cells.has_value());
  const auto drawn = svg_of(*cells, std::vector<Result>(cells->size()));
  ASSERT_FALSE(drawn.has_value());
  EXPECT_EQ(drawn.error(),
            "--svg: 16 rows of panels are too many (12 at most): vary less, or use --csv");
  EXPECT_FALSE(svg_of(study_cells(), std::vector<Result>(study_cells().size())).has_value());
}

}  // namespace
}  // namespace hostnic::study
