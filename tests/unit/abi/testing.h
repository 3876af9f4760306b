// SPDX-License-Identifier: BSD-3-Clause
// A fixture with an open device on the fake driver, and the objects that most tests need.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "tests/unit/abi/fake_driver.h"
#include "verbs-shim/abi/convert.h"

namespace hostnic {

class AbiTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::behaviour() = {};
    fake::seen() = {};
    list_ = ibv_get_device_list(nullptr);
    ASSERT_NE(list_, nullptr);
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    ASSERT_TRUE(pd_ != nullptr && cq_ != nullptr);
  }
  // What a test leaves is cleaned up by closing the device; that is tested too.
  void TearDown() override {
    if (context_ != nullptr) {
      EXPECT_EQ(ibv_close_device(context_), 0);
    }
    ibv_free_device_list(list_);
    EXPECT_EQ(fake::seen().qps, 0u);
    EXPECT_EQ(fake::seen().mrs, 0u);
    EXPECT_EQ(fake::seen().srqs, 0u);
    EXPECT_EQ(fake::seen().windows, 0u);
  }

  static ibv_qp_init_attr init_attr(ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 32};
    init.qp_type = IBV_QPT_RC;
    return init;
  }
  ibv_qp* create_qp() {
    ibv_qp_init_attr init = init_attr(cq_);
    return ibv_create_qp(pd_, &init);
  }
  // To RTS, sending to itself (the fake needs no steps between).
  static void connect(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.dest_qp_num = qp->qp_num;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN), 0);
  }
  static ibv_send_wr send_wr(uint64_t id, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }

  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

}  // namespace hostnic
