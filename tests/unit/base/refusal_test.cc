// SPDX-License-Identifier: BSD-3-Clause
// Why calls are refused: what is said, how often, and with which errno value.
#include "verbs-shim/base/refusal.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace hostnic {
namespace {

std::string text_of(const Refusal& refusal) {
  char line[512];
  describe(refusal, line, sizeof line);
  return line;
}

TEST(Refusal, EachReasonHasALine) {
  for (int reason = 1; reason < static_cast<int>(Reason::kCount); ++reason) {
    const Refusal refusal{
        .reason = static_cast<Reason>(reason), .given = 3, .limit = 5, .mask = 9, .text = "a text"};
    EXPECT_FALSE(text_of(refusal).empty()) << reason;
  }
}

TEST(Refusal, NamesAndNumbersAreTold) {
  EXPECT_EQ(text_of({Reason::kInlineBytes, 2000, 512}), "inline 2000, 512 granted");
  EXPECT_EQ(text_of({Reason::kSendQueueUnsignalled, 0, 16}),
            "send queue of 16 full, none of them signalled: no completion will free a slot");
  EXPECT_EQ(text_of({Reason::kSendState, 1}),
            "the queue pair is in INIT: sends are posted from RTS on");
  EXPECT_EQ(text_of({Reason::kMissingAttributes, 1, 2, 1u << 7 | 1u << 20}),
            "from INIT to RTR needs IBV_QP_AV, IBV_QP_DEST_QPN");
  EXPECT_EQ(text_of({Reason::kExtraAttributes, 0, 1, 1u << 30}),
            "from RESET to INIT takes no 0x40000000");
  EXPECT_EQ(text_of({Reason::kSges, uint32_t(-1), 16}), "num_sge is -1");
  EXPECT_EQ(text_of({Reason::kSharedWr, 0, 16384}), "max_wr is 0: from 1 to 16384");
  EXPECT_NE(text_of({Reason::kNoGrh}).find("ibv_rc_pingpong: -g 0"), std::string::npos);
  char cut[8];
  describe({Reason::kMissingAttributes, 1, 2, ~0u}, cut, sizeof cut);
  EXPECT_EQ(std::string(cut), "from IN");
}

TEST(Refusal, SaysItsErrnoValue) {
  EXPECT_EQ(refuse({Reason::kSendQueueFull}), ENOMEM);
  EXPECT_EQ(refuse({Reason::kFlushFlags}), EOPNOTSUPP);
  EXPECT_EQ(refuse({Reason::kNoGrh}), EINVAL);
  EXPECT_EQ(refuse({Reason::kNotOfDevice}), ENOENT);
  EXPECT_EQ(refuse({Reason::kNotOffered}), EOPNOTSUPP);
}

// In a lab, which says so in the environment.
TEST(Refusal, IsToldOnceInALab) {
  setenv("HOSTNIC_LAB", "1", 1);
  const auto told = [](Reason reason, int error, const char* call = "ibv_post_send") {
    testing::internal::CaptureStderr();
    refuse({reason, 2000, 512});
    errno = 77;
    tell_refusal(call, 42, error);
    EXPECT_EQ(errno, 77);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(Reason::kInlineBytes, ENOENT), "") << "another error's";
  const std::string line = told(Reason::kInlineBytes, EINVAL);
  EXPECT_NE(line.find("ibv_post_send: QP 0x2a: inline 2000, 512 granted (EINVAL)"),
            std::string::npos)
      << line;
  EXPECT_EQ(told(Reason::kInlineBytes, EINVAL), "");
  EXPECT_NE(told(Reason::kSendState, EINVAL), "") << "another reason";
  // A refusal of another call is told for its own sake.
  for (const char* const call : {"ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv"}) {
    EXPECT_NE(told(Reason::kSges, EINVAL, call).find(call), std::string::npos);
    EXPECT_EQ(told(Reason::kSges, EINVAL, call), "");
  }
  testing::internal::CaptureStderr();
  tell_refusal("ibv_post_send", 42, EINVAL);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nothing was noted since";
}

}  // namespace
}  // namespace hostnic
