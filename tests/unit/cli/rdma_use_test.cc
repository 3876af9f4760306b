// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/rdma_use.h"

#include <gtest/gtest.h>

#include <memory>

namespace hostnic::cli {
namespace {

TEST(RdmaUse, DevicesAreAddedUp) {
  const auto board = std::make_unique<UseBoard>();
  board->devices = 2;
  board->device[0].count_request(1000);
  board->device[0].count_request(24);
  board->device[1].count_receive(1024);
  board->device[0].queue_pairs = board->device[1].queue_pairs = 1;
  board->device[2].count_request(5);  // nobody's
  const RdmaUse use = use_of(*board);
  EXPECT_EQ(use.request_messages, 2u);
  EXPECT_EQ(use.receive_messages, 1u);
  EXPECT_EQ(use.bytes(), 1024u);
  EXPECT_EQ(text_of(use), "1.0 KB in 2 messages by 2 queue pairs");
  board->devices = kUseDevices + 3;
  EXPECT_FALSE(use_of(*board).is_complete);
  EXPECT_NE(text_of(use_of(*board)).find("and more: 4099 devices were opened"), std::string::npos);
}

TEST(RdmaUse, Words) {
  RdmaUse use;
  EXPECT_EQ(text_of(use), "0 bytes in 0 messages by 0 queue pairs");
  use.request_bytes = 1'234'567'890;
  use.request_messages = 18'412;
  use.queue_pairs = 1;
  EXPECT_EQ(text_of(use), "1.2 GB in 18,412 messages by 1 queue pair");
  use.request_bytes = 999'999;
  EXPECT_EQ(text_of(use), "1.0 MB in 18,412 messages by 1 queue pair");
  use.request_messages = 1'000'000;
  EXPECT_NE(text_of(use).find("1,000,000 messages"), std::string::npos);
}

TEST(RdmaUse, TooLittleIsAnEndOfItsOwn) {
  RdmaUse use;
  use.devices = 1;
  use.receive_bytes = 65'536;
  EXPECT_EQ(judge_use("lab", "", use, 0), 0);
  EXPECT_EQ(judge_use("lab", "64K", use, 0), 0);
  EXPECT_EQ(judge_use("lab", "65537", use, 0), kTooLittleUse);
  EXPECT_EQ(judge_use("lab", "1G", use, 3), 3);
}

}  // namespace
}  // namespace hostnic::cli
