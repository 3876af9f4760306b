// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "dataplane/cli/seed_search.h"

namespace hostnic::cli {
namespace {

using Words = std::vector<std::string>;

TEST(SeedWords, Ranges) {
  EXPECT_EQ(parse_seeds("1..200")->last, 200u);
  EXPECT_EQ(parse_seeds("7")->first, 7u);
  EXPECT_EQ(parse_seeds("7")->last, 7u);
  for (const char* bad :
       {"", "..", "1..", "..3", "3..2", "1.5", "a..b", "1..2x", "-1..2", "1..18446744073709551615"})
    EXPECT_FALSE(parse_seeds(bad)) << bad;
}

TEST(SeedWords, SeedsAreTaken) {
  Words words = {"lab", "--seeds", "1..3", "--loss", "1%"};
  EXPECT_EQ(take_seeds(words), "1..3");
  EXPECT_EQ(words, (Words{"lab", "--loss", "1%"}));
  EXPECT_EQ(take_seeds(words), std::nullopt);
  words = {"lab", "--seeds=4..5"};
  EXPECT_EQ(take_seeds(words), "4..5");
  words = {"lab", "--seeds"};
  EXPECT_EQ(take_seeds(words), "");
}

TEST(SeedWords, OneSeedTakesThePlaceOfAnother) {
  EXPECT_EQ(with_seed({"lab", "--seed", "9", "-q", "--seed=3"}, 5),
            (Words{"lab", "--seed", "5", "-q"}));
}

TEST(SeedWords, RulesCanBeLeftOut) {
  const Words words = {
      "lab", "--loss", "1%", "-q", "--impair=tx drop nth 3", "--fault", "reg_mr nth 1 errno EIO"};
  EXPECT_EQ(rules_in(words), (std::vector<size_t>{1, 4, 5}));
  EXPECT_EQ(without_rule(words, 1),
            (Words{"lab", "-q", "--impair=tx drop nth 3", "--fault", "reg_mr nth 1 errno EIO"}));
  EXPECT_EQ(without_rule(words, 4),
            (Words{"lab", "--loss", "1%", "-q", "--fault", "reg_mr nth 1 errno EIO"}));
}

TEST(SeedWords, ALineIsForAShell) {
  EXPECT_EQ(shell_line({"hostnic", "--rule", "reg_mr nth 1", "it's", ""}),
            "hostnic --rule 'reg_mr nth 1' 'it'\\''s' ''");
}

}  // namespace
}  // namespace hostnic::cli
