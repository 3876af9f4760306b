// SPDX-License-Identifier: BSD-3-Clause
// The state table of ibv_modify_qp(3): each transition with exactly its attributes, each attribute
// missing, each that does not belong there, and each pair of states that has no transition.
#include <chrono>
#include <cstring>
#include <tuple>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

struct Step {
  ibv_qp_state from, to;
};

std::string type_name(ibv_qp_type type) {
  return type == IBV_QPT_RC ? "Rc" : type == IBV_QPT_UC ? "Uc" : "Ud";
}

class States : public Conformance {
 protected:
  void create_of(ibv_qp_type type) {
    ConnectOptions options;
    options.type = type;
    create(options);
  }
  // Far is where near is led to; the queue pair under test is near's.
  void lead_to(ibv_qp_state state) {
    ASSERT_EQ(near->to_reset(), 0);
    if (state == IBV_QPS_RESET) return;
    if (state == IBV_QPS_ERR) {
      ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
      return;
    }
    ASSERT_EQ(near->to_init(), 0);
    if (state == IBV_QPS_INIT) return;
    ASSERT_EQ(near->to_rtr(*far), 0);
    if (state == IBV_QPS_RTR) return;
    ASSERT_EQ(near->to_rts(), 0);
    if (state == IBV_QPS_RTS) return;
    ASSERT_EQ(state, IBV_QPS_SQD);
    ASSERT_EQ(near->to(IBV_QPS_SQD), 0);
  }
  ibv_qp_attr attributes(ibv_qp_state to) const {
    ibv_qp_attr all = near->rtr_attributes(*far);
    const ibv_qp_attr init = near->init_attributes(), rts = near->rts_attributes();
    all.port_num = init.port_num;
    all.qkey = init.qkey;
    all.qp_access_flags = init.qp_access_flags;
    all.sq_psn = rts.sq_psn;
    all.timeout = rts.timeout;
    all.retry_cnt = rts.retry_cnt;
    all.rnr_retry = rts.rnr_retry;
    all.max_rd_atomic = rts.max_rd_atomic;
    all.qp_state = to;
    return all;
  }
  int modify(ibv_qp_state to, int mask) const {
    ibv_qp_attr attr = attributes(to);
    return ibv_modify_qp(near->qp, &attr, mask);
  }
  int required(ibv_qp_state to) const {
    switch (to) {
      case IBV_QPS_INIT:
        return near->init_mask();
      case IBV_QPS_RTR:
        return near->rtr_mask();
      case IBV_QPS_RTS:
        return near->rts_mask();
      default:
        return IBV_QP_STATE;
    }
  }
};

// ---- the way up

constexpr Step kUp[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_INIT, IBV_QPS_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS}};
constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

class WayUp : public States, public testing::WithParamInterface<std::tuple<ibv_qp_type, Step>> {
 protected:
  void SetUp() override {
    States::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(create_of(std::get<0>(GetParam())));
    step = std::get<1>(GetParam());
    ASSERT_NO_FATAL_FAILURE(lead_to(step.from));
  }
  Step step{};
};

TEST_P(WayUp, WithWhatItNeeds) {
  EXPECT_EQ(modify(step.to, required(step.to)), 0);
  EXPECT_EQ(near->state(), step.to);
  EXPECT_EQ(near->qp->state, step.to);
}

TEST_P(WayUp, EachAttributeIsNeeded) {
  for (int bit = 1; bit <= required(step.to); bit <<= 1) {
    if ((required(step.to) & bit) == 0 || bit == IBV_QP_STATE) continue;
    errno = 0;
    EXPECT_EQ(modify(step.to, required(step.to) & ~bit), EINVAL) << "without bit " << bit;
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(near->state(), step.from);
  }
  EXPECT_EQ(modify(step.to, required(step.to)), 0) << "refusals change nothing";
}

// Optional according to the table of the manual, RC's for RC, and so on; capacity and alternate
// paths are not ours.
int optional_attributes(ibv_qp_type type, ibv_qp_state to) {
  const int key_or_access = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  const int path = type == IBV_QPT_UD ? 0 : IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
  if (to == IBV_QPS_RTR) return key_or_access | IBV_QP_PKEY_INDEX | path;
  if (to != IBV_QPS_RTS) return 0;
  return IBV_QP_CUR_STATE | key_or_access | path | (type == IBV_QPT_RC ? IBV_QP_MIN_RNR_TIMER : 0);
}

