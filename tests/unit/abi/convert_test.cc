// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/convert.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/hostif/version.h"
#include "tests/unit/abi/convert_device.h"

namespace hostnic::abi {
namespace {

LastByteNumbers numbers;

TEST(AbiMtu, EnumAndBytes) {
  EXPECT_EQ(mtu_bytes_from_enum(IBV_MTU_256), 256u);
  EXPECT_EQ(mtu_bytes_from_enum(IBV_MTU_4096), 4096u);
  EXPECT_EQ(mtu_bytes_from_enum(ibv_mtu{}), 0u);
  EXPECT_EQ(mtu_bytes_from_enum(static_cast<ibv_mtu>(6)), 0u);
  EXPECT_EQ(mtu_enum_from_bytes(1024), IBV_MTU_1024);
  EXPECT_EQ(mtu_enum_from_bytes(1500), IBV_MTU_1024);
  EXPECT_EQ(mtu_enum_from_bytes(9000), IBV_MTU_4096);
  EXPECT_EQ(mtu_enum_from_bytes(1), IBV_MTU_256);
}

TEST(AbiRate, IsTheFastestNotAbove) {
  EXPECT_STREQ(link_rate(100'000).sysfs, "100 Gb/sec (4X EDR)");
  EXPECT_STREQ(link_rate(99'999).sysfs, "50 Gb/sec (1X HDR)");
  EXPECT_STREQ(link_rate(1'000).sysfs, "2.5 Gb/sec (1X SDR)");
  EXPECT_EQ(link_rate(UINT32_MAX).rate_mbps, 400'000u);
}

TEST(AbiSendRequest, CarriesEveryField) {
  ibv_sge list[2] = {{0x1000, 10, 7}, {0x2000, 20, 8}};
  ibv_send_wr wr{};
  wr.wr_id = 42;
  wr.sg_list = list;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
  wr.imm_data = htonl(0x01020304);
  wr.wr.rdma.remote_addr = 0xdead000;
  wr.wr.rdma.rkey = 99;
  SgeBuffer sges;
  driver::SendRequest request;
  ASSERT_EQ(to_send_request(wr, sges, request), 0);
  EXPECT_EQ(request.wr_id, 42u);
  EXPECT_EQ(request.op, SendOp::kWriteImm);
  EXPECT_TRUE(request.signalled && request.solicited && request.fence);
  EXPECT_FALSE(request.inline_data);
  ASSERT_EQ(request.sges.size(), 2u);
  EXPECT_EQ(request.sges[1].addr, 0x2000u);
  EXPECT_EQ(request.sges[1].length_bytes, 20u);
  EXPECT_EQ(request.sges[1].lkey, 8u);
  EXPECT_EQ(request.remote_va, 0xdead000u);
  EXPECT_EQ(request.rkey, 99u);
  EXPECT_EQ(request.imm_data, htonl(0x01020304));
}

TEST(AbiSendRequest, AtomicsUseTheirOwnFields) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic.remote_addr = 0x8000;
  wr.wr.atomic.compare_add = 1;
  wr.wr.atomic.swap = 2;
  wr.wr.atomic.rkey = 3;
  SgeBuffer sges;
  driver::SendRequest request;
  ASSERT_EQ(to_send_request(wr, sges, request), 0);
  EXPECT_EQ(request.op, SendOp::kCompareSwap);
  EXPECT_EQ(request.remote_va, 0x8000u);
  EXPECT_EQ(request.compare_add, 1u);
  EXPECT_EQ(request.swap, 2u);
  EXPECT_EQ(request.rkey, 3u);
}

TEST(AbiSendRequest, RefusesWhatItCantExpress) {
  SgeBuffer sges;
  driver::SendRequest request;
  ibv_send_wr wr{};
  for (ibv_wr_opcode opcode : {IBV_WR_TSO, IBV_WR_DRIVER1, static_cast<ibv_wr_opcode>(14)}) {
    wr.opcode = opcode;
    EXPECT_EQ(to_send_request(wr, sges, request), EINVAL) << opcode;
  }
  wr.opcode = IBV_WR_SEND;
  for (int count : {-1, 17, 1 << 30}) {
    wr.num_sge = count;
    EXPECT_EQ(to_send_request(wr, sges, request), EINVAL) << count;
  }
  wr.num_sge = 0;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(to_send_request(wr, sges, request), EINVAL);
}

// A program's structure may contain any number where an enumeration belongs.
// UndefinedBehaviorSanitizer (build-sanitize/) reports one that is loaded as the enumeration.
template <typename Enum>
void put(Enum& to, uint32_t number) {
  static_assert(sizeof(to) == sizeof(number));
  std::memcpy(&to, &number, sizeof(number));
}

TEST(AbiEnumerations, AreReadAsNumbers) {
  for (const uint32_t number : {77u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    driver::QpAttr out;
    ibv_qp_attr attr{};
    put(attr.qp_state, number);
    put(attr.cur_qp_state, number);
    put(attr.path_mtu, number);
    put(attr.path_mig_state, number);
    for (const int mask : {IBV_QP_STATE, IBV_QP_CUR_STATE, IBV_QP_PATH_MTU, IBV_QP_PATH_MIG_STATE})
      EXPECT_EQ(to_qp_attr(attr, static_cast<uint32_t>(mask), device(), numbers, out), EINVAL)
          << number << " mask " << mask;
    ibv_qp_type type;
    put(type, number);
    EXPECT_FALSE(qp_type(type)) << number;
    ibv_send_wr wr{};
    put(wr.opcode, number);
    SgeBuffer sges;
    driver::SendRequest request;
    EXPECT_EQ(to_send_request(wr, sges, request), EINVAL) << number;
  }
}

TEST(AbiCompletion, FillsEveryFieldOfTheWc) {
  driver::Completion done;
  done.wr_id = 5;
  done.status = driver::WcStatus::kRemAccessErr;
  done.opcode = driver::WcOpcode::kRecvRdmaWithImm;
  done.byte_len = 77;
  done.imm_data = htonl(9);
  done.flags = driver::kWcWithImm;
  done.qpn = 0x10002;
  done.src_qpn = 0x10003;
  done.vendor = driver::VendorError::kPeerAccess;
  ibv_wc wc;
  memset(&wc, 0xff, sizeof wc);
  to_wc(done, wc);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.vendor_err, 5u);
  EXPECT_EQ(wc.byte_len, 77u);
  EXPECT_EQ(wc.imm_data, htonl(9));
  EXPECT_EQ(wc.qp_num, 0x10002u);
  EXPECT_EQ(wc.src_qp, 0x10003u);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.pkey_index | wc.slid | wc.sl | wc.dlid_path_bits, 0);
}

TEST(AbiQpAttr, ChecksWhatTheMaskNames) {
  driver::QpAttr out;
  ibv_qp_attr attr{};
  attr.port_num = 2;
  attr.pkey_index = 1;
  attr.path_mtu = IBV_MTU_4096;
  attr.qp_state = IBV_QPS_UNKNOWN;
  EXPECT_EQ(to_qp_attr(attr, 0, device(1024), numbers, out), 0) << "nothing named, nothing checked";
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_PORT, device(), numbers, out), EINVAL);
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_PKEY_INDEX, device(), numbers, out), EINVAL);
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_PATH_MTU, device(1024), numbers, out), EINVAL);
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_PATH_MTU, device(4096), numbers, out), 0);
  EXPECT_EQ(out.path_mtu_bytes, 4096u);
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_STATE, device(), numbers, out), EINVAL);
}

