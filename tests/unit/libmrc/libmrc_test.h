// SPDX-License-Identifier: BSD-3-Clause
// A context with what a queue pair needs, on verbs that are fakes.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/libmrc/fake_verbs.h"
#include "verbs-shim/mrc/mrc_ctl.h"

namespace hostnic::libmrc_test {

class Libmrc : public testing::Test {
 protected:
  Libmrc() {
    reset_fake();
    context_ = mrc_create_context(context(), nullptr);
    cq_ = mrc_create_cq(context_, 16, &user_, nullptr, 0);
  }
  ~Libmrc() override {
    fake().error = 0;
    if (qp_ != nullptr) {
      EXPECT_EQ(mrc_destroy_qp(qp_), 0);
    }
    EXPECT_EQ(mrc_destroy_cq(cq_), 0);
    EXPECT_EQ(mrc_destroy_context(context_), 0);
    EXPECT_EQ(fake().alive, 0u);
  }

  mrc_qp_init_attr init() {
    mrc_qp_init_attr attr{};
    attr.qp_context = &user_;
    attr.send_cq = attr.recv_cq = cq_;
    attr.pd = &pd_;
    return attr;
  }
  void create_qp() {
    mrc_qp_init_attr attr = init();
    qp_ = mrc_create_qp(context_, &attr);
    ASSERT_NE(qp_, nullptr);
  }
  // Modifies the state, with bits of MRC's.
  int to(ibv_qp_state state, uint32_t mask = 0, const mrc_qp_attr& attr = {}) {
    ibv_qp_attr verbs{};
    verbs.qp_state = state;
    mrc_qp_attr of_mrc = attr;
    return mrc_modify_qp(qp_, &verbs, IBV_QP_STATE, &of_mrc, static_cast<int>(mask));
  }
  mrc_qp_attr attributes() {
    mrc_qp_attr attr{};
    EXPECT_EQ(mrc_query_qp(qp_, nullptr, 0, &attr, 0, nullptr), 0);
    return attr;
  }

  mrc_context* context_ = nullptr;
  mrc_cq* cq_ = nullptr;
  mrc_qp* qp_ = nullptr;
  ibv_pd pd_{};
  int user_ = 0;
};

}  // namespace hostnic::libmrc_test
