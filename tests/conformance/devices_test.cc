// SPDX-License-Identifier: BSD-3-Clause
// What the device says of itself, and that it refuses clearly what it says it hasn't got.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

class Devices : public Conformance {
 protected:
  void refuses(const char* what, int result, int error = EOPNOTSUPP) {
    EXPECT_EQ(result, error) << what;
    errno = 0;
  }
  void makes_none(const char* what, const void* result, int error = EOPNOTSUPP) {
    EXPECT_EQ(result, nullptr) << what;
    EXPECT_EQ(errno, error) << what;
    errno = 0;
  }
  ibv_device_attr_ex device() const {
    ibv_device_attr_ex attr{};
    EXPECT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
    return attr;
  }
};

// ---- questions

TEST_F(Devices, BothQueriesSayTheSame) {
  ibv_device_attr plain{};
  ASSERT_EQ(ibv_query_device(near_host->context, &plain), 0);
  const ibv_device_attr_ex extended = device();
  // Its gaps are zero on both sides. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  EXPECT_EQ(std::memcmp(&plain, &extended.orig_attr, sizeof plain), 0);
  EXPECT_EQ(plain.node_guid, ibv_get_device_guid(near_host->context->device));
  EXPECT_EQ(plain.phys_port_cnt, 1);
  EXPECT_EQ(extended.phys_port_cnt_ex, 1u);
  EXPECT_GT(std::strlen(plain.fw_ver), 0u);
}

TEST_F(Devices, QuestionsThatThereAreNot) {
  ibv_query_device_ex_input input{.comp_mask = 1};
  ibv_device_attr_ex attr{};
  refuses("input", ibv_query_device_ex(near_host->context, &input, &attr), EINVAL);
}

TEST_F(Devices, PortsThatThereAreNot) {
  ibv_port_attr attr{};
  for (const uint8_t port : {0, 2, 255})
    refuses("port", ibv_query_port(near_host->context, port, &attr), EINVAL);
}

TEST_F(Devices, ThePort) {
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(near_host->context, 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_GE(attr.gid_tbl_len, 1);
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  EXPECT_GE(attr.max_msg_sz, 1u << 23) << "1 GiB, or rdma_rxe's 8 MiB where it is like that";
  EXPECT_EQ(attr.lid, 0) << "RoCE";
}

TEST_F(Devices, TheGid) {
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(near_host->context, 1, 0, &entry, 0), 0);
  const ibv_gid plain = near_host->gid();
  EXPECT_EQ(std::memcmp(&entry.gid, &plain, sizeof plain), 0);
  // Where the table is as mlx5 fills it, each address is there by both names.
  EXPECT_TRUE(entry.gid_type == IBV_GID_TYPE_ROCE_V2 || entry.gid_type == IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(entry.port_num, 1u);
  EXPECT_EQ(entry.gid_index, 0u);
  EXPECT_NE(entry.ndev_ifindex, 0u);
  ibv_gid_entry table[64] = {};
  ASSERT_GE(ibv_query_gid_table(near_host->context, table, 64, 0), 1);
  EXPECT_EQ(std::memcmp(&table[0], &entry, sizeof entry), 0);
  const ibv_gid far_gid = far_host->gid();
  EXPECT_NE(std::memcmp(&plain, &far_gid, sizeof plain), 0);
}

TEST_F(Devices, GidsThatThereAreNot) {
  ibv_gid gid{};
  ibv_gid_entry entry{};
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(near_host->context, 1, &attr), 0);
  const int length = attr.gid_tbl_len;
  const auto beyond = static_cast<uint32_t>(length);
  EXPECT_EQ(ibv_query_gid(near_host->context, 1, length, &gid), -1);
  EXPECT_EQ(ibv_query_gid(near_host->context, 2, 0, &gid), -1);
  EXPECT_EQ(ibv_query_gid(near_host->context, 1, -1, &gid), -1);
  refuses("index", ibv_query_gid_ex(near_host->context, 1, beyond, &entry, 0), EINVAL);
  // Entries that hold nothing are zeros to the older question, and nothing to the newer one.
  if (ibv_gid_entry table[64]; ibv_query_gid_table(near_host->context, table, 64, 0) < length) {
    const ibv_gid none{};
    EXPECT_EQ(ibv_query_gid(near_host->context, 1, length - 1, &gid), 0);
    EXPECT_EQ(std::memcmp(&gid, &none, sizeof gid), 0);
    refuses("empty", ibv_query_gid_ex(near_host->context, 1, beyond - 1, &entry, 0), ENODATA);
  }
  refuses("port", ibv_query_gid_ex(near_host->context, 2, 0, &entry, 0), EINVAL);
  refuses("flags", ibv_query_gid_ex(near_host->context, 1, 0, &entry, 1), EINVAL);
  EXPECT_LT(ibv_query_gid_table(near_host->context, &entry, 1, 1), 0);
}