TEST(AbiQpAttr, AddressVector) {
  driver::QpAttr out;
  ibv_qp_attr attr{};
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = gid_from_ip(0x0a000002);
  attr.ah_attr.grh.hop_limit = 1;
  attr.ah_attr.grh.traffic_class = 0x68;
  ASSERT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), 0);
  EXPECT_EQ(out.dest_ip, Ipv4Address{0x0a000002});
  EXPECT_EQ(out.hop_limit, 64);
  EXPECT_EQ(out.traffic_class, 0x68);
  attr.ah_attr.grh.sgid_index = 1;
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL);
  attr.ah_attr.grh.sgid_index = 0;
  attr.ah_attr.grh.dgid.raw[0] = 0xfe;
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL);
  attr.ah_attr.grh.dgid.raw[0] = 0;
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), 0);
  attr.ah_attr.port_num = 2;
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL);
}

TEST(AbiQpAttr, ComesBackAsItWent) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.path_mtu = IBV_MTU_1024;
  attr.rq_psn = 1;
  attr.sq_psn = 2;
  attr.dest_qp_num = 3;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  attr.max_rd_atomic = 4;
  attr.max_dest_rd_atomic = 5;
  attr.min_rnr_timer = 6;
  attr.timeout = 7;
  attr.retry_cnt = 6;
  attr.rnr_retry = 7;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = gid_from_ip(0x0a000002);
  attr.ah_attr.grh.hop_limit = 1;
  attr.ah_attr.grh.flow_label = 0xabcde;
  attr.ah_attr.grh.traffic_class = 0x48;
  attr.ah_attr.sl = 3;
  attr.ah_attr.dlid = 0x17;
  attr.ah_attr.src_path_bits = 9;
  attr.ah_attr.static_rate = IBV_RATE_10_GBPS;
  attr.path_mig_state = IBV_MIG_ARMED;
  attr.en_sqd_async_notify = 1;
  attr.rate_limit = 1000;
  attr.qkey = 11;
  driver::QpAttr inside;
  const uint32_t mask = 0x1ffffff & ~uint32_t{IBV_QP_ALT_PATH | IBV_QP_CAP};
  attr.port_num = 1;
  ASSERT_EQ(to_qp_attr(attr, mask, device(), numbers, inside), 0);
  ibv_qp_attr back;
  from_qp_attr(inside, {.max_send_wr = 8, .max_inline_bytes = 64}, back);
  EXPECT_EQ(back.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(back.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(back.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(back.rq_psn, 1u);
  EXPECT_EQ(back.sq_psn, 2u);
  EXPECT_EQ(back.dest_qp_num, 3u);
  EXPECT_EQ(back.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(back.max_rd_atomic, 4);
  EXPECT_EQ(back.max_dest_rd_atomic, 5);
  EXPECT_EQ(back.min_rnr_timer, 6);
  EXPECT_EQ(back.timeout, 7);
  EXPECT_EQ(back.retry_cnt, 6);
  EXPECT_EQ(back.rnr_retry, 7);
  EXPECT_EQ(back.ah_attr.is_global, 1);
  EXPECT_EQ(memcmp(&back.ah_attr.grh.dgid, &attr.ah_attr.grh.dgid, sizeof(ibv_gid)), 0);
  EXPECT_EQ(inside.hop_limit, 64) << "on the wire";
  EXPECT_EQ(back.ah_attr.grh.hop_limit, 1);
  EXPECT_EQ(back.ah_attr.grh.flow_label, 0xabcdeu);
  EXPECT_EQ(back.ah_attr.grh.traffic_class, 0x48);
  EXPECT_EQ(back.ah_attr.sl, 3);
  EXPECT_EQ(back.ah_attr.dlid, 0x17);
  EXPECT_EQ(back.ah_attr.src_path_bits, 9);
  EXPECT_EQ(back.ah_attr.static_rate, IBV_RATE_10_GBPS);
  EXPECT_EQ(back.ah_attr.port_num, 1);
  EXPECT_EQ(back.port_num, 1);
  EXPECT_EQ(back.path_mig_state, IBV_MIG_ARMED);
  EXPECT_EQ(back.en_sqd_async_notify, 1);
  EXPECT_EQ(back.rate_limit, 1000u);
  EXPECT_EQ(back.qkey, 11u);
  EXPECT_EQ(back.sq_draining, 0);
  EXPECT_EQ(back.cap.max_send_wr, 8u);
  EXPECT_EQ(back.cap.max_inline_data, 64u);
}

// Programs leave the other fields as the stack had them (librdmacm's disconnect does).
TEST(AbiQpAttr, LooksAtNothingThatTheMaskDoesNotName) {
  ibv_qp_attr attr;
  memset(&attr, 0xff, sizeof attr);
  attr.qp_state = IBV_QPS_ERR;
  driver::QpAttr out;
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_STATE, device(), numbers, out), 0);
  EXPECT_EQ(out.state, QpState::kErr);
  attr.path_mig_state = static_cast<ibv_mig_state>(3);
  EXPECT_EQ(to_qp_attr(attr, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE, device(), numbers, out), EINVAL);
}

TEST(AbiAccess, KeepsRightsDropsHintsRefusesTheRest) {
  uint32_t out = 0;
  EXPECT_EQ(
      to_region_access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_HUGETLB |
                           IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED,
                       out),
      0);
  EXPECT_EQ(out, uint32_t{kAccessLocalWrite} | kAccessRemoteWrite | kAccessMwBind |
                     kAccessRelaxedOrdering);
  EXPECT_EQ(to_region_access(1u << 25, out), 0) << "an optional flag of a later rdma-core";
  EXPECT_EQ(to_region_access(IBV_ACCESS_ON_DEMAND, out), 0);
  EXPECT_EQ(out, kAccessOnDemand);
  EXPECT_EQ(to_region_access(1u << 10, out), EINVAL);
  EXPECT_EQ(to_region_access(1u << 31, out), EINVAL);
}

