// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/verbs_pair.h"

#include <cerrno>

namespace hostnic::verbs {
namespace {

constexpr uint8_t kPort = 1;
constexpr uint32_t kPsnMask = 0xffffff;

template <typename Wanted>
ibv_context* open_first(Wanted wanted) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return nullptr;
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count; ++i) {
    if (!wanted(list[i], static_cast<size_t>(i))) continue;
    context = ibv_open_device(list[i]);
    error = errno;
    break;
  }
  ibv_free_device_list(list);
  errno = error;
  return context;
}

}  // namespace

ibv_context* open_device(std::string_view name) {
  return open_first(
      [&](ibv_device* device, size_t) { return name == ibv_get_device_name(device); });
}

ibv_context* open_device(size_t place_in_list) {
  return open_first([&](ibv_device*, size_t place) { return place == place_in_list; });
}

ibv_qp_attr init_attributes(const ConnectOptions& how) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qkey = how.qkey;
  attr.qp_access_flags = how.access;
  return attr;
}

ibv_qp_attr rtr_attributes(const ConnectOptions& how, const QpAddress& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = how.mtu;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn & kPsnMask;
  attr.max_dest_rd_atomic = how.rd_atomic;
  attr.min_rnr_timer = how.min_rnr_timer;
  attr.ah_attr.port_num = kPort;
  attr.ah_attr.dlid = peer.lid;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = how.gid_index;
  attr.ah_attr.grh.hop_limit = how.hop_limit;
  return attr;
}

ibv_qp_attr rts_attributes(const ConnectOptions& how, uint32_t own_psn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = own_psn & kPsnMask;
  attr.timeout = how.timeout;
  attr.retry_cnt = how.retry_cnt;
  attr.rnr_retry = how.rnr_retry;
  attr.max_rd_atomic = how.rd_atomic;
  return attr;
}

int to_init(ibv_qp* qp, const ConnectOptions& how) {
  ibv_qp_attr attr = init_attributes(how);
  return ibv_modify_qp(qp, &attr, init_mask(how.type));
}

int to_rtr(ibv_qp* qp, const ConnectOptions& how, const QpAddress& peer) {
  ibv_qp_attr attr = rtr_attributes(how, peer);
  return ibv_modify_qp(qp, &attr, rtr_mask(how.type));
}

int to_rts(ibv_qp* qp, const ConnectOptions& how, uint32_t own_psn) {
  ibv_qp_attr attr = rts_attributes(how, own_psn);
  return ibv_modify_qp(qp, &attr, rts_mask(how.type));
}

}  // namespace hostnic::verbs
