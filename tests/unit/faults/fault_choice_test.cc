// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/faults/fault_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hostnic::faults {
namespace {

FaultRule fault_of(const char* text) {
  const auto faults = parse_faults(text);
  if (!faults || faults->empty()) {
    ADD_FAILURE() << text;
    return {};
  }
  return faults->front();
}

FaultOccasion call(std::string_view name) {
  FaultOccasion occasion;
  occasion.call = name;
  return occasion;
}

TEST(FaultChoice, EachSelectorIsLookedAt) {
  FaultOccasion occasion = call("reg_mr");
  occasion.device = "mlx5_0";
  occasion.size = 4096;
  occasion.now_ns = 1'000'000'000;
  const FaultPlace place{"python3", 2};
  const auto match = [&](const char* text) { return matches(fault_of(text), occasion, place); };
  EXPECT_TRUE(match("reg_mr errno EIO"));
  EXPECT_FALSE(match("create_cq errno EIO"));
  EXPECT_TRUE(match("reg_mr device mlx5_0 program python3 rank 2 errno EIO"));
  EXPECT_FALSE(match("reg_mr device mlx5_1 errno EIO"));
  EXPECT_FALSE(match("reg_mr program python errno EIO"));
  EXPECT_FALSE(match("reg_mr rank 0 errno EIO"));
  EXPECT_FALSE(matches(fault_of("reg_mr rank 0 errno EIO"), occasion, {"python3", {}}));
  EXPECT_TRUE(match("reg_mr over 4095 under 4097 errno EIO"));
  EXPECT_FALSE(match("reg_mr over 4K errno EIO"));
  EXPECT_FALSE(match("reg_mr under 4K errno EIO"));
  EXPECT_TRUE(match("reg_mr after 1s until 2s errno EIO"));
  EXPECT_FALSE(match("reg_mr after 1001ms errno EIO"));
  EXPECT_FALSE(match("reg_mr until 1s errno EIO"));
  EXPECT_FALSE(match("wc status GENERAL_ERR"));
}

TEST(FaultChoice, StatesQueuePairsAndOpcodes) {
  FaultOccasion modify = call("modify_qp");
  modify.state = 2;
  modify.qpn = 17;
  modify.qp_ordinal = 3;
  EXPECT_TRUE(matches(fault_of("modify_qp to RTR qp 17 errno EIO"), modify, {}));
  EXPECT_TRUE(matches(fault_of("modify_qp qp #3 errno EIO"), modify, {}));
  EXPECT_FALSE(matches(fault_of("modify_qp to RTS errno EIO"), modify, {}));
  EXPECT_FALSE(matches(fault_of("modify_qp qp #2 errno EIO"), modify, {}));
  FaultOccasion completion;
  completion.subject = Subject::kCompletion;
  completion.opcode = 2;
  EXPECT_TRUE(matches(fault_of("wc opcode READ status GENERAL_ERR"), completion, {}));
  completion.cq_ordinal = 2;
  EXPECT_TRUE(matches(fault_of("wc cq #2 delay 1ms"), completion, {}));
  EXPECT_FALSE(matches(fault_of("wc cq #1 delay 1ms"), completion, {}));
  EXPECT_FALSE(matches(fault_of("wc opcode SEND status GENERAL_ERR"), completion, {}));
}

// The numbers from 1 to 12 that a rule hits.
std::string hit_by(const char* text) {
  std::string found;
  for (uint64_t number = 1; number <= 12; ++number)
    if (hits(fault_of(text), number, 1)) found += std::to_string(number) + " ";
  return found;
}

TEST(FaultChoice, Counts) {
  EXPECT_EQ(hit_by("reg_mr nth 3 errno EIO"), "3 ");
  EXPECT_EQ(hit_by("reg_mr every 5 errno EIO"), "5 10 ");
  EXPECT_EQ(hit_by("reg_mr first 2 errno EIO"), "1 2 ");
  EXPECT_EQ(hit_by("reg_mr all errno EIO"), "1 2 3 4 5 6 7 8 9 10 11 12 ");
}

TEST(FaultChoice, AProbabilityIsTheSeeds) {
  const FaultRule fault = fault_of("reg_mr 10% errno EIO");
  const auto pattern = [&](uint64_t stream) {
    std::string bits;
    for (uint64_t number = 1; number <= 10'000; ++number)
      bits += hits(fault, number, stream) ? '1' : '0';
    return bits;
  };
  const std::string one = pattern(stream_of(1, 0, "fault a", 0));
  EXPECT_EQ(one, pattern(stream_of(1, 0, "fault a", 0)));
  EXPECT_NE(one, pattern(stream_of(2, 0, "fault a", 0)));
  EXPECT_NE(one, pattern(stream_of(1, 1, "fault a", 0)));
  EXPECT_NE(one, pattern(stream_of(1, 0, "fault b", 0)));
  EXPECT_NE(one, pattern(stream_of(1, 0, "fault a", 1)));
  const auto ones = std::count(one.begin(), one.end(), '1');
  EXPECT_GT(ones, 850);
  EXPECT_LT(ones, 1150);
}

}  // namespace
}  // namespace hostnic::faults