// What programs built with newer headers say: rdma-core's tests skip at EOPNOTSUPP for regions, and
// ask for these rights on every queue pair, whatever the device has.
TEST(AbiAccess, FlushIsRefusedForRegionsAndIgnoredForQueuePairs) {
  constexpr unsigned int kFlushGlobal = 1u << 8, kFlushPersistent = 1u << 9;
  for (const unsigned int flush : {kFlushGlobal, kFlushPersistent}) {
    uint32_t out = 0;
    EXPECT_EQ(to_region_access(IBV_ACCESS_REMOTE_WRITE | flush, out), EOPNOTSUPP);
    EXPECT_EQ(to_qp_access(IBV_ACCESS_REMOTE_WRITE | flush, out), 0);
    EXPECT_EQ(out, uint32_t{kAccessRemoteWrite});
  }
  uint32_t out = 0;
  EXPECT_EQ(to_qp_access(1u << 10, out), EINVAL);
}

TEST(AbiDeviceAttr, AdvertisesTheLimits) {
  ibv_device_attr attr;
  fill_device_attr(device(), attr);
  EXPECT_EQ(attr.max_qp, 100);
  EXPECT_EQ(attr.max_mr, 200);
  EXPECT_EQ(attr.max_sge, 16);
  EXPECT_EQ(attr.max_qp_rd_atom, 16);
  EXPECT_EQ(attr.phys_port_cnt, 1);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_GE(attr.max_cqe, 262'144);
  EXPECT_GT(attr.max_srq, 0);
  EXPECT_EQ(attr.max_srq_wr, 16384);
  EXPECT_EQ(attr.max_srq_sge, 16);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0u);
  EXPECT_EQ(attr.max_mw, 4096);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A, 0u) << "one or the other";
}