TEST_P(WayUp, NoOtherAttributeIsTaken) {
  const ibv_qp_type type = std::get<0>(GetParam());
  const int known = required(step.to) | optional_attributes(type, step.to);
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    if ((known & bit) != 0) continue;
    EXPECT_EQ(modify(step.to, required(step.to) | bit), EINVAL) << "with bit " << bit;
    EXPECT_EQ(near->state(), step.from);
  }
  EXPECT_EQ(modify(step.to, required(step.to)), 0) << "refusals change nothing";
}

TEST_P(WayUp, AWrongCurrentStateIsRefused) {
  if (step.to != IBV_QPS_RTS) GTEST_SKIP() << "only transitions to RTS take it";
  ibv_qp_attr attr = attributes(step.to);
  attr.cur_qp_state = IBV_QPS_SQD;
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, required(step.to) | IBV_QP_CUR_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, required(step.to) | IBV_QP_CUR_STATE), 0);
}

INSTANTIATE_TEST_SUITE_P(Table, WayUp,
                         testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kUp)),
                         [](const auto& info) {
                           return type_name(std::get<0>(info.param)) +
                                  name_of(std::get<1>(info.param).from) + "To" +
                                  name_of(std::get<1>(info.param).to);
                         });

// ---- all pairs of states

constexpr ibv_qp_state kReachable[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                       IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

bool has_transition(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
  switch (from) {
    case IBV_QPS_RESET:
      return to == IBV_QPS_INIT;
    case IBV_QPS_INIT:
      return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
    case IBV_QPS_RTR:
      return to == IBV_QPS_RTS;
    case IBV_QPS_RTS:
      return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
    case IBV_QPS_SQD:
      return to == IBV_QPS_SQD || to == IBV_QPS_RTS;
    default:
      return false;
  }
}

class Pairs : public States,
              public testing::WithParamInterface<std::tuple<ibv_qp_type, ibv_qp_state>> {};

TEST_P(Pairs, OnlyTransitionsOfTheTable) {
  const auto [type, from] = GetParam();
  ASSERT_NO_FATAL_FAILURE(create_of(type));
  for (ibv_qp_state to : kReachable) {
    ASSERT_NO_FATAL_FAILURE(lead_to(from));
    // From where the way up leads, its attributes; elsewhere none is required.
    const bool up = (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
                    (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
                    (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
    const bool legal = has_transition(from, to);
    const int mask = up || !legal ? required(to) : IBV_QP_STATE;
    EXPECT_EQ(modify(to, mask), legal ? 0 : EINVAL) << "to " << name_of(to);
    EXPECT_EQ(near->state(), legal ? to : from) << "to " << name_of(to);
  }
}

TEST_P(Pairs, ResetAndErrTakeNothingElse) {
  const auto [type, from] = GetParam();
  ASSERT_NO_FATAL_FAILURE(create_of(type));
  for (ibv_qp_state to : {IBV_QPS_RESET, IBV_QPS_ERR}) {
    ASSERT_NO_FATAL_FAILURE(lead_to(from));
    EXPECT_EQ(modify(to, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL) << "to " << name_of(to);
    EXPECT_EQ(near->state(), from);
  }
}

TEST_P(Pairs, SqeIsNotEnteredByHand) {
  const auto [type, from] = GetParam();
  ASSERT_NO_FATAL_FAILURE(create_of(type));
  ASSERT_NO_FATAL_FAILURE(lead_to(from));
  EXPECT_EQ(modify(IBV_QPS_SQE, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(near->state(), from);
}

// ibv_post_send wants RTS; SQD accepts and holds, ERR accepts and flushes.
TEST_P(Pairs, PostingSends) {
  const auto [type, from] = GetParam();
  if (type == IBV_QPT_UD) GTEST_SKIP() << "needs an address handle: see datagram tests";
  ASSERT_NO_FATAL_FAILURE(create_of(type));
  ASSERT_NO_FATAL_FAILURE(lead_to(from));
  ibv_sge sge = near_host->sge(8);
  const bool takes = from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_ERR;
  EXPECT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), takes ? 0 : EINVAL);
  if (from == IBV_QPS_ERR) near->expect(1, IBV_WC_WR_FLUSH_ERR);
  if (from == IBV_QPS_SQD) near->expect_nothing();
}

TEST_P(Pairs, PostingReceives) {
  const auto [type, from] = GetParam();
  ASSERT_NO_FATAL_FAILURE(create_of(type));
  ASSERT_NO_FATAL_FAILURE(lead_to(from));
  EXPECT_EQ(near->post_receive(1, 64), from == IBV_QPS_RESET ? EINVAL : 0);
  if (from == IBV_QPS_ERR) near->expect(1, IBV_WC_WR_FLUSH_ERR);
}

INSTANTIATE_TEST_SUITE_P(Table, Pairs,
                         testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kReachable)),
                         [](const auto& info) {
                           return type_name(std::get<0>(info.param)) + "From" +
                                  name_of(std::get<1>(info.param));
                         });

// ---- values

struct BadValue {
  const char* name;
  ibv_qp_state from;
  void (*spoil)(ibv_qp_attr&);
};

constexpr BadValue kBadValues[] = {
    {"Port", IBV_QPS_RESET, [](ibv_qp_attr& a) { a.port_num = 2; }},
    {"PkeyIndex", IBV_QPS_RESET, [](ibv_qp_attr& a) { a.pkey_index = 1; }},
    {"AccessFlags", IBV_QPS_RESET, [](ibv_qp_attr& a) { a.qp_access_flags = 1u << 31; }},
    {"PathMtuZero", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.path_mtu = ibv_mtu(0); }},
    {"PathMtuBeyondTheEnum", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.path_mtu = ibv_mtu(7); }},
    {"DestQpn", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.dest_qp_num = 1u << 24; }},
    {"MaxDestRdAtomic", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; }},
    {"MinRnrTimer", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }},
    {"SgidIndex", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 200; }},
    {"AhPort", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.ah_attr.port_num = 7; }},
    {"Gid", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.ah_attr.grh.dgid = {}; }},
    {"NeitherGidNorLid", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }},
    {"Timeout", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.timeout = 32; }},
    {"RetryCnt", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.retry_cnt = 8; }},
    {"RnrRetry", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.rnr_retry = 8; }},
    {"MaxRdAtomic", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.max_rd_atomic = 255; }},
};

