// SPDX-License-Identifier: BSD-3-Clause
// UD multicast: who may join a group, who hears it, and what joining forbids.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1) << text;
  return gid;
}

class Groups : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure()) return;
    ConnectOptions options;
    options.type = IBV_QPT_UD;
    connect(options);
  }
  void TearDown() override {
    for (ibv_ah* ah : ahs_) EXPECT_EQ(ibv_destroy_ah(ah), 0);
    for (const auto& [qp, gid] : joined_) ibv_detach_mcast(qp, &gid, 0);  // it may have left
    Conformance::TearDown();
  }
  int join(const Endpoint& end, const ibv_gid& gid) {
    const int error = ibv_attach_mcast(end.qp, &gid, 0);
    if (error == 0) joined_.emplace_back(end.qp, gid);
    return error;
  }
  static int leave(const Endpoint& end, const ibv_gid& gid) {
    return ibv_detach_mcast(end.qp, &gid, 0);
  }
  // From `end`, which learns that it has left.
  void send(const Endpoint& end, const ibv_gid& to, uint32_t qpn = kMulticastQpn,
            uint32_t qkey = kQkey, uint32_t bytes = 16) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = to;
    ibv_ah* ah = ibv_create_ah(end.host.pd, &attr);
    ASSERT_NE(ah, nullptr);
    ahs_.push_back(ah);
    ibv_sge sge = end.host.sge(bytes, kSource);
    ibv_send_wr wr = request(kSent, IBV_WR_SEND, &sge, end.host);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    ASSERT_EQ(end.post(wr), 0);
  }
  static constexpr uint64_t kSent = 99, kSource = 100'000;

  const ibv_gid group_ = gid_of("::ffff:239.1.2.3"), other_ = gid_of("::ffff:239.1.2.4");
  std::vector<ibv_ah*> ahs_;
  std::vector<std::pair<ibv_qp*, ibv_gid>> joined_;
};

TEST_F(Groups, ReachTheirMembers) {
  std::ranges::fill(near_host->bytes().subspan(kSource, 100), std::byte{0x6d});
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  ASSERT_EQ(near->post_receive(2, 200), 0);
  send(*near, group_, kMulticastQpn, kQkey, 100);
  near->expect(kSent);
  const ibv_wc wc = far->expect(1);
  EXPECT_EQ(wc.byte_len, kGrhBytes + 100);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned int>(IBV_WC_GRH));
  EXPECT_EQ(wc.src_qp, near->qp->qp_num);
  const auto bytes = far_host->bytes();
  EXPECT_EQ(std::memcmp(bytes.data() + 36, group_.raw + 12, 4), 0) << "the header's destination";
  EXPECT_TRUE(std::ranges::all_of(bytes.subspan(kGrhBytes, 100),
                                  [](std::byte b) { return b == std::byte{0x6d}; }));
  near->expect_nothing();  // it sends, and is no member
  far->expect_nothing();
}

TEST_F(Groups, ReachTheSenderWhenItIsAMember) {
  for (const Endpoint* end : {near.get(), far.get()}) {
    ASSERT_EQ(join(*end, group_), 0);
    ASSERT_EQ(end->post_receive(1, 200), 0);
  }
  send(*far, group_);
  near->expect(1);
  std::array<uint64_t, 2> own = {far->next().wr_id, far->next().wr_id};
  std::ranges::sort(own);
  EXPECT_EQ(own, (std::array<uint64_t, 2>{1, kSent}));
}

TEST_F(Groups, WithAnyMulticastGid) {
  for (const char* text : {"ff01::2:c985:0:0", "ff12:401b::1", "ff0e::ffff:239.1.2.3",
                           "ff0e::ffff:10.0.0.1", "::ffff:224.0.0.9"}) {
    const ibv_gid gid = gid_of(text);
    ASSERT_EQ(join(*far, gid), 0) << text;
    ASSERT_EQ(far->post_receive(1, 200), 0);
    send(*near, gid);
    near->expect(kSent);
    far->expect(1);
    EXPECT_EQ(leave(*far, gid), 0) << text;
  }
}

TEST_F(Groups, OfOtherGidsThereAreNone) {
  for (const char* text : {"::", "fe80::1", "::ffff:10.0.0.1", "::ffff:240.0.0.1", "::239.1.2.3"}) {
    const ibv_gid gid = gid_of(text);
    errno = 0;
    EXPECT_EQ(join(*near, gid), EINVAL) << text;
    EXPECT_EQ(errno, EINVAL) << text;
    EXPECT_EQ(leave(*near, gid), EINVAL) << text;
  }
}

TEST_F(Groups, JoinedTwiceBringACopyOnce) {
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(join(*far, group_), 0);
  for (uint64_t id : {1, 2}) ASSERT_EQ(far->post_receive(id, 200), 0);
  send(*near, group_);
  near->expect(kSent);
  far->expect(1);
  far->expect_nothing();
  EXPECT_EQ(leave(*far, group_), 0) << "once is enough";
  send(*near, group_);
  near->expect(kSent);
  far->expect_nothing();
}

