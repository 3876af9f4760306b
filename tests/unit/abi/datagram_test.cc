// SPDX-License-Identifier: BSD-3-Clause
// UD in the verbs' words: address handles, where sends go, and the way back; and what each type of
// queue pair may post.
#include <arpa/inet.h>

#include <vector>

#include "tests/unit/abi/gids.h"
#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

constexpr uint32_t kOwnIp = 0x0a000001, kPeerIp = 0x0a000002;

ibv_ah_attr attr_to(uint32_t ip) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.dgid = abi::gid_from_ip(ip);
  attr.grh.traffic_class = 0x48;
  attr.grh.hop_limit = 9;
  return attr;
}

// What a datagram from `source` leaves in a receive's first 40 bytes.
ibv_grh grh_from(uint32_t source, uint32_t destination) {
  uint8_t bytes[40] = {};
  bytes[20] = 0x45;
  bytes[21] = 0x48;
  const uint32_t from = htonl(source), to = htonl(destination);
  memcpy(bytes + 32, &from, 4);
  memcpy(bytes + 36, &to, 4);
  ibv_grh grh;
  memcpy(&grh, bytes, sizeof grh);
  return grh;
}

class AbiDatagram : public AbiTest {
 protected:
  void SetUp() override {
    AbiTest::SetUp();
    qp_ = create(IBV_QPT_UD);
    ASSERT_NE(qp_, nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.qkey = 0x1234;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_QKEY), 0);
    EXPECT_EQ(fake::seen().attr.qkey, 0x1234u);
    ibv_ah_attr to_peer = attr_to(kPeerIp);
    ah_ = ibv_create_ah(pd_, &to_peer);
    ASSERT_NE(ah_, nullptr);
  }
  ibv_qp* create(ibv_qp_type type, uint64_t ops = 0) {
    ibv_qp_init_attr_ex init{};
    const ibv_qp_init_attr plain = init_attr(cq_);
    memcpy(&init, &plain, offsetof(ibv_qp_init_attr, sq_sig_all));
    init.qp_type = type;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (ops != 0) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = ops;
    init.pd = pd_;
    return ibv_create_qp_ex(context_, &init);
  }
  ibv_send_wr to(ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
    ibv_send_wr wr = send_wr(1);
    wr.wr.ud = {ah, qpn, qkey};
    return wr;
  }
  int post(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_, &wr, &bad);
  }

  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
};

TEST_F(AbiDatagram, SendsGoWhereTheAddressHandleSays) {
  ASSERT_EQ(post(to(ah_, 0x10002, 0x11111111)), 0);
  const driver::UdAddress& ud = fake::seen().send.ud;
  EXPECT_EQ(ud.ip, Ipv4Address{kPeerIp});
  EXPECT_EQ(ud.qpn, 0x10002u);
  EXPECT_EQ(ud.qkey, 0x11111111u);
  EXPECT_EQ(ud.traffic_class, 0x48);
  EXPECT_EQ(ud.hop_limit, 9);
  ASSERT_EQ(post(to(ah_, 0x10002, 0x80000000)), 0);
  EXPECT_EQ(ud.qkey, 0x1234u) << "the top bit asks for the queue pair's own";
}

