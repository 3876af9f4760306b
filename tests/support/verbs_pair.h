// SPDX-License-Identifier: BSD-3-Clause
// What the verbs programs of tests and benchmarks do alike: open a device, and connect two queue
// pairs to each other, step by step, so that a test can also do a step wrong or leave it out. What
// to do when a call fails, and who owns which object, is each program's own.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hostnic::verbs {

// Null, with errno, where there is none of that name or place, or where it can't be opened.
ibv_context* open_device(std::string_view name);
ibv_context* open_device(size_t place_in_list);

// What the other side needs to connect to a queue pair.
struct QpAddress {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid{};
  uint16_t lid = 0;
};

// How a queue pair is connected. All of it is for RC; the other types have no use for some.
struct ConnectOptions {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t timeout = 14;  // 4.096 us * 2^14 = 67 ms
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;       // for ever
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint8_t rd_atomic = 1;       // READs and atomics under way, of either side
  uint8_t gid_index = 0;
  uint8_t hop_limit = 64;
  uint32_t qkey = 0;  // UD
};

// The attributes of each step, and the mask that goes with them.
ibv_qp_attr init_attributes(const ConnectOptions& how);
ibv_qp_attr rtr_attributes(const ConnectOptions& how, const QpAddress& peer);
ibv_qp_attr rts_attributes(const ConnectOptions& how, uint32_t own_psn);
constexpr int init_mask(ibv_qp_type type) {
  const int common = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  return common | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}
constexpr int rtr_mask(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return IBV_QP_STATE;
  const int connected =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type == IBV_QPT_UC) return connected;
  return connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}
constexpr int rts_mask(ibv_qp_type type) {
  if (type != IBV_QPT_RC) return IBV_QP_STATE | IBV_QP_SQ_PSN;
  return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC;
}

// What ibv_modify_qp answers.
int to_init(ibv_qp* qp, const ConnectOptions& how);
int to_rtr(ibv_qp* qp, const ConnectOptions& how, const QpAddress& peer);
int to_rts(ibv_qp* qp, const ConnectOptions& how, uint32_t own_psn);

}  // namespace hostnic::verbs
