// SPDX-License-Identifier: BSD-3-Clause
// UC and UD: what arrives, what is dropped without a word, what fails at home and leads to SQE.
#include <endian.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

class Datagrams : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    ConnectOptions options;
    options.type = IBV_QPT_UD;
    connect(options);
    ah_ = address_handle(near_host->pd);
    ASSERT_NE(ah_, nullptr);
  }
  void TearDown() override {
    if (ah_ != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah_), 0);
    }
    Conformance::TearDown();
  }
  ibv_ah* address_handle(ibv_pd* pd) const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = far_host->gid();
    return ibv_create_ah(pd, &attr);
  }
  ibv_send_wr datagram(uint64_t wr_id, ibv_sge* sge) const {
    ibv_send_wr wr = request(wr_id, IBV_WR_SEND, sge, *far_host);
    wr.wr.ud.ah = ah_;
    wr.wr.ud.remote_qpn = far->qp->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
    return wr;
  }
  // A datagram that arrives, behind one that should not have.
  void expect_the_next_arrives() {
    ibv_sge sge = near_host->sge(16);
    ASSERT_EQ(near->post(datagram(77, &sge)), 0);
    near->expect(77);
    EXPECT_EQ(far->next().byte_len, kGrhBytes + 16);
    far->expect_nothing();
  }
  ibv_ah* ah_ = nullptr;
};

TEST_F(Datagrams, ArriveBehindFortyBytes) {
  std::ranges::fill(near_host->bytes().first(100), std::byte{0x3c});
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(100);
  ibv_send_wr wr = datagram(2, &sge);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htobe32(7);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
  const ibv_wc wc = far->expect(1);
  EXPECT_EQ(wc.byte_len, kGrhBytes + 100);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned int>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, htobe32(7));
  EXPECT_EQ(wc.src_qp, near->qp->qp_num);
  EXPECT_EQ(std::memcmp(far_host->bytes().data() + kGrhBytes, near_host->bytes().data(), 100), 0);
}

// RoCEv2 (Annex A17.4.5.1): which network header is in the receive; verbs carry it where a service
// level would be.
TEST_F(Datagrams, TheCompletionSaysWhichHeaderItIs) {
  constexpr uint8_t kUdp = 8, kIpv4 = 2, kIpv6 = 1;
  const bool ipv4 = is_ipv4(near_host->gid());
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(100);
  ASSERT_EQ(near->post(datagram(2, &sge)), 0);
  EXPECT_EQ(near->expect(2).sl, 0) << "a send has no header";
  EXPECT_EQ(far->expect(1).sl, kUdp | (ipv4 ? kIpv4 : kIpv6));
  const ibv_gid source = near_host->gid(), destination = far_host->gid();
  const std::byte* header = far_host->bytes().data();
  if (ipv4) {
    EXPECT_EQ(header[20], std::byte{0x45}) << "IPv4's is the last part";
    EXPECT_EQ(std::memcmp(header + 32, source.raw + 12, 4), 0);
    EXPECT_EQ(std::memcmp(header + 36, destination.raw + 12, 4), 0);
  } else {
    EXPECT_EQ(header[0] >> 4, std::byte{6});
    EXPECT_EQ(std::memcmp(header + 8, source.raw, 16), 0);
    EXPECT_EQ(std::memcmp(header + 24, destination.raw, 16), 0);
  }
}

TEST_F(Datagrams, TheWayBackFromACompletion) {
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(16);
  ASSERT_EQ(near->post(datagram(2, &sge)), 0);
  near->expect(2);
  ibv_wc wc = far->expect(1);
  auto* grh = reinterpret_cast<ibv_grh*>(far_host->bytes().data());
  ibv_ah* back = ibv_create_ah_from_wc(far_host->pd, &wc, grh, 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(near->post_receive(3, 200), 0);
  ibv_sge answer = far_host->sge(24);
  ibv_send_wr wr = request(4, IBV_WR_SEND, &answer, *near_host);
  wr.wr.ud.ah = back;
  wr.wr.ud.remote_qpn = wc.src_qp;
  wr.wr.ud.remote_qkey = kQkey;
  EXPECT_EQ(far->post(wr), 0);
  far->expect(4);
  EXPECT_EQ(near->expect(3).byte_len, kGrhBytes + 24);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
}

TEST_F(Datagrams, AnAddressHandleOfAnotherDomainFailsTheRequest) {
  ibv_pd* other = ibv_alloc_pd(near_host->context);
  ASSERT_NE(other, nullptr);
  ibv_ah* strange = address_handle(other);
  ASSERT_NE(strange, nullptr);
  ibv_sge sge = near_host->sge(16);
  ibv_send_wr wr = datagram(2, &sge);
  wr.wr.ud.ah = strange;
  ASSERT_EQ(near->post(datagram(1, &sge)), 0);
  ASSERT_EQ(near->post(wr), 0);
  ASSERT_EQ(near->post(datagram(3, &sge)), 0);
  near->expect(1);
  near->expect(2, IBV_WC_LOC_QP_OP_ERR);
  near->expect(3, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_SQE));
  ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
  ASSERT_EQ(far->post_receive(4, 200), 0);
  expect_the_next_arrives();
  EXPECT_EQ(ibv_destroy_ah(strange), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Datagrams, QueuePairNumbersHaveTwentyFourBits) {
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(17);
  ibv_send_wr wr = datagram(2, &sge);
  wr.wr.ud.remote_qpn |= 0xab000000;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
  far->expect(1);
}

TEST_F(Datagrams, AReceiveMayBeLongerThanItsRegion) {
  ibv_mr* mr = ibv_reg_mr(far_host->pd, far_host->bytes().data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ibv_sge longer{far_host->address(), 8192, mr->lkey};
  ibv_recv_wr receive{1, nullptr, &longer, 1}, *bad = nullptr;
  ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
  ibv_sge sge = near_host->sge(100);
  ASSERT_EQ(near->post(datagram(2, &sge)), 0);
  near->expect(2);
  EXPECT_EQ(far->expect(1).byte_len, kGrhBytes + 100);
  far.reset();
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Datagrams, OfAnotherQkeyAreDropped) {
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(17);
  ibv_send_wr wr = datagram(2, &sge);
  wr.wr.ud.remote_qkey = kQkey + 1;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
  expect_the_next_arrives();
}

TEST_F(Datagrams, AQkeyWithTheTopBitStandsForTheOwn) {
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ibv_sge sge = near_host->sge(17);
  ibv_send_wr wr = datagram(2, &sge);
  wr.wr.ud.remote_qkey = 0x80000000;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
  far->expect(1);
}

TEST_F(Datagrams, WithoutAReceiveAreDropped) {
  ibv_sge sge = near_host->sge(17);
  ASSERT_EQ(near->post(datagram(2, &sge)), 0);
  near->expect(2);
  far->expect_nothing();
  ASSERT_EQ(far->post_receive(1, 200), 0);
  expect_the_next_arrives();
}

TEST_F(Datagrams, ToNobodySucceed) {
  ibv_sge sge = near_host->sge(17);
  ibv_send_wr wr = datagram(2, &sge);
  wr.wr.ud.remote_qpn = 0xfffff0;
  ASSERT_EQ(near->post(wr), 0);
  near->expect(2);
}

TEST_F(Datagrams, LongerThanTheMtuFailAtHome) {
  ibv_sge sge = near_host->sge(4097);
  ASSERT_EQ(near->post(datagram(2, &sge)), 0);
  near->expect(2, IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_SQE));
}

TEST_F(Datagrams, OnlySendsExist) {
  ibv_sge sge = near_host->sge(8);
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
                               IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    ibv_send_wr wr = datagram(1, &sge);
    wr.opcode = opcode;
    EXPECT_EQ(near->post(wr), EINVAL) << name_of(opcode);
  }
}

