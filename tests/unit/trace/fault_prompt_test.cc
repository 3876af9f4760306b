// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/fault_prompt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace hostnic::cli {
namespace {

class FaultPrompt : public testing::Test {
 protected:
  std::string added(const char* rule) {
    const auto answer = add_fault(*board_, rule);
    return answer ? *answer : "refused: " + answer.error();
  }
  std::string removed(const char* number) {
    const auto answer = remove_fault(*board_, number);
    return answer ? *answer : "refused: " + answer.error();
  }
  std::unique_ptr<FaultBoard> board_ = std::make_unique<FaultBoard>();
};

TEST_F(FaultPrompt, AddsListsAndRemoves) {
  EXPECT_EQ(list_faults(*board_), "no rules\n");
  EXPECT_EQ(added("create_cq nth 3 errno 12; reg_mr over 1K errno EIO"),
            "1: fault create_cq nth 3 errno ENOMEM\n2: fault reg_mr over 1024 errno EIO\n");
  EXPECT_EQ(board_->rules.load(), 2u);
  board_->rule[0].met = 4;
  board_->rule[0].fired = 1;
  EXPECT_EQ(removed("2"), "");
  EXPECT_EQ(list_faults(*board_),
            "1: fault create_cq nth 3 errno ENOMEM (met 4 times, fired 1 times)\n");
  EXPECT_EQ(added("fault reg_mr errno EIO"), "3: fault reg_mr errno EIO\n")
      << "the place of one that was removed is not used again";
  const FaultReport report = report_of(*board_);
  ASSERT_EQ(report.rules.size(), 3u);
  EXPECT_FALSE(report.all_fired());
  board_->rule[2].fired = 1;
  EXPECT_TRUE(report_of(*board_).all_fired()) << "one that was removed need not have fired";
  EXPECT_EQ(text_of(report_of(*board_)).find("never fired"), std::string::npos);
}

TEST_F(FaultPrompt, RefusesWhatCanNeverFire) {
  EXPECT_NE(added("creat_cq errno EIO").find("creat_cq"), std::string::npos);
  EXPECT_NE(added("none").find("usage: fault add RULE"), std::string::npos);
  EXPECT_NE(added("event PORT_ERR after 1s").find("give them at the start"), std::string::npos);
  EXPECT_EQ(board_->rules.load(), 0u);
  added("reg_mr errno EIO");
  EXPECT_NE(added("reg_mr nth 2 errno ENOMEM").find("rule 1 takes all"), std::string::npos);
  removed("1");
  EXPECT_EQ(added("reg_mr nth 2 errno ENOMEM"), "2: fault reg_mr nth 2 errno ENOMEM\n");
  for (const char* number : {"1", "0", "3", "x", "2x", "-1"})
    EXPECT_NE(removed(number).find("no such rule"), std::string::npos) << number;
  for (size_t i = 2; i < faults::kMaxFaults; ++i) added("create_cq nth 1 errno EIO");
  EXPECT_EQ(board_->rules.load(), faults::kMaxFaults);
  EXPECT_NE(added("create_cq nth 1 errno EIO").find("at most 16"), std::string::npos);
}

TEST_F(FaultPrompt, BelievesNothingThatProgramsMayHaveWritten) {
  added("reg_mr nth 1 errno EIO");
  board_->rules = 4'000'000'000u;
  memset(board_->rule[1].text, 'x', sizeof(board_->rule[1].text));
  EXPECT_EQ(report_of(*board_).rules.size(), 1u);
  EXPECT_EQ(list_faults(*board_), "1: fault reg_mr nth 1 errno EIO (met 0 times, fired 0 times)\n");
}

TEST_F(FaultPrompt, WithoutABoardThereIsALine) {
  unsetenv(kFaultBoardVariable);
  EXPECT_NE(answer_fault("list").error().find("--fault none"), std::string::npos);
  for (const char* words : {"", "list all", "add", "remove", "drop 1"})
    EXPECT_NE(answer_fault(words).error().find("usage: "), std::string::npos) << words;
}

}  // namespace
}  // namespace hostnic::cli