TEST_F(AbiDatagram, BadDestinations) {
  EXPECT_EQ(post(to(nullptr, 1, 1)), EINVAL);
  ibv_pd* other = ibv_alloc_pd(context_);
  ibv_ah_attr attr = attr_to(kPeerIp);
  ibv_ah* ah = ibv_create_ah(other, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(fake::seen().posts, 0u);
  EXPECT_EQ(post(to(ah, 1, 1)), 0);
  EXPECT_TRUE(fake::seen().send.ud.other_domain) << "the request fails, not the post";
  EXPECT_EQ(post(to(ah_, 0x12345678, 1)), 0);
  EXPECT_EQ(fake::seen().send.ud.qpn, 0x345678u) << "24 bits are sent";
  EXPECT_FALSE(fake::seen().send.ud.other_domain);
  ibv_ah_attr bad = attr_to(kPeerIp);
  bad.port_num = 2;
  EXPECT_EQ(ibv_create_ah(pd_, &bad), nullptr);
  bad = attr_to(kPeerIp);
  bad.grh.sgid_index = 1;
  EXPECT_EQ(ibv_create_ah(pd_, &bad), nullptr);
  bad = attr_to(0);
  EXPECT_EQ(ibv_create_ah(pd_, &bad), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(AbiDatagram, TheWayBack) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_grh grh = grh_from(kPeerIp, kOwnIp);
  ibv_ah_attr attr;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  EXPECT_EQ(attr.grh.traffic_class, 0x48);
  EXPECT_EQ(abi::ip_from_gid(attr.grh.dgid), Ipv4Address{kPeerIp});
  ibv_ah* ah = ibv_create_ah_from_wc(pd_, &wc, &grh, 1);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(post(to(ah, 5, 6)), 0);
  EXPECT_EQ(fake::seen().send.ud.ip, Ipv4Address{kPeerIp});
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  EXPECT_EQ(ibv_init_ah_from_wc(context_, 2, &wc, &grh, &attr), -1);
  grh = grh_from(kPeerIp, 0x0a000009);
  EXPECT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), -1) << "not for us";
  grh = grh_from(kPeerIp, kOwnIp);
  wc.wc_flags = 0;
  EXPECT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), -1) << "no header there";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_create_ah_from_wc(pd_, &wc, &grh, 1), nullptr);
}

TEST_F(AbiDatagram, ReceiveCompletionsSayThatThereIsAHeader) {
  ibv_recv_wr recv{7, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp_, &recv, &bad), 0);
  ASSERT_EQ(post(to(ah_, qp_->qp_num, 0x1234)), 0);
  ibv_wc wc[2];
  ASSERT_EQ(ibv_poll_cq(cq_, 2, wc), 2);
  EXPECT_EQ(wc[0].wc_flags, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_EQ(wc[0].src_qp, qp_->qp_num);
  EXPECT_EQ(wc[0].sl, 8 | 2) << "of UDP over IPv4";
  EXPECT_EQ(wc[1].sl, 0);
}

TEST_F(AbiDatagram, ExtendedCompletionsNameTheNetworkHeaderToo) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_EX_WITH_SL;
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init = init_attr(ibv_cq_ex_to_cq(cq));
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  ASSERT_NE(qp, nullptr);
  connect(qp);
  ibv_recv_wr recv{7, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &recv, &bad), 0);
  ASSERT_EQ(post(to(ah_, qp->qp_num, 0x1234)), 0);
  ibv_poll_cq_attr polling{};
  ASSERT_EQ(ibv_start_poll(cq, &polling), 0);
  EXPECT_EQ(cq->wr_id, 7u);
  EXPECT_EQ(ibv_wc_read_sl(cq), 8 | 2);
  ibv_end_poll(cq);
}