class Values : public States, public testing::WithParamInterface<BadValue> {};

TEST_P(Values, OutOfRangeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(create_of(IBV_QPT_RC));
  ASSERT_NO_FATAL_FAILURE(lead_to(GetParam().from));
  const auto to = static_cast<ibv_qp_state>(GetParam().from + 1);
  ibv_qp_attr attr = attributes(to);
  GetParam().spoil(attr);
  errno = 0;
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, required(to)), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(near->state(), GetParam().from);
  EXPECT_EQ(modify(to, required(to)), 0) << "the refusal changed nothing";
}

INSTANTIATE_TEST_SUITE_P(Attributes, Values, testing::ValuesIn(kBadValues),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(States, QueryTellsWhatModifySet) {
  ASSERT_NO_FATAL_FAILURE(create_of(IBV_QPT_RC));
  ASSERT_NO_FATAL_FAILURE(lead_to(IBV_QPS_RTS));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init), 0);
  const ibv_qp_attr rtr = near->rtr_attributes(*far), rts = near->rts_attributes();
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, rtr.path_mtu);
  EXPECT_EQ(attr.dest_qp_num, far->qp->qp_num);
  EXPECT_EQ(attr.rq_psn, rtr.rq_psn);
  EXPECT_EQ(attr.sq_psn, rts.sq_psn);
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned int>(kAllAccess));
  EXPECT_EQ(attr.max_rd_atomic, rts.max_rd_atomic);
  EXPECT_EQ(attr.max_dest_rd_atomic, rtr.max_dest_rd_atomic);
  EXPECT_EQ(attr.min_rnr_timer, rtr.min_rnr_timer);
  EXPECT_EQ(attr.timeout, rts.timeout);
  EXPECT_EQ(attr.retry_cnt, rts.retry_cnt);
  EXPECT_EQ(attr.rnr_retry, rts.rnr_retry);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, near->cq);
  EXPECT_EQ(init.recv_cq, near->cq);
  EXPECT_EQ(init.cap.max_send_wr, near->options.caps.max_send_wr);
}