TEST_F(Devices, ThePkey) {
  __be16 key = 0;
  ASSERT_EQ(ibv_query_pkey(near_host->context, 1, 0, &key), 0);
  EXPECT_EQ(key, 0xffff);
  EXPECT_EQ(ibv_get_pkey_index(near_host->context, 1, key), 0);
  EXPECT_EQ(ibv_get_pkey_index(near_host->context, 1, 0x1234), -1);
  EXPECT_EQ(ibv_query_pkey(near_host->context, 1, 1, &key), -1);
  EXPECT_EQ(ibv_query_pkey(near_host->context, 2, 0, &key), -1);
}

TEST_F(Devices, DataInOrderIsNotPromised) {
  connect();
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND})
    EXPECT_EQ(ibv_query_qp_data_in_order(near->qp, opcode, 0), 0) << name_of(opcode);
}

// ---- what there is not: neither advertised nor accepted

TEST_F(Devices, TheWholeAddressSpaceOnDemand) {
  EXPECT_EQ(device().odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT, 0u);
  errno = 0;
  makes_none("MR", ibv_reg_mr(near_host->pd, nullptr, SIZE_MAX,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
}

TEST_F(Devices, OtherTypesOfQueuePairs) {
  EXPECT_EQ(device().orig_attr.device_cap_flags & IBV_DEVICE_XRC, 0u);
  create();
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
                                 IBV_QPT_DRIVER, static_cast<ibv_qp_type>(77)}) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = near->cq;
    init.qp_type = type;
    init.cap = {1, 1, 1, 1, 0};
    errno = 0;
    makes_none("QP", ibv_create_qp(near_host->pd, &init));
  }
  ibv_xrcd_init_attr xrcd{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  makes_none("XRC domain", ibv_open_xrcd(near_host->context, &xrcd));
}

TEST_F(Devices, OtherMemory) {
  EXPECT_EQ(device().max_dm_size, 0u);
  errno = 0;
  makes_none("null MR", ibv_alloc_null_mr(near_host->pd));
  ibv_alloc_dm_attr dm{.length = 4096, .log_align_req = 0, .comp_mask = 0};
  makes_none("device memory", ibv_alloc_dm(near_host->context, &dm));
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  makes_none("dma-buf", ibv_reg_dmabuf_mr(near_host->pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE),
             EINVAL);
  close(fd);
}

TEST_F(Devices, ObjectsOfOtherProcesses) {
  errno = 0;
  makes_none("device", ibv_import_device(near_host->context->cmd_fd));
  makes_none("PD", ibv_import_pd(near_host->context, near_host->pd->handle));
  makes_none("MR", ibv_import_mr(near_host->pd, near_host->mr->handle));
  makes_none("DM", ibv_import_dm(near_host->context, 1));
  ibv_unimport_mr(near_host->mr);  // of what was never imported: nothing
  ibv_unimport_pd(near_host->pd);
}

TEST_F(Devices, EnhancedConnectionEstablishment) {
  connect();
  ibv_ece ece{1, 2, 3};
  refuses("query", ibv_query_ece(near->qp, &ece));
  EXPECT_EQ(ece.vendor_id, 0u);
  EXPECT_EQ(ece.options, 0u);
  ece = {1, 2, 0};
  refuses("set", ibv_set_ece(near->qp, &ece));
}

TEST_F(Devices, RawPackets) {
  const ibv_device_attr_ex attr = device();
  EXPECT_EQ(attr.raw_packet_caps, 0u);
  EXPECT_EQ(attr.max_wq_type_rq, 0u);
  EXPECT_EQ(attr.tso_caps.max_tso, 0u);
  EXPECT_EQ(attr.rss_caps.supported_qpts, 0u);
  create();
  ibv_wq_init_attr wq{};
  wq.wq_type = IBV_WQT_RQ;
  wq.max_wr = wq.max_sge = 1;
  wq.pd = near_host->pd;
  wq.cq = near->cq;
  errno = 0;
  makes_none("WQ", ibv_create_wq(near_host->context, &wq));
  ibv_flow_attr flow{};
  makes_none("flow", ibv_create_flow(near->qp, &flow));
}

TEST_F(Devices, PacketPacing) {
  const ibv_device_attr_ex attr = device();
  EXPECT_EQ(attr.packet_pacing_caps.qp_rate_limit_max, 0u);
  EXPECT_EQ(attr.packet_pacing_caps.supported_qpts, 0u);
}

}  // namespace
}  // namespace hostnic::conformance
