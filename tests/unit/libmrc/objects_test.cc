// SPDX-License-Identifier: BSD-3-Clause
// Devices, contexts, completion queues, hints, events, and the controller's half.
#include <cstring>

#include "tests/unit/libmrc/libmrc_test.h"

namespace hostnic::libmrc_test {
namespace {

TEST_F(Libmrc, ADeviceSaysWhatItHas) {
  mrc_device_attr attr{};
  int supported = 0;
  ASSERT_EQ(mrc_query_device(context(), &attr, &supported), 0);
  EXPECT_EQ(supported, 1);
  EXPECT_EQ(attr.mrc_protocol_version, 1u);
  EXPECT_EQ(attr.mpr_attr.max_mpr, 8);  // 1024 PSNs
  EXPECT_EQ(attr.mpr_attr.mpr_resolution, 1);
  EXPECT_EQ(attr.wimm_attr.max_wimm, 1024);
  EXPECT_EQ(attr.cap, uint32_t{MRC_DEVICE_CAP_DYNAMIC_MPR});
  EXPECT_EQ(mrc_query_device_ex(context(), context_, &attr, &supported), 0);
  ibv_context other{};
  EXPECT_EQ(mrc_query_device_ex(&other, context_, &attr, &supported), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mrc_query_device(context(), nullptr, &supported), -1);
}

TEST_F(Libmrc, OtherDevicesHaveNoMrc) {
  for (const bool is_ours : {false, true}) {
    fake().is_ours = is_ours;
    fake().device.transport = Transport::kRoce;
    mrc_device_attr attr{};
    attr.cap = 1;
    int supported = 1;
    EXPECT_EQ(mrc_query_device(context(), &attr, &supported), 0);
    EXPECT_EQ(supported, 0);
    EXPECT_EQ(attr.cap, 0u);
    EXPECT_EQ(mrc_create_context(context(), nullptr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    mrc_ctl_device_attr control{};
    EXPECT_EQ(mrc_ctl_query_device(context(), &control), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(Libmrc, AVersionOfAnotherMajorNumberIsRefused) {
  mrc_context_attr attr{MRC_API_VER(2, 0, 0), 0};
  EXPECT_EQ(mrc_create_context(context(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // OCP's example says so.
  attr.mrc_api_version_used = MRC_PROTOCOL_VERSION_1;
  mrc_context* made = mrc_create_context(context(), &attr);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(mrc_destroy_context(made), 0);
}

TEST_F(Libmrc, WhatIsInUseCannotBeDestroyed) {
  EXPECT_EQ(mrc_destroy_context(context_), -1);
  EXPECT_EQ(errno, EBUSY);
  fake().error = EBUSY;
  EXPECT_EQ(mrc_destroy_cq(cq_), EBUSY);  // verbs know of its queue pairs
  fake().error = 0;
  create_qp();
  mrc_qp_hint_init_attr attr{};
  attr.attr.num_send_peers = 3;
  mrc_qp_hint* hint = mrc_create_qp_hint(context_, &attr);
  mrc_qp_attr wanted{};
  wanted.qp_hint = hint;
  ASSERT_EQ(to(IBV_QPS_INIT, MRC_QP_HINT, wanted), 0);
  EXPECT_EQ(mrc_destroy_qp_hint(hint), -1);
  EXPECT_EQ(errno, EBUSY);
  wanted.qp_hint = nullptr;
  ASSERT_EQ(mrc_modify_qp(qp_, nullptr, 0, &wanted, MRC_QP_HINT), 0);
  EXPECT_EQ(mrc_destroy_qp_hint(hint), 0);
  EXPECT_EQ(mrc_destroy_qp_hint(hint), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Libmrc, HintsAreKept) {
  mrc_qp_hint_init_attr attr{};
  attr.attr.num_qps_per_peer = 2;
  attr.attr.num_send_peers = 3;
  mrc_qp_hint* hint = mrc_create_qp_hint(context_, &attr);
  mrc_qp_hint_attr change{};
  change.num_send_peers = 9;
  EXPECT_EQ(mrc_modify_qp_hint(hint, &change, MRC_QP_HINT_NUM_SEND_PEERS), 0);
  mrc_qp_hint_attr now{};
  EXPECT_EQ(
      mrc_query_qp_hint(hint, &now, MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS), 0);
  EXPECT_EQ(now.num_qps_per_peer, 2);
  EXPECT_EQ(now.num_send_peers, 9);
  EXPECT_EQ(mrc_query_qp_hint(hint, &now, 1 << 9), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mrc_destroy_qp_hint(hint), 0);
}

TEST_F(Libmrc, PointersThatAreNoObjectsAreRefused) {
  EXPECT_EQ(mrc_create_cq(nullptr, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // A completion queue is no queue pair.
  EXPECT_EQ(mrc_destroy_qp(reinterpret_cast<mrc_qp*>(cq_)), EINVAL);
  EXPECT_EQ(mrc_modify_qp(reinterpret_cast<mrc_qp*>(cq_), nullptr, 0, nullptr, 0), EINVAL);
  EXPECT_EQ(mrc_destroy_context(reinterpret_cast<mrc_context*>(&user_)), -1);
  mrc_context* other = mrc_create_context(context(), nullptr);
  mrc_qp_init_attr attr = init();
  EXPECT_EQ(mrc_create_qp(other, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mrc_destroy_context(other), 0);
}

TEST_F(Libmrc, AFailureOfVerbsIsTheCalls) {
  fake().error = ENOMEM;
  EXPECT_EQ(mrc_create_cq(context_, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  mrc_comp_channel* channel = nullptr;
  EXPECT_EQ(mrc_create_comp_channel(context_, &channel), ENOMEM);
  mrc_qp_init_attr attr = init();
  EXPECT_EQ(mrc_create_qp(context_, &attr), nullptr);
}

TEST_F(Libmrc, EventsAreAboutItsObjectsAlone) {
  create_qp();
  ibv_qp of_verbs{};  // one that the program has made by verbs
  of_verbs.qp_context = &user_;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_ACCESS_ERR;
  event.element.qp = &of_verbs;
  fake().events.push_back(event);
  event.event_type = IBV_EVENT_PORT_ERR;
  event.element.port_num = 1;
  fake().events.push_back(event);
  mrc_async_event got{};
  ASSERT_EQ(mrc_get_async_event(context_, &got), 0);
  EXPECT_EQ(got.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(got.element.port_num, 1);
  EXPECT_EQ(fake().acknowledged, 1u);  // the one that was left out
  mrc_ack_async_event(&got);
  EXPECT_EQ(fake().acknowledged, 2u);
  EXPECT_EQ(mrc_get_async_event(context_, &got), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// ---- the controller's half

TEST_F(Libmrc, AControllerSeesWhatThereIs) {
  mrc_ctl_device_attr attr{};
  int supported = 0;
  ASSERT_EQ(mrc_ctl_query_device_ex(context(), context_, &attr, &supported), 0);
  EXPECT_EQ(supported, 1);
  EXPECT_EQ(attr.ev.ev_max_profiles, 1u);
  EXPECT_EQ(attr.ev.ev_max_count_profile, 16u);
  EXPECT_EQ(attr.ev.ev_mode_mask, uint32_t{MRC_CTL_EV_MODE_AUTO});
  EXPECT_STREQ(attr.cc.algorithms[0], "uet-1.0-nscc");
  EXPECT_EQ(attr.cc.algorithms[1], nullptr);
  EXPECT_EQ(attr.phy_port_mask, 2u);
  EXPECT_EQ(attr.opt_attr, 0u);
  mrc_ctl_ev_profile_attr profile{};
  EXPECT_EQ(mrc_ctl_query_ev_profile(context_, 0, &profile, MRC_CTL_EV_PROFILE_COUNT), 0);
  EXPECT_EQ(profile.ev_count, 16u);
  EXPECT_EQ(profile.cur_profile_state, MRC_CTL_PROFILE_ONLINE);
  mrc_ctl_cc_profile_attr cc{};
  EXPECT_EQ(mrc_ctl_query_cc_profile(context_, 0, &cc, MRC_CTL_CC_PROFILE_ALGORITHM), 0);
  EXPECT_STREQ(cc.algorithm, "uet-1.0-nscc");
  mrc_ctl_port_attr port{};
  EXPECT_EQ(mrc_ctl_query_port(context_, 1, &port, MRC_CTL_PORT_ADMIN_STATE), 0);
  EXPECT_EQ(port.port_admin_state, MRC_CTL_PORT_ADMIN_ENABLED);
  EXPECT_EQ(mrc_ctl_modify_port(context_, 1, &port, MRC_CTL_PORT_ADMIN_STATE), 0);
}

TEST_F(Libmrc, AControllerChangesNothing) {
  const auto refused_with = [](int result, int error) { return result == -1 && errno == error; };
  mrc_ctl_ev_profile_attr ev{};
  EXPECT_TRUE(refused_with(mrc_ctl_modify_ev_profile(context_, 0, &ev, 1), EIO));
  EXPECT_TRUE(refused_with(mrc_ctl_modify_ev_profile(context_, 1, &ev, 1), EINVAL));
  EXPECT_TRUE(
      refused_with(mrc_ctl_query_ev_profile(context_, 0, &ev, MRC_CTL_EV_PROFILE_EV_OP), EINVAL));
  mrc_ctl_ev_fmt_profile_attr fmt{};
  EXPECT_TRUE(refused_with(mrc_ctl_modify_ev_fmt_profile(context_, 0, &fmt, 1), EINVAL));
  EXPECT_TRUE(refused_with(mrc_ctl_query_ev_fmt_profile(context_, 0, &fmt, 1), EINVAL));
  mrc_ctl_cc_profile_attr cc{};
  EXPECT_TRUE(refused_with(mrc_ctl_modify_cc_profile(context_, 0, &cc, 1), EIO));
  EXPECT_TRUE(refused_with(mrc_ctl_query_cc_profile(context_, 2, &cc, 1), EINVAL));
  mrc_ctl_port_attr port{MRC_CTL_PORT_ADMIN_DISABLED};
  EXPECT_TRUE(refused_with(mrc_ctl_modify_port(context_, 1, &port, MRC_CTL_PORT_ADMIN_STATE), EIO));
  EXPECT_TRUE(
      refused_with(mrc_ctl_query_port(context_, 2, &port, MRC_CTL_PORT_ADMIN_STATE), EINVAL));
  EXPECT_EQ(mrc_ctl_create_ev_event_cq(context_, 8, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  mrc_ctl_ep_req request{};
  int answers = 3;
  EXPECT_TRUE(refused_with(mrc_ctl_ep_batch_send_wait(context_, 0, MRC_CTL_EP_OP_EV_PROBE, &request,
                                                      1, 1000, nullptr, &answers),
                           ENOTSUP));
  EXPECT_EQ(answers, 0);
}

}  // namespace
}  // namespace hostnic::libmrc_test
