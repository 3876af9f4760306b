// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/check_report.h"

#include <gtest/gtest.h>

#include "protocol/hostif/check_board.h"

namespace hostnic::cli {
namespace {

Finding stale_key() {
  Finding finding;
  finding.kind = "stale-key";
  finding.program = "program";
  finding.pid = 17;
  finding.verb = "ibv_post_send";
  finding.text = "SEND: lkey 0x5 is of a region that was deregistered";
  finding.places = {{"post_one", "post.cc:12", "program+0x10"}, {"", "", "libother.so+0x20"}};
  finding.other_word = "deregistered";
  finding.other = {"end", "", "program+0x30"};
  return finding;
}

bool suppressed(const char* text) {
  const auto parsed = Suppressions::parse(text);
  EXPECT_TRUE(parsed);
  return parsed && parsed->contains(stale_key());
}

TEST(CheckReport, AFindingHasItsPlaces) {
  EXPECT_EQ(text_of(stale_key()),
            "hostnic check[17]: stale-key: ibv_post_send: SEND: lkey 0x5 is of a region that was "
            "deregistered\n"
            "    at post_one (post.cc:12)\n"
            "    called from libother.so+0x20\n"
            "    deregistered at end (program+0x30)\n");
}

TEST(CheckReport, SuppressionsNameAnyPlace) {
  EXPECT_TRUE(suppressed("stale-key post_*"));
  EXPECT_TRUE(suppressed("* post.cc:12"));
  EXPECT_TRUE(suppressed("# why\n\nstale-key libother.so*  # known\n"));
  EXPECT_TRUE(suppressed("leak *\nstale-key end"));
  EXPECT_FALSE(suppressed("leak *"));
  EXPECT_FALSE(suppressed("stale-key post"));
  EXPECT_FALSE(suppressed(""));
}

TEST(CheckReport, SuppressionsThatAreNone) {
  EXPECT_NE(Suppressions::parse("\nno-kind *").error().find("line 2: no kind"), std::string::npos);
  EXPECT_NE(Suppressions::parse("leak").error().find("KIND PATTERN"), std::string::npos);
  EXPECT_NE(Suppressions::parse("leak a b").error().find("KIND PATTERN"), std::string::npos);
}

TEST(CheckReport, TheEndCounts) {
  CheckSummary summary;
  EXPECT_EQ(text_of(summary),
            "hostnic check: no program made a call of verbs that could be seen\n");
  summary.processes = 1;
  EXPECT_EQ(text_of(summary), "hostnic check: no findings in 1 process\n");
  summary.findings = {stale_key()};
  summary.processes = 2;
  summary.repeated = 1;
  summary.suppressed = 3;
  summary.lost = 4;
  EXPECT_EQ(text_of(summary),
            "hostnic check: 1 finding in 2 processes, 1 of them again, 3 suppressed\n"
            "hostnic check: 4 further findings had no room\n");
}

TEST(CheckReport, JsonHasTheSame) {
  CheckSummary summary;
  summary.findings = {stale_key()};
  const std::string json = json_of(summary);
  EXPECT_NE(json.find("\"kind\":\"stale-key\""), std::string::npos);
  EXPECT_NE(json.find("\"line\":\"post.cc:12\""), std::string::npos);
  EXPECT_NE(json.find("\"other\":\"deregistered\""), std::string::npos);
}

TEST(CheckReport, EachKindHasARow) {
  const std::string table = table_of_kinds();
  for (const CheckKindInfo& kind : kCheckKinds) {
    ASSERT_NE(kind.name, nullptr);
    EXPECT_NE(table.find(std::string("| `") + kind.name + "` |"), std::string::npos);
  }
}

}  // namespace
}  // namespace hostnic::cli