// The structure's state is written by a query for the state, and by no other (ibv_query_qp(3)).
TEST_F(States, QueryLeavesTheStructuresStateAloneUnlessAskedForIt) {
  ASSERT_NO_FATAL_FAILURE(create_of(IBV_QPT_RC));
  ASSERT_NO_FATAL_FAILURE(lead_to(IBV_QPS_RTS));
  ibv_sge sge = near_host->sge(8);
  sge.lkey = 0x7fffffff;
  ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
  near->expect(1, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(near->qp, &attr, IBV_QP_DEST_QPN, &init), 0);
  EXPECT_EQ(attr.dest_qp_num, far->qp->qp_num);
  EXPECT_EQ(near->qp->state, IBV_QPS_RTS) << "as the program's last modify_qp left it";
  ASSERT_EQ(ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(near->qp->state, IBV_QPS_ERR);
}

TEST_F(States, QueryTellsThePathThatModifySet) {
  ASSERT_NO_FATAL_FAILURE(create_of(IBV_QPT_RC));
  ASSERT_EQ(near->to_init(), 0);
  ibv_qp_attr set = near->rtr_attributes(*far);
  set.ah_attr.sl = 3;
  set.ah_attr.src_path_bits = 5;
  set.ah_attr.static_rate = IBV_RATE_10_GBPS;
  set.ah_attr.grh.flow_label = 0x12345;
  set.ah_attr.grh.traffic_class = 0x60;
  set.ah_attr.grh.hop_limit = 1;
  ASSERT_EQ(ibv_modify_qp(near->qp, &set, near->rtr_mask()), 0);
  ibv_qp_attr got{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(near->qp, &got, IBV_QP_AV, &init), 0);
  EXPECT_EQ(got.ah_attr.is_global, 1);
  EXPECT_EQ(got.ah_attr.port_num, 1);
  EXPECT_EQ(got.ah_attr.sl, 3);
  EXPECT_EQ(got.ah_attr.src_path_bits, 5);
  EXPECT_EQ(got.ah_attr.static_rate, IBV_RATE_10_GBPS);
  EXPECT_EQ(got.ah_attr.grh.flow_label, 0x12345u);
  EXPECT_EQ(got.ah_attr.grh.traffic_class, 0x60);
  EXPECT_EQ(got.ah_attr.grh.hop_limit, 1);
  EXPECT_EQ(std::memcmp(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, sizeof(ibv_gid)), 0);
}

// A RoCE port has no LIDs: a path needs a GRH.
TEST_F(States, RtrWithoutAGrhIsRefused) {
  ASSERT_NO_FATAL_FAILURE(create_of(IBV_QPT_RC));
  ASSERT_EQ(near->to_init(), 0);
  ibv_qp_attr attr = near->rtr_attributes(*far);
  attr.ah_attr.is_global = 0;
  attr.ah_attr.dlid = 1;
  errno = 0;
  EXPECT_EQ(ibv_modify_qp(near->qp, &attr, near->rtr_mask()), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(near->state(), IBV_QPS_INIT);
  ibv_ah_attr path = attr.ah_attr;
  EXPECT_EQ(ibv_create_ah(near_host->pd, &path), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// Requests that were begun are outstanding; what the query says and the event agree.
TEST_F(States, SqdIsDrainingWhileBegunRequestsAreOutstanding) {
  connect();
  constexpr uint64_t kWrites = 16;
  ibv_sge sge = near_host->sge(Host::kBytes);
  for (uint64_t i = 0; i < kWrites; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ASSERT_EQ(near->to(IBV_QPS_SQD), 0);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  do {
    ASSERT_EQ(ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
    EXPECT_EQ(attr.cur_qp_state, IBV_QPS_SQD);
  } while (attr.sq_draining != 0 && std::chrono::steady_clock::now() < give_up);
  EXPECT_EQ(attr.sq_draining, 0);
  uint64_t done = 0;
  ibv_wc wc{};
  while (ibv_poll_cq(near->cq, 1, &wc) == 1) EXPECT_EQ(wc.wr_id, done++);
  ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
  for (; done < kWrites; ++done) near->expect(done);
}

TEST_F(States, SqdHoldsWhatIsPostedUntilRts) {
  connect();
  ASSERT_EQ(near->to(IBV_QPS_SQD), 0);
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect_nothing();
  ASSERT_EQ(near->to(IBV_QPS_RTS), 0);
  near->expect(1);
}

TEST_F(States, ResetForgetsWhatWasPosted) {
  connect();
  ASSERT_EQ(near->post_receive(1, 64), 0);
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(2, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  ASSERT_EQ(near->to_reset(), 0);
  near->expect_nothing();
}

TEST_F(States, WorksAgainAfterReset) {
  connect();
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_EQ(near->to_reset(), 0);
    ASSERT_EQ(far->to_reset(), 0);
    for (Endpoint* one : {near.get(), far.get()}) {
      ASSERT_EQ(one->to_init(), 0);
      ASSERT_EQ(one->to_rtr(one == near.get() ? *far : *near), 0);
      ASSERT_EQ(one->to_rts(), 0);
    }
    ASSERT_EQ(far->post_receive(1, 64), 0);
    ibv_sge sge = near_host->sge(64);
    ASSERT_EQ(near->post(request(2, IBV_WR_SEND, &sge, *far_host)), 0);
    near->expect(2);
    far->expect(1);
  }
}

}  // namespace
}  // namespace hostnic::conformance
