// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/convert.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "tests/unit/abi/gids.h"
#include "verbs-shim/abi/device_attr.h"
#include "verbs-shim/abi/limits.h"

namespace hostnic::abi {
namespace {

constexpr uint32_t kOwnIp = 0x0a000001;  // 10.0.0.1

LastByteNumbers numbers;

DeviceInfo device(uint32_t mtu_bytes = 4096) {
  DeviceInfo info{};
  info.ip = kOwnIp;
  set_gids(info, {hostnic::gid_of(Ipv4Address{kOwnIp})});
  info.mtu_bytes = mtu_bytes;
  info.speed_mbps = 100'000;
  info.link_up = 1;
  info.max_qps = 100;
  info.max_mrs = 200;
  return info;
}

TEST(AbiGid, IsTheIpv4MappedAddress) {
  const ibv_gid gid = gid_from_ip(kOwnIp);
  char text[INET6_ADDRSTRLEN];
  ASSERT_NE(inet_ntop(AF_INET6, gid.raw, text, sizeof text), nullptr);
  EXPECT_STREQ(text, "::ffff:10.0.0.1");
  EXPECT_EQ(ip_from_gid(gid), Ipv4Address{kOwnIp});
}

TEST(AbiGid, OthersHaveNoAddress) {
  ibv_gid link_local{};
  link_local.raw[0] = 0xfe;
  link_local.raw[1] = 0x80;
  link_local.raw[15] = 1;
  EXPECT_FALSE(ip_from_gid(link_local));
  EXPECT_FALSE(ip_from_gid(ibv_gid{}));
}

ibv_gid gid_of(std::initializer_list<uint8_t> front, std::initializer_list<uint8_t> back = {}) {
  ibv_gid gid{};
  std::ranges::copy(front, gid.raw);
  std::ranges::copy(back, gid.raw + sizeof gid.raw - back.size());
  return gid;
}

TEST(AbiGroup, Ipv4GroupsAreThemselves) {
  for (const uint32_t ip : {0xe0000001u, 0xef010203u, 0xefffffffu}) {
    EXPECT_EQ(group_from_gid(gid_from_ip(ip)), Ipv4Address{ip});
    ibv_gid encoded = gid_from_ip(ip);
    encoded.raw[0] = 0xff;
    encoded.raw[1] = 0x0e;
    EXPECT_EQ(group_from_gid(encoded), Ipv4Address{ip}) << "as RoCEv1 writes it";
  }
}

// Both ends compute it, maybe with other versions: these numbers stay as they are.
TEST(AbiGroup, OthersHaveOneByHash) {
  const ibv_gid perftest_servers = gid_of({0xff, 1, 0, 0, 0, 2, 0xc9, 0x85}),
                perftest_clients = gid_of({0xff, 1, 0, 0, 0, 2, 0xc9, 0x85}, {1});
  EXPECT_EQ(group_from_gid(perftest_servers), Ipv4Address{0xef45f85c});
  EXPECT_EQ(group_from_gid(perftest_clients), Ipv4Address{0xef45f6ca});
  EXPECT_EQ(group_from_gid(gid_of({0xff, 0x0e}, {0xff, 0xff, 10, 0, 0, 1})),
            Ipv4Address{0xefaa546c})
      << "encodes a host";
}

TEST(AbiGroup, HostsAreNone) {
  EXPECT_FALSE(group_from_gid(gid_from_ip(kOwnIp)));
  EXPECT_FALSE(group_from_gid(gid_from_ip(0xdfffffff)));
  EXPECT_FALSE(group_from_gid(gid_from_ip(0xf0000000)));
  EXPECT_FALSE(group_from_gid(ibv_gid{}));
  EXPECT_FALSE(group_from_gid(gid_of({0xfe, 0x80}, {1})));
}

TEST(AbiGroup, OnlyDatagramsGoThere) {
  ibv_qp_attr attr{};
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  for (const ibv_gid& gid : {gid_from_ip(0xef010203), gid_of({0xff, 0x12}, {7})}) {
    attr.ah_attr.grh.dgid = gid;
    driver::UdAddress path;
    ASSERT_EQ(to_ud_address(attr.ah_attr, device(), numbers, path), 0);
    EXPECT_EQ(path.ip, group_from_gid(gid));
    driver::QpAttr out;
    EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL)
        << "no peer of a connection";
  }
}

TEST(AbiAddress, GidWinsOverLid) {
  ibv_ah_attr av{};
  av.is_global = 1;
  av.dlid = 9;
  av.grh.dgid = gid_from_ip(0xc0a80102);
  EXPECT_EQ(destination_of(av, device()), hostnic::gid_of(Ipv4Address{0xc0a80102}));
}

// As kernels say for RoCE ports, whatever the LID.
TEST(AbiAddress, WithoutAGrhLeadsNowhere) {
  ibv_qp_attr attr{};
  attr.ah_attr.port_num = 1;
  for (const uint16_t lid : {uint16_t{0}, uint16_t{0x105}}) {
    attr.ah_attr.dlid = lid;
    driver::QpAttr out;
    EXPECT_EQ(to_qp_attr(attr, IBV_QP_AV, device(), numbers, out), EINVAL);
    driver::UdAddress path;
    EXPECT_EQ(to_ud_address(attr.ah_attr, device(), numbers, path), EINVAL);
  }
}

TEST(AbiAddress, WhereThereAreLidsOneMeansTheSameNetwork) {
  DeviceInfo info = device();
  info.ip = kOwnIp;
  info.lid = 7;
  ibv_ah_attr av{};
  av.dlid = 0x0105;
  EXPECT_EQ(destination_of(av, info), hostnic::gid_of(Ipv4Address{0x0a000105}));
  av.dlid = 0;
  EXPECT_FALSE(destination_of(av, info));
}

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
  EXPECT_EQ(to_access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_HUGETLB |
                          IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED,
                      out),
            0);
  EXPECT_EQ(out, uint32_t{kAccessLocalWrite} | kAccessRemoteWrite | kAccessMwBind |
                     kAccessRelaxedOrdering);
  EXPECT_EQ(to_access(1u << 25, out), 0) << "an optional flag of a later rdma-core";
  EXPECT_EQ(to_access(IBV_ACCESS_ON_DEMAND, out), 0);
  EXPECT_EQ(out, kAccessOnDemand);
  EXPECT_EQ(to_access(1u << 10, out), EINVAL);
  EXPECT_EQ(to_access(1u << 31, out), EINVAL);
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