// Programs read them, take zeros for a broken device or an old soft RoCE, and choose by them.
TEST(AbiDeviceAttr, NamesAVendorThatNobodyIs) {
  ibv_device_attr attr;
  fill_device_attr(device(), attr);
  constexpr uint32_t kLocallyAdministered = 0x020000, kGroup = 0x010000;
  EXPECT_EQ(attr.vendor_id & (kLocallyAdministered | kGroup), kLocallyAdministered);
  EXPECT_LT(attr.vendor_id, 1u << 24) << "an OUI; soft RoCE's is 0xffffff";
  EXPECT_NE(attr.vendor_id, 0xffffffu);
  EXPECT_NE(attr.vendor_part_id, 0u);
  EXPECT_NE(attr.hw_ver, 0u);
  EXPECT_STREQ(attr.fw_ver, HOSTNIC_VERSION);
}

TEST(AbiDeviceAttr, ServesOlderAndNewerStructures) {
  struct {
    ibv_device_attr_ex attr;
    uint8_t behind[64];
  } room;
  memset(&room, 0xaa, sizeof room);
  const size_t older = offsetof(ibv_device_attr_ex, tso_caps);
  ASSERT_EQ(fill_device_attr_ex(device(), &room.attr, older), 0);
  EXPECT_EQ(room.attr.completion_timestamp_mask, UINT64_MAX);
  EXPECT_EQ(reinterpret_cast<uint8_t*>(&room)[older], 0xaa)
      << "wrote beyond the caller's structure";
  ASSERT_EQ(fill_device_attr_ex(device(), &room.attr, sizeof room.attr + 32), 0);
  EXPECT_EQ(room.behind[31], 0);
  EXPECT_EQ(room.behind[32], 0xaa);
  EXPECT_EQ(fill_device_attr_ex(device(), &room.attr, sizeof(ibv_device_attr) - 1), EINVAL);
}

TEST(AbiPortAttr, ServesTheLegacyStructure) {
  ibv_port_attr attr;
  memset(&attr, 0xaa, sizeof attr);
  ASSERT_EQ(fill_port_attr(device(2048), 1, &attr, kLegacyPortAttrBytes), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_2048);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.lid, 0) << "RoCE";
  DeviceInfo with_lid = device();
  with_lid.lid = 0x1234;
  ibv_port_attr other;
  ASSERT_EQ(fill_port_attr(with_lid, 1, &other, sizeof other), 0);
  EXPECT_EQ(other.lid, 0x1234);
  EXPECT_EQ(attr.port_cap_flags2, 0xaaaa) << "wrote beyond the caller's structure";
  EXPECT_EQ(fill_port_attr(device(), 0, &attr, sizeof attr), EINVAL);
  EXPECT_EQ(fill_port_attr(device(), 2, &attr, sizeof attr), EINVAL);
}

}  // namespace
}  // namespace hostnic::abi
