// SPDX-License-Identifier: BSD-3-Clause
// Events and refused commands of rdma_cm in words, with their numbers.
#include "verbs-shim/cm/event_words.h"

#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>

namespace hostnic::cm_device {
namespace {

TEST(CmEventWords, FailuresAreNamedWithTheirStatus) {
  EXPECT_EQ(event_words(kRejected, 8),
            "RDMA_CM_EVENT_REJECTED: nobody listens on that port there (or with another "
            "rdma_port_space) (status 8)");
  EXPECT_NE(event_words(kRejected, 28).find("rdma_reject"), std::string::npos);
  EXPECT_NE(event_words(kRejected, 99).find("(status 99)"), std::string::npos);
  EXPECT_EQ(event_words(kAddrError, -EHOSTUNREACH),
            "RDMA_CM_EVENT_ADDR_ERROR: no host has that address, or it does not answer (status "
            "-113, EHOSTUNREACH)");
  EXPECT_NE(event_words(kUnreachable, -ETIMEDOUT).find("4791"), std::string::npos);
}

TEST(CmEventWords, WhatIsNoFailureHasNone) {
  for (const uint32_t resolved_established_disconnected : {0u, 9u, 10u})
    EXPECT_EQ(event_words(resolved_established_disconnected, 0), "");
}

TEST(CmEventWords, PrivateDataThatIsTooLongIsNamed) {
  rdma_ucm_connect connect{};
  connect.conn_param.private_data_len = 57;
  const auto bytes = std::as_bytes(std::span(&connect, 1));
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, EINVAL),
            "rdma_connect: private data of 57 bytes, 56 at most (EINVAL)");
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, ENOMEM), "");
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes.first(8), EINVAL), "");
  connect.conn_param.private_data_len = 56;
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, EINVAL), "");
}

}  // namespace
}  // namespace hostnic::cm_device
