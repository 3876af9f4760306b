// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "protocol/hostif/gpu_options.h"

namespace hostnic {
namespace {

TEST(GpuOptions, NothingMeansOne) {
  const auto options = parse_gpu_options("");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->count, 1u);
  EXPECT_FALSE(options->loads);
  EXPECT_TRUE(options->peers);
}

TEST(GpuOptions, WordsComeInAnyOrder) {
  const auto options = parse_gpu_options("loads,3,memory=512M,nopeer");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->count, 3u);
  EXPECT_EQ(options->memory_bytes, uint64_t{512} << 20);
  EXPECT_TRUE(options->loads);
  EXPECT_FALSE(options->peers);
}

TEST(GpuOptions, TheLastCountCounts) { EXPECT_EQ(parse_gpu_options("4,2")->count, 2u); }

TEST(GpuOptions, SizesHaveUnits) {
  EXPECT_EQ(parse_gpu_options("memory=4096")->memory_bytes, 4096u);
  EXPECT_EQ(parse_gpu_options("memory=8G")->memory_bytes, uint64_t{8} << 30);
}

TEST(GpuOptions, WhatIsNoneIsNamed) {
  for (const char* text : {"0", "17", "x", "2,fast", "memory=", "memory=0", "memory=1K", "-1",
                           "memory=99999999999999999999G", "2,,loads"}) {
    const auto options = parse_gpu_options(text);
    ASSERT_FALSE(options) << text;
    EXPECT_NE(options.error().find("use 1 to 16 GPUs"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace hostnic
