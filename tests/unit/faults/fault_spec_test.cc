// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/faults/fault_spec.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace hostnic::faults {
namespace {

FaultRule fault_of(const std::string& text) {
  auto faults = parse_faults(text);
  if (!faults) ADD_FAILURE() << text << ": " << faults.error().message();
  if (faults) {
    EXPECT_EQ(faults->size(), 1u) << text;
  }
  return faults && !faults->empty() ? faults->front() : FaultRule{};
}

std::string error_of(const std::string& text) {
  const auto faults = parse_faults(text);
  EXPECT_FALSE(faults.has_value()) << text;
  return faults ? "" : faults.error().message();
}

// Whether the text is its own canonical form.
void expect_canonical(const std::string& text) {
  const FaultRule fault = fault_of(text);
  EXPECT_EQ(to_string(fault), text);
  EXPECT_EQ(fault_of(to_string(fault)), fault);
}

TEST(FaultSpec, TheCanonicalTextIsTheRule) {
  for (const char* text :
       {"fault create_cq nth 3 errno ENOMEM",
        "fault reg_mr over 1073741824 errno ENOMEM",
        "fault modify_qp to RTR delay 2s",
        "fault wc nth 5 qp 17 status WR_FLUSH_ERR vendor 129",
        "fault event PORT_ERR after 1s for 500ms",
        "fault event QP_FATAL qp #2 after 10ms",
        "fault event QP_LAST_WQE_REACHED 5% qp #1 until 3s delay 50ms",
        "fault event SRQ_LIMIT srq #2 after 10ms",
        "fault event CQ_ERR cq #3",
        "fault cm ESTABLISHED first 1 as REJECTED reason 28",
        "fault cm TIMEWAIT_EXIT delay 5s",
        "fault post_send 0.1% device mlx5_0 program python3.11 rank 3 errno ENOMEM",
        "fault create_qp every 4 delay 1ms errno 4000",
        "fault cm ADDR_RESOLVED as ADDR_ERROR reason -110",
        "fault wc under 4096 opcode READ until 3s status GENERAL_ERR",
        "fault wc nth 2 device hnic0 behind hnic1 delay 50ms",
        "fault wc every 3 cq #2 behind #1",
        "fault wc 1% delay 1ms status GENERAL_ERR",
        "fault ack_cq_events delay 1us",
        "fault post 2% qp #3 device hnic0 over 1024 opcode WRITE after 1s delay 5ms"})
    expect_canonical(text);
}

TEST(FaultSpec, Units) {
  EXPECT_EQ(fault_of("fault reg_mr over 1G errno ENOMEM").over, uint64_t{1} << 30);
  EXPECT_EQ(fault_of("reg_mr over 64 K errno ENOMEM").over, 65536u);
  EXPECT_EQ(fault_of("ibv_reg_mr over 0 errno ENOMEM").over, 0u);
  EXPECT_EQ(fault_of("reg_mr over 8388608G errno ENOMEM").over, uint64_t{1} << 53);
  EXPECT_EQ(fault_of("fault modify_qp delay 1.5ms").delay_ns, 1'500'000u);
  EXPECT_EQ(fault_of("fault create_cq errno 12").error, ENOMEM);
}

TEST(FaultSpec, SeveralRules) {
  const auto faults = parse_faults("fault create_cq nth 1 errno EIO; reg_mr delay 1s;");
  ASSERT_TRUE(faults.has_value());
  EXPECT_EQ(faults->size(), 2u);
  EXPECT_TRUE(parse_faults("")->empty());
  EXPECT_TRUE(parse_faults("none")->empty());
  std::string many;
  for (size_t i = 0; i <= kMaxFaults; ++i) many += "reg_mr nth 1 errno EIO;";
  EXPECT_NE(error_of(many).find("the end after 16 rules"), std::string::npos);
}

TEST(FaultSpec, WhatCanNeverFireIsRefused) {
  EXPECT_NE(error_of("fault creat_cq errno ENOMEM").find("\"creat_cq\""), std::string::npos);
  EXPECT_NE(error_of("fault create_cq").find("errno NAME or delay TIME"), std::string::npos);
  EXPECT_NE(error_of("fault ack_cq_events errno EIO").find("found \"errno\""), std::string::npos);
  EXPECT_NE(error_of("fault ack_cq_events nth 1").find("cannot fail"), std::string::npos);
  EXPECT_NE(error_of("fault create_cq to RTR errno EIO").find("found \"to\""), std::string::npos);
  EXPECT_NE(error_of("fault alloc_pd over 1K errno EIO").find("found \"over\""), std::string::npos);
  EXPECT_NE(error_of("fault alloc_pd qp 3 errno EIO").find("found \"qp\""), std::string::npos);
  for (const char* size : {"8388609G", "9007199254740993", "45005272G"})
    EXPECT_NE(error_of("reg_mr over " + std::string(size) + " errno EIO").find("a size such as"),
              std::string::npos);
  EXPECT_NE(error_of("fault reg_mr over 2K under 1K errno EIO").find("never fires"),
            std::string::npos);
  EXPECT_NE(error_of("fault reg_mr after 2s until 1s errno EIO").find("never fires"),
            std::string::npos);
  EXPECT_NE(error_of("fault reg_mr delay .0s").find("never fires"), std::string::npos);
  EXPECT_NE(error_of("fault reg_mr 0% errno EIO").find("never fires"), std::string::npos);
  EXPECT_NE(error_of("fault reg_mr nth 0 errno EIO").find("from 1"), std::string::npos);
  EXPECT_NE(error_of("fault wc status SUCCESS").find("a status but SUCCESS"), std::string::npos);
  EXPECT_NE(error_of("fault wc nth 1").find("behind DEVICE"), std::string::npos);
  EXPECT_NE(error_of("fault wc delay 1ms vendor 3").find("status STATUS"), std::string::npos);
  EXPECT_NE(error_of("fault wc cq #2 behind #2").find("another queue"), std::string::npos);
  EXPECT_NE(error_of("fault wc cq 2 delay 1s").find("# and which"), std::string::npos);
  EXPECT_NE(error_of("fault post nth 1").find("what happens: delay TIME"), std::string::npos);
  EXPECT_NE(error_of("fault post opcode RECV delay 1s").find("send queues"), std::string::npos);
  EXPECT_NE(error_of("fault post errno EIO").find("found \"errno\""), std::string::npos);
  EXPECT_NE(error_of("fault post cq #1 delay 1s").find("found \"cq\""), std::string::npos);
  EXPECT_NE(error_of("fault reg_mr behind hnic1").find("found \"behind\""), std::string::npos);
  EXPECT_NE(error_of("fault wc errno EIO").find("found \"errno\""), std::string::npos);
  EXPECT_NE(error_of("fault event LID_CHANGE for 1s").find("found \"for\""), std::string::npos);
  EXPECT_NE(error_of("fault event LID_CHANGE qp #1").find("found \"qp\""), std::string::npos);
  EXPECT_NE(error_of("fault event LID_CHANGE srq #1").find("found \"srq\""), std::string::npos);
  EXPECT_NE(error_of("fault event QP_FATAL cq #1").find("found \"cq\""), std::string::npos);
  EXPECT_NE(error_of("fault event SRQ_LIMIT srq 1").find("# and which"), std::string::npos);
  EXPECT_NE(error_of("fault event PORT_ERR nth 2").find("comes once"), std::string::npos);
  EXPECT_NE(error_of("fault event PORT_ERR until 1s").find("comes once"), std::string::npos);
  EXPECT_NE(error_of("fault event PORT_ERR delay 1s for 1s").find("the device's own"),
            std::string::npos);
  EXPECT_NE(error_of("fault cm ESTABLISHED reason 3 delay 1s").find("as EVENT"), std::string::npos);
  EXPECT_NE(error_of("fault reg_mr nth 1 every 2 errno EIO").find("only one of"),
            std::string::npos);
}

TEST(FaultSpec, WhatAnEarlierRuleTakesIsRefused) {
  EXPECT_NE(error_of("reg_mr errno EIO; reg_mr nth 2 errno ENOMEM").find("rule 1 takes all"),
            std::string::npos);
  EXPECT_NE(error_of("wc status GENERAL_ERR; wc nth 2 status FATAL_ERR").find("rule 1 takes all"),
            std::string::npos);
  EXPECT_TRUE(parse_faults("wc delay 1ms; wc behind hnic1").has_value());
  EXPECT_TRUE(parse_faults("reg_mr delay 1s; reg_mr nth 2 errno ENOMEM").has_value());
  EXPECT_TRUE(parse_faults("reg_mr nth 1 errno EIO; reg_mr errno ENOMEM").has_value());
  EXPECT_TRUE(parse_faults("reg_mr rank 1 errno EIO; reg_mr errno ENOMEM").has_value());
}

}  // namespace
}  // namespace hostnic::faults