// ---- IPv6 and tables of several GIDs

Gid gid_text(const char* text) { return parse_gid(text).value(); }

DeviceInfo dual_stack_device() {
  DeviceInfo info = device();
  set_gids(info, {gid_text("10.0.0.1"), gid_text("fd00::1"), gid_text("fe80::1")});
  return info;
}

ibv_ah_attr path_to(const char* host, uint8_t sgid_index) {
  ibv_ah_attr av{};
  av.port_num = 1;
  av.is_global = 1;
  av.grh.dgid = from_gid(gid_text(host));
  av.grh.sgid_index = sgid_index;
  return av;
}

TEST(AbiAddress, Ipv6HostsGoByTheNumberThatTheNicGives) {
  driver::UdAddress path;
  ASSERT_EQ(to_ud_address(path_to("fd00::7", 1), dual_stack_device(), numbers, path), 0);
  EXPECT_EQ(path.ip, Ipv4Address{0xf0000007});
  EXPECT_EQ(path.source_index, 1);
  ASSERT_EQ(to_ud_address(path_to("fe80::9", 2), dual_stack_device(), numbers, path), 0);
  EXPECT_EQ(path.source_index, 2);
}

TEST(AbiAddress, BothEndsAreOfOneFamily) {
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 0), dual_stack_device(), numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("10.0.0.2", 1), dual_stack_device(), numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("10.0.0.2", 3), dual_stack_device(), numbers, path), EINVAL)
      << "no such GID";
  EXPECT_EQ(to_ud_address(path_to("::ffff:240.0.0.1", 0), dual_stack_device(), numbers, path),
            EINVAL)
      << "a number that stands for an IPv6 address is no address";
}

