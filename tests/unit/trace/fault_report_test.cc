// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/fault_report.h"

#include <gtest/gtest.h>

namespace hostnic::cli {
namespace {

TEST(FaultReport, SaysWhichNeverFired) {
  FaultReport report{{{"fault a", 9, 2}, {"fault b", 3, 0}, {"fault c", 0, 0}}, 2};
  EXPECT_FALSE(report.all_fired());
  EXPECT_EQ(text_of(report),
            "hostnic fault: faults fired: 1 of 3 (2 times in 2 processes)\n"
            "hostnic fault: never fired: fault b (3 times something matched)\n"
            "hostnic fault: never fired: fault c (nothing that matches has happened)\n");
  report.rules = {{"fault a", 9, 2}};
  EXPECT_TRUE(report.all_fired());
  EXPECT_EQ(text_of(report), "hostnic fault: faults fired: 1 of 1 (2 times in 2 processes)\n");
}

TEST(FaultReport, WithoutAProgramThereIsACause) {
  const FaultReport report{{{"fault a", 0, 0}}, 0};
  EXPECT_NE(text_of(report).find("no program made a call"), std::string::npos);
}

}  // namespace
}  // namespace hostnic::cli
