// SPDX-License-Identifier: BSD-3-Clause
// Which cells the options of `hostnic simulate` ask for.
#include "dataplane/simulation/study/sweep.h"

#include <gtest/gtest.h>

#include "dataplane/simulation/study/recovery_cells.h"

namespace hostnic::study {
namespace {

std::vector<Cell> cells(const SweepOptions& options) {
  auto made = cells_of(options);
  EXPECT_TRUE(made.has_value()) << made.error();
  return made ? *made : std::vector<Cell>{};
}

std::string error(const SweepOptions& options) {
  auto made = cells_of(options);
  return made ? "" : made.error();
}

TEST(Sweep, EveryCombinationIsACell) {
  SweepOptions options;
  options.policies = "all";
  options.losses = "0..5%";
  options.messages_bytes = "32K,64K";
  const auto made = cells(options);
  ASSERT_EQ(made.size(), 5u * 2 * 11);
  // Policy by policy, and loss goes fastest.
  EXPECT_STREQ(recovery_name(made[0]), "selective");
  EXPECT_EQ(made[1].loss_ppm, 5000u);
  EXPECT_EQ(made[11].message_bytes, 65536u);
  EXPECT_STREQ(recovery_name(made.back()), "roce");
  EXPECT_EQ(made.back().loss_ppm, 50000u);
  const auto dimensions = dimensions_of(made);
  ASSERT_EQ(dimensions.size(), 2u);  // the depth follows from the size
  EXPECT_STREQ(dimensions[0]->title, "loss");
}

TEST(Sweep, TheLinkIsKeptBusy) {
  SweepOptions options;
  EXPECT_EQ(cells(options)[0].depth, 32u);  // 2 MiB
  options.delays = "1ms";
  EXPECT_EQ(cells(options)[0].depth, 1024u);
  options.depths = "3";
  EXPECT_EQ(cells(options)[0].depth, 3u);
}

TEST(Sweep, WithoutReorderingThereIsOneDistance) {
  SweepOptions options;
  options.reorders = "0,1%";
  options.distances = "8,16";
  EXPECT_EQ(cells(options).size(), 3u);
}

TEST(Sweep, ImpairmentsAreThoseOfLabs) {
  SweepOptions options;
  options.impairments = {"drop 1% kind ack", "tx duplicate nth 5"};
  const Cell cell = cells(options)[0];
  EXPECT_EQ(cell.impair_rx.rules.size(), 1u);
  EXPECT_EQ(cell.impair_tx.rules.size(), 1u);
  options.impairments = {"drop 1x"};
  EXPECT_EQ(error(options), "--impair: " + impair::parse_spec("drop 1x").error().message());
}

TEST(Sweep, ErrorsNameTheOption) {
  const auto with = [](auto&& change) {
    SweepOptions options;
    change(options);
    return error(options);
  };
  EXPECT_EQ(with([](auto& o) { o.policies = "best"; }),
            "--policy best: no such policy (there are selective, go-back-n, whole-message, "
            "roce-hold, roce, and all)");
  EXPECT_EQ(with([](auto& o) { o.op = "atomic"; }), "--op atomic: use write, send or read");
  EXPECT_EQ(with([](auto& o) { o.qps = "65"; }), "--qps 65: use 1 to 64");
  EXPECT_EQ(with([](auto& o) { o.points = 1; }), "--points: use 2 to 1000");
  EXPECT_EQ(with([](auto& o) {
              o.losses = "0..5%";
              o.delays = "0..1ms";
              o.points = 1000;
            }),
            "that is more than 10000 cells");
  EXPECT_EQ(with([](auto& o) { o.messages = "1000000"; }),
            "1000000 messages of 64K on 1 QPs are 16000000 packets (10000000 at most in a cell: "
            "--messages)");
  EXPECT_EQ(with([](auto& o) {
              o.messages_bytes = "8M";
              o.depths = "1024";
            }),
            "1024 messages of 8M outstanding on 1 QPs need 8200 MiB (1024 at most)");
}

TEST(Sweep, TheRecoveryStudyIsWhatItWas) {
  EXPECT_EQ(study_cells().size(), 1316u);
  EXPECT_EQ(golden_cells().size(), 86u);
}

}  // namespace
}  // namespace hostnic::study
