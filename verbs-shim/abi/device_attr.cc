// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/device_attr.h"

#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/version.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/limits.h"

namespace hostnic::abi {
namespace {

constexpr uint8_t kPhysLinkUp = 5, kPhysPolling = 2;
constexpr uint8_t kSubnetTimeout = 18;

// The capabilities of on-demand paging: regions of given bounds only, and no atomics, because what
// is reached on demand is not mapped in hostnicd, where alone they would be atomic with the CPU's.
ibv_odp_caps on_demand_caps(const DeviceOffer& offer) {
  ibv_odp_caps caps{};
  if (offer.lacks(kMissingOnDemand)) return caps;
  uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
  if (!offer.lacks(kMissingSrq)) messages |= IBV_ODP_SUPPORT_SRQ_RECV;
  caps.general_caps = IBV_ODP_SUPPORT;
  caps.per_transport_caps.rc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  if (!offer.lacks(kMissingUc))
    caps.per_transport_caps.uc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE;
  if (!offer.lacks(kMissingUd)) caps.per_transport_caps.ud_odp_caps = messages;
  return caps;
}

}  // namespace

void fill_device_attr(const DeviceInfo& info, ibv_device_attr& attr) {
  const DeviceOffer& offer = info.offer;
  attr = {};
  snprintf(attr.fw_ver, sizeof attr.fw_ver, "%s", HOSTNIC_VERSION);
  attr.node_guid = info.node_guid;
  attr.sys_image_guid = info.node_guid;
  attr.vendor_id = offer.vendor_id;
  attr.vendor_part_id = offer.vendor_part_id;
  attr.hw_ver = kHardwareVersion;
  attr.max_mr_size = kMaxMrBytes;
  attr.page_size_cap = ~uint64_t{0xfff};
  attr.max_qp = static_cast<int>(info.max_qps);
  attr.max_qp_wr = static_cast<int>(offer.max_qp_wr);
  attr.device_cap_flags = device_capabilities(info);
  if (!offer.lacks(kMissingWindows)) attr.max_mw = kMaxWindows;
  attr.max_sge = static_cast<int>(offer.max_sge);
  attr.max_sge_rd = static_cast<int>(offer.max_sge);
  attr.max_cq = static_cast<int>(offer.max_cqs);
  attr.max_cqe = static_cast<int>(offer.max_cqe);
  attr.max_mr = static_cast<int>(info.max_mrs);
  attr.max_pd = static_cast<int>(offer.max_pds);
  attr.max_qp_rd_atom = static_cast<int>(offer.max_qp_rd_atom);
  attr.max_qp_init_rd_atom = static_cast<int>(offer.max_qp_rd_atom);
  attr.max_res_rd_atom = static_cast<int>(offer.max_qp_rd_atom * info.max_qps);
  attr.atomic_cap = info.atomic_on_host ? IBV_ATOMIC_GLOB : IBV_ATOMIC_HCA;
  attr.max_mcast_grp = kMaxGroups;
  attr.max_mcast_qp_attach = kMaxGroupMembers;
  attr.max_total_mcast_qp_attach = kMaxGroups * kMaxGroupMembers;
  attr.max_ah = static_cast<int>(offer.max_ahs);
  if (!offer.lacks(kMissingSrq)) {
    attr.max_srq = static_cast<int>(offer.max_srqs);
    attr.max_srq_wr = static_cast<int>(offer.max_srq_wr);
    attr.max_srq_sge = static_cast<int>(offer.max_srq_sge);
  }
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = static_cast<uint8_t>(offer.local_ca_ack_delay);
  attr.phys_port_cnt = 1;
}

int fill_device_attr_ex(const DeviceInfo& info, ibv_device_attr_ex* attr, size_t size_bytes) {
  if (size_bytes < sizeof attr->orig_attr) return EINVAL;
  ibv_device_attr_ex full{};
  fill_device_attr(info, full.orig_attr);
  full.odp_caps = on_demand_caps(info.offer);
  if (!info.offer.lacks(kMissingTimestamps)) {
    full.completion_timestamp_mask = UINT64_MAX;
    full.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
  }
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
  full.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  full.phys_port_cnt_ex = 1;
  // A caller with newer headers knows fields that we don't have: they are zero.
  memset(attr, 0, size_bytes);
  memcpy(attr, &full, std::min(size_bytes, sizeof full));
  return 0;
}

int fill_port_attr(const DeviceInfo& info, uint32_t port, void* attr, size_t size_bytes) {
  if (port != kPortNumber) return EINVAL;
  const LinkRate& rate = link_rate(info.speed_mbps);
  ibv_port_attr full{};
  full.state = info.link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  full.max_mtu = IBV_MTU_4096;
  full.active_mtu = mtu_enum_from_bytes(info.mtu_bytes);
  full.gid_tbl_len = static_cast<int>(info.gid_table_length);
  static_assert(kPortCapabilities == (IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS));
  full.port_cap_flags = kPortCapabilities;
  full.max_msg_sz = info.offer.max_message_bytes;
  full.pkey_tbl_len = 1;
  full.lid = static_cast<uint16_t>(info.lid);
  full.max_vl_num = 1;
  full.subnet_timeout = kSubnetTimeout;
  full.active_width = rate.width;
  full.active_speed = rate.speed;
  full.phys_state = info.link_up ? kPhysLinkUp : kPhysPolling;
  full.link_layer = IBV_LINK_LAYER_ETHERNET;
  memset(attr, 0, size_bytes);
  memcpy(attr, &full, std::min(size_bytes, sizeof full));
  return 0;
}

uint32_t netdev_index(const DeviceInfo& info) { return if_nametoindex(netdev_name(info).c_str()); }

}  // namespace hostnic::abi