TEST_F(Groups, AreHeardByMembersOnly) {
  ASSERT_EQ(join(*far, other_), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  send(*near, group_);
  near->expect(kSent);
  far->expect_nothing();
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(leave(*far, other_), 0);
  send(*near, other_);
  near->expect(kSent);
  far->expect_nothing();
  send(*near, group_);
  near->expect(kSent);
  far->expect(1);
}

TEST_F(Groups, LeftByWhoNeverJoined) {
  errno = 0;
  EXPECT_EQ(leave(*far, group_), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(join(*far, group_), 0);
  EXPECT_EQ(leave(*near, group_), EINVAL);
  EXPECT_EQ(leave(*far, group_), 0);
  EXPECT_EQ(leave(*far, group_), EINVAL);
}

TEST_F(Groups, KeepTheirMembersFromBeingDestroyed) {
  ASSERT_EQ(join(*far, group_), 0);
  errno = 0;
  EXPECT_EQ(ibv_destroy_qp(far->qp), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(far->state(), IBV_QPS_RTS) << "nothing has happened to it";
  EXPECT_EQ(leave(*far, group_), 0);
}

TEST_F(Groups, OutliveAReset) {
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(far->to_reset(), 0);
  ASSERT_EQ(far->to_init(), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  send(*near, group_);  // in INIT nothing is heard
  near->expect(kSent);
  far->expect_nothing();
  ASSERT_EQ(far->to_rtr(*near), 0);
  send(*near, group_);
  near->expect(kSent);
  far->expect(1);
}

TEST_F(Groups, OfAnotherQkeyAreDropped) {
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  send(*near, group_, kMulticastQpn, kQkey + 1);
  near->expect(kSent);
  far->expect_nothing();
}

TEST_F(Groups, AreNotOneQueuePair) {
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  send(*near, group_, far->qp->qp_num);
  near->expect(kSent);
  send(*near, far_host->gid(), kMulticastQpn);
  near->expect(kSent);
  far->expect_nothing();
}

TEST_F(Groups, TheWayBackLeadsToTheSender) {
  ASSERT_EQ(join(*far, group_), 0);
  ASSERT_EQ(far->post_receive(1, 200), 0);
  send(*near, group_);
  near->expect(kSent);
  ibv_wc wc = far->expect(1);
  ibv_ah_attr attr{};
  auto* grh = reinterpret_cast<ibv_grh*>(far_host->bytes().data());
  ASSERT_EQ(ibv_init_ah_from_wc(far_host->context, 1, &wc, grh, &attr), 0);
  const ibv_gid sender = near_host->gid();
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw, sender.raw, sizeof sender.raw), 0);
}

TEST_F(Conformance, GroupsAreForDatagramsOnly) {
  const ibv_gid group = gid_of("::ffff:239.1.2.3");
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    ConnectOptions options;
    options.type = type;
    create(options);
    EXPECT_EQ(ibv_attach_mcast(near->qp, &group, 0), EINVAL) << type;
    EXPECT_EQ(ibv_detach_mcast(near->qp, &group, 0), EINVAL) << type;
    // Nor is anybody connected to one.
    ASSERT_EQ(near->to_init(), 0);
    ibv_qp_attr attr = near->rtr_attributes(*far);
    attr.ah_attr.grh.dgid = group;
    EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rtr_mask()), EINVAL) << type;
  }
}

TEST_F(Groups, AsManyAsPromised) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(near_host->context, &device), 0);
  ASSERT_GT(device.max_mcast_grp, 0);
  ASSERT_GT(device.max_mcast_qp_attach, 0);
  EXPECT_GE(device.max_total_mcast_qp_attach, device.max_mcast_grp);
  EXPECT_GE(device.max_total_mcast_qp_attach, device.max_mcast_qp_attach);
  ibv_gid gid = gid_of("::ffff:239.9.0.0");
  const auto numbered = [&gid](int number) {
    gid.raw[14] = static_cast<uint8_t>(number >> 8);
    gid.raw[15] = static_cast<uint8_t>(number);
    return gid;
  };
  for (int i = 0; i < device.max_mcast_grp; ++i) ASSERT_EQ(join(*near, numbered(i)), 0) << i;
  errno = 0;
  EXPECT_EQ(join(*near, numbered(device.max_mcast_grp)), ENOMEM);
  EXPECT_EQ(errno, ENOMEM);

  std::vector<std::unique_ptr<Endpoint>> members;
  for (int i = 1; i < device.max_mcast_qp_attach; ++i) {
    members.push_back(std::make_unique<Endpoint>(*near_host, near->options));
    ASSERT_TRUE(members.back()->valid());
    ASSERT_EQ(join(*members.back(), numbered(0)), 0) << i;
  }
  Endpoint one_more(*near_host, near->options);
  EXPECT_EQ(join(one_more, numbered(0)), ENOMEM);
  for (const auto& [qp, joined] : joined_) EXPECT_EQ(ibv_detach_mcast(qp, &joined, 0), 0);
  joined_.clear();
  EXPECT_EQ(join(one_more, numbered(0)), 0);
  EXPECT_EQ(leave(one_more, numbered(0)), 0);
  joined_.clear();
}

}  // namespace
}  // namespace hostnic::conformance