TEST(AbiAddress, UnusableGidsAreRefused) {
  DeviceInfo info = dual_stack_device();
  info.gids[2].usable = 0;
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fe80::9", 2), info, numbers, path), EINVAL);
}

TEST(AbiAddress, AGidThatWentIsNone) {
  DeviceInfo info = dual_stack_device();
  memset(info.gids[1].gid, 0, sizeof info.gids[1].gid);
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 1), info, numbers, path), EINVAL);
  EXPECT_EQ(to_ud_address(path_to("fe80::9", 2), info, numbers, path), 0);
}

TEST(AbiAddress, TheNicsErrorIsTheCallers) {
  LastByteNumbers full;
  full.error = ENOMEM;
  driver::UdAddress path;
  EXPECT_EQ(to_ud_address(path_to("fd00::7", 1), dual_stack_device(), full, path), ENOMEM);
}

TEST(AbiQpAttr, Ipv6ComesBackAsItWent) {
  ibv_qp_attr attr{};
  attr.ah_attr = path_to("fd00::7", 1);
  attr.port_num = 1;
  driver::QpAttr inside;
  ASSERT_EQ(to_qp_attr(attr, IBV_QP_AV, dual_stack_device(), numbers, inside), 0);
  EXPECT_EQ(inside.dest_ip, Ipv4Address{0xf0000007});
  ibv_qp_attr back;
  from_qp_attr(inside, {}, back);
  EXPECT_EQ(to_gid(back.ah_attr.grh.dgid), gid_text("fd00::7"));
  EXPECT_EQ(back.ah_attr.grh.sgid_index, 1);
}

// A receive's first 40 bytes, as of a datagram over IPv6.
ibv_grh ipv6_header(const char* from, const char* to) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28 | 0x2au << 20);
  grh.sgid = from_gid(gid_text(from));
  grh.dgid = from_gid(gid_text(to));
  return grh;
}

TEST(AbiReturnPath, LeadsBackOverIpv6) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr back{};
  const DeviceInfo info = dual_stack_device();
  ASSERT_EQ(to_return_path(wc, ipv6_header("fd00::7", "fd00::1"), 1, info, back), 0);
  EXPECT_EQ(to_gid(back.grh.dgid), gid_text("fd00::7"));
  EXPECT_EQ(back.grh.sgid_index, 1);
  EXPECT_EQ(back.grh.traffic_class, 0x2a);
  ASSERT_EQ(to_return_path(wc, ipv6_header("fe80::7", "ff0e::ffff:239.1.2.3"), 1, info, back), 0);
  EXPECT_NE(back.grh.sgid_index, 0) << "IPv6 from a group";
  EXPECT_EQ(to_return_path(wc, ipv6_header("fd00::7", "fd00::2"), 1, info, back), EINVAL)
      << "not for us";
}

TEST(AbiReturnPath, LeadsBackBehindAGidThatWent) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_ah_attr back{};
  DeviceInfo info = dual_stack_device();
  memset(info.gids[1].gid, 0, sizeof info.gids[1].gid);
  const std::string last = to_string(gid_in(info.gids[2].gid));
  ASSERT_EQ(to_return_path(wc, ipv6_header("fe80::7", last.c_str()), 1, info, back), 0);
  EXPECT_EQ(back.grh.sgid_index, 2);
}

TEST(AbiWc, SaysWhichNetworkHeaderCame) {
  driver::Completion completion;
  completion.flags = driver::kWcGrh | driver::kWcIpv6;
  ibv_wc wc;
  to_wc(completion, wc);
  EXPECT_EQ(wc.sl, 8 | 1);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  completion.flags = driver::kWcGrh;
  to_wc(completion, wc);
  EXPECT_EQ(wc.sl, 8 | 2);
}

TEST(AbiNetdev, IsWhatHostnicdSays) {
  DeviceInfo info = device();
  snprintf(info.netdev, sizeof info.netdev, "eth1");
  EXPECT_EQ(netdev_name(info), "eth1");
}

}  // namespace
}  // namespace hostnic::abi
