// SPDX-License-Identifier: BSD-3-Clause
// Where fields lie, and values: what programs are compiled with is OCP's headers, of which these
// are the numbers (docs/mrc.md, "libmrc.so").
#include <gtest/gtest.h>

#include <cstddef>

#include "verbs-shim/mrc/mrc_ctl.h"

namespace {

TEST(LibmrcLayout, StructuresOfPrograms) {
  EXPECT_EQ(sizeof(mrc_device_attr), 20u);
  EXPECT_EQ(offsetof(mrc_device_attr, wimm_attr.max_wimm_dest), 6u);
  EXPECT_EQ(offsetof(mrc_device_attr, mpr_attr.mpr_resolution), 9u);
  EXPECT_EQ(offsetof(mrc_device_attr, qp_attr.max_qp_hint), 12u);
  EXPECT_EQ(offsetof(mrc_device_attr, cap), 16u);
  EXPECT_EQ(sizeof(mrc_context_attr), 8u);
  EXPECT_EQ(sizeof(mrc_qp_hint_attr), 140u);
  EXPECT_EQ(sizeof(mrc_qp_init_attr), 72u);
  EXPECT_EQ(offsetof(mrc_qp_init_attr, cap), 24u);
  EXPECT_EQ(offsetof(mrc_qp_init_attr, sq_sig_all), 44u);
  EXPECT_EQ(offsetof(mrc_qp_init_attr, send_ops_flags), 56u);
  EXPECT_EQ(offsetof(mrc_qp_init_attr, protocol_version), 64u);
  EXPECT_EQ(sizeof(mrc_qp_attr), 176u);
  EXPECT_EQ(offsetof(mrc_qp_attr, mpr.mpr_dest), 1u);
  EXPECT_EQ(offsetof(mrc_qp_attr, wimm.max_wimm), 2u);
  EXPECT_EQ(offsetof(mrc_qp_attr, timeout), 6u);
  EXPECT_EQ(offsetof(mrc_qp_attr, profile.cc_profile_id), 16u);
  EXPECT_EQ(offsetof(mrc_qp_attr, retry.exp_cnt), 25u);
  EXPECT_EQ(offsetof(mrc_qp_attr, qp_hint), 32u);
  EXPECT_EQ(offsetof(mrc_qp_attr, cap), 40u);
  EXPECT_EQ(offsetof(mrc_qp_attr, vendor_cfg), 44u);
  EXPECT_EQ(sizeof(mrc_async_event), 16u);
  EXPECT_EQ(offsetof(mrc_async_event, event_type), 8u);
}

TEST(LibmrcLayout, StructuresOfControllers) {
  EXPECT_EQ(sizeof(mrc_ctl_device_attr), 72u);
  EXPECT_EQ(offsetof(mrc_ctl_device_attr, ev.ev_mode_mask), 36u);
  EXPECT_EQ(offsetof(mrc_ctl_device_attr, cc.algorithms), 56u);
  EXPECT_EQ(offsetof(mrc_ctl_device_attr, phy_port_mask), 64u);
  EXPECT_EQ(sizeof(mrc_ctl_port_attr), 4u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_fmt_field), 1u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_fmt_profile_attr), 168u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_fmt_profile_attr, ev_fmt_op.fmt_fields), 24u);
  EXPECT_EQ(sizeof(mrc_ctl_ev), 33u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_field), 20u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_op_entry), 76u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_op_entry, state), 68u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_profile_attr), 216u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_profile_attr, ev_fmt_profile_id), 16u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_profile_attr, ev_op.entries), 48u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_profile_attr, ev_fields_op.field_count), 80u);
  EXPECT_EQ(sizeof(mrc_ctl_cc_profile_attr), 152u);
  EXPECT_EQ(sizeof(mrc_ctl_cc_nscc_cfg), 52u);
  EXPECT_EQ(offsetof(mrc_ctl_cc_nscc_cfg, max_cwnd), 36u);
  EXPECT_EQ(offsetof(mrc_ctl_cc_nscc_cfg, target_delay), 48u);
  EXPECT_EQ(sizeof(mrc_ctl_ev_event), 56u);
  EXPECT_EQ(offsetof(mrc_ctl_ev_event, drop_count), 44u);
  EXPECT_EQ(sizeof(mrc_ctl_ep_req), 88u);
  EXPECT_EQ(offsetof(mrc_ctl_ep_req, op), 80u);
  EXPECT_EQ(sizeof(mrc_ctl_ep_rsp), 12u);
}

TEST(LibmrcLayout, Versions) {
  uint32_t current = 0, last = 1, vendor = 0, last_vendor = 1;
  mrc_query_version(&current, &last, &vendor, &last_vendor);
  EXPECT_EQ(current, 0x01000001u);
  EXPECT_EQ(last, 0u);
  EXPECT_EQ(vendor, 0x01000000u);
  EXPECT_EQ(last_vendor, 0u);
  mrc_ctl_query_version(&current, nullptr, nullptr, nullptr);
  EXPECT_EQ(current, 0x01000001u);
}

}  // namespace