TEST_F(Datagrams, NoAddressHandle) {
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = datagram(1, &sge);
  wr.wr.ud.ah = nullptr;
  EXPECT_EQ(near->post(wr), EINVAL);
}

TEST_F(Datagrams, AddressesThatAreNone) {
  ibv_ah_attr good{};
  good.is_global = 1;
  good.port_num = 1;
  good.grh.dgid = far_host->gid();
  for (int spoiled = 0; spoiled < 3; ++spoiled) {
    ibv_ah_attr attr = good;
    if (spoiled == 0) attr.port_num = 2;
    if (spoiled == 1) attr.grh.sgid_index = 9;
    if (spoiled == 2) attr.grh.dgid = {};
    errno = 0;
    EXPECT_EQ(ibv_create_ah(near_host->pd, &attr), nullptr) << spoiled;
    EXPECT_EQ(errno, EINVAL) << spoiled;
  }
}

class Unconnected : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    ConnectOptions options;
    options.type = IBV_QPT_UC;
    connect(options);
  }
};

TEST_F(Unconnected, SendsAndWritesArrive) {
  ASSERT_EQ(far->post_receive(1, 10'000), 0);
  ASSERT_EQ(far->post_receive(2), 0);
  std::ranges::fill(near_host->bytes(), std::byte{0x21});
  ibv_sge sge = near_host->sge(10'000);
  ASSERT_EQ(near->post(request(3, IBV_WR_SEND, &sge, *far_host)), 0);
  ibv_send_wr wr = request(4, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, *far_host);
  set_remote(wr, far_host->address(20'000), far_host->mr->rkey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(3);
  near->expect(4);
  EXPECT_EQ(far->expect(1).byte_len, 10'000u);
  EXPECT_EQ(far->expect(2).byte_len, 10'000u);
  for (size_t start : {0, 20'000})
    EXPECT_TRUE(std::ranges::all_of(far_host->bytes().subspan(start, 10'000),
                                    [](std::byte b) { return b == std::byte{0x21}; }));
}

TEST_F(Unconnected, ReadsAndAtomicsDontExist) {
  ibv_sge sge = near_host->sge(8);
  for (ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD})
    EXPECT_EQ(near->post(request(1, opcode, &sge, *far_host)), EINVAL) << name_of(opcode);
}

TEST_F(Unconnected, ARefusedWriteIsDroppedWithoutAWord) {
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
  std::ranges::fill(far_host->bytes().first(8), std::byte{5});
  std::ranges::fill(near_host->bytes().first(8), std::byte{6});
  set_remote(wr, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(wr), 0);
  near->expect(1);
  far->expect_nothing();
  EXPECT_EQ(far_host->bytes()[0], std::byte{5});
  EXPECT_EQ(far->state(), IBV_QPS_RTS);
}

TEST_F(Unconnected, AnErrorAtHomeLeadsToSqeAndRtsStartsAnew) {
  ibv_sge bad_sge = near_host->sge(8), sge = near_host->sge(8);
  bad_sge.lkey = kBadKey;
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &bad_sge, *far_host)), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(near->reaches(IBV_QPS_SQE));
  // Receives go on.
  ASSERT_EQ(near->post_receive(2, 64), 0);
  ibv_sge from_far = far_host->sge(8);
  ASSERT_EQ(far->post(request(3, IBV_WR_SEND, &from_far, *near_host)), 0);
  far->expect(3);
  near->expect(2);
  ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
  ASSERT_EQ(far->post_receive(4, 64), 0);
  ASSERT_EQ(near->post(request(5, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(5);
  far->expect(4);
}

}  // namespace
}  // namespace hostnic::conformance