TEST_F(AbiDatagram, Builder) {
  ibv_qp* qp = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
  ASSERT_NE(qp, nullptr);
  connect(qp);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_ud_addr(ex, ah_, 0x10005, 77);
  ibv_wr_set_sge(ex, 1, 0x1000, 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(fake::seen().send.ud.ip, Ipv4Address{kPeerIp});
  EXPECT_EQ(fake::seen().send.ud.qpn, 0x10005u);
  EXPECT_EQ(fake::seen().send.ud.qkey, 77u);

  // The second has no destination: none is posted.
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_ud_addr(ex, ah_, 0x10005, 77);
  ibv_wr_send(ex);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_rdma_write(ex, 1, 2);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_ud_addr(ex, nullptr, 1, 1);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  EXPECT_EQ(fake::seen().posts, 1u);
}

TEST_F(AbiDatagram, OperationsThatAServiceDoesNotHave) {
  EXPECT_EQ(create(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(create(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ), nullptr);
  EXPECT_EQ(create(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD), nullptr);
  ibv_qp* qp = create(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND);
  ASSERT_NE(qp, nullptr);
  connect(qp);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(ex);
  ibv_wr_rdma_read(ex, 1, 2);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_ud_addr(ex, ah_, 1, 1);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL) << "connected";
}

TEST_F(AbiDatagram, GroupsAreAttachedAndDetached) {
  const ibv_gid group = abi::gid_from_ip(0xef010203), other = abi::gid_from_ip(0xef010204);
  ASSERT_EQ(ibv_attach_mcast(qp_, &group, 0), 0);
  EXPECT_EQ(fake::seen().groups, std::vector{Ipv4Address{0xef010203}});
  EXPECT_EQ(ibv_attach_mcast(qp_, &group, 0), 0) << "again";
  ASSERT_EQ(ibv_attach_mcast(qp_, &other, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(qp_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_detach_mcast(qp_, &group, 0), 0);
  EXPECT_EQ(fake::seen().groups, std::vector{Ipv4Address{0xef010204}});
  errno = 0;
  EXPECT_EQ(ibv_detach_mcast(qp_, &group, 0), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_qp(qp_), EBUSY) << "of the other group";
  EXPECT_EQ(ibv_detach_mcast(qp_, &other, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(qp_), 0);
}

TEST_F(AbiDatagram, GroupsThatAreNone) {
  const ibv_gid host = abi::gid_from_ip(kPeerIp), none{}, group = abi::gid_from_ip(0xef010203);
  EXPECT_EQ(ibv_attach_mcast(qp_, &host, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(qp_, &none, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(qp_, &none, 0), EINVAL);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    ibv_qp* qp = create(type);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), EINVAL) << type;
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_TRUE(fake::seen().groups.empty());
  fake::behaviour().group_error = ENOMEM;
  errno = 0;
  EXPECT_EQ(ibv_attach_mcast(qp_, &group, 0), ENOMEM);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_detach_mcast(qp_, &group, 0), EINVAL) << "it never was";
  EXPECT_EQ(ibv_destroy_qp(qp_), 0);
}

TEST_F(AbiDatagram, GroupsOfADeadDeviceAreNoObstacle) {
  const ibv_gid group = abi::gid_from_ip(0xef010203);
  ASSERT_EQ(ibv_attach_mcast(qp_, &group, 0), 0);
  fake::behaviour().group_error = EIO;
  EXPECT_EQ(ibv_attach_mcast(qp_, &group, 0), EIO);
  EXPECT_EQ(ibv_detach_mcast(qp_, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(qp_), 0);
}

TEST_F(AbiDatagram, SendsGoToGroups) {
  ibv_ah_attr attr = attr_to(0xef010203);
  ibv_ah* ah = ibv_create_ah(pd_, &attr);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(post(to(ah, 0xffffff, 1)), 0);
  EXPECT_EQ(fake::seen().send.ud.ip, Ipv4Address{0xef010203});
  EXPECT_EQ(fake::seen().send.ud.qpn, 0xffffffu);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  attr.grh.dgid = {};
  attr.grh.dgid.raw[0] = 0xff;
  ah = ibv_create_ah(pd_, &attr);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(post(to(ah, 0xffffff, 1)), 0);
  EXPECT_EQ(fake::seen().send.ud.ip, abi::group_from_gid(attr.grh.dgid));
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

// The fake's second device finds hosts by ARP, the first has none to find.
TEST_F(AbiDatagram, AHandleWaitsForTheHostToBeFound) {
  EXPECT_TRUE(fake::seen().hosts_asked_for.empty());
  ibv_context* context = ibv_open_device(list_[1]);
  ASSERT_NE(context, nullptr);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_ah_attr attr = attr_to(kPeerIp);
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(fake::seen().hosts_asked_for.size(), 1u);
  EXPECT_EQ(fake::seen().hosts_asked_for[0], Ipv4Address{kPeerIp});
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(AbiDatagram, TheWayBackFromAGroupLeadsToTheSender) {
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_grh grh = grh_from(kPeerIp, 0xef010203);
  ibv_ah_attr attr;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), 0);
  EXPECT_EQ(abi::ip_from_gid(attr.grh.dgid), Ipv4Address{kPeerIp});
}

}  // namespace
}  // namespace hostnic
