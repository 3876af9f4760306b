// SPDX-License-Identifier: BSD-3-Clause
// What a program posts just before it ends a queue pair: it has been handed to the NIC, so it
// arrives.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

enum class End { kErr, kReset, kDestroy };
constexpr int kRounds = 20;

class LastSends : public Conformance,
                  public testing::WithParamInterface<std::tuple<ibv_qp_type, End>> {
 protected:
  // One message, from the start of near's memory.
  void send(ibv_qp_type type, uint32_t bytes) {
    ibv_sge sge = near_host->sge(bytes);
    ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, *far_host);
    if (type == IBV_QPT_UD) {
      ibv_ah_attr path{};
      path.is_global = 1;
      path.grh.dgid = far_host->gid();
      path.grh.hop_limit = 64;
      path.port_num = 1;
      handle_ = ibv_create_ah(near_host->pd, &path);
      ASSERT_NE(handle_, nullptr);
      wr.wr.ud = {handle_, far->qp->qp_num, kQkey};
    }
    ASSERT_EQ(near->post(wr), 0);
  }
  void end(End how) {
    switch (how) {
      case End::kErr:
        ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
        break;
      case End::kReset:
        ASSERT_EQ(near->to(IBV_QPS_RESET), 0);
        break;
      case End::kDestroy:
        ASSERT_EQ(ibv_destroy_qp(near->qp), 0);
        near->qp = nullptr;
        break;
    }
  }
  ibv_ah* handle_ = nullptr;
};

TEST_P(LastSends, Arrive) {
  const auto [type, how] = GetParam();
  for (int round = 1; round <= kRounds; ++round) {
    ConnectOptions options;
    options.type = type;
    connect(options);
    const uint32_t bytes = round % 2 == 0 ? 8 : 1024;
    std::ranges::fill(near_host->bytes().first(bytes), std::byte(round));
    ASSERT_EQ(far->post_receive(7, 4096), 0);
    send(type, bytes);
    end(how);
    const ibv_wc received = far->expect(7);
    const size_t header = type == IBV_QPT_UD ? kGrhBytes : 0;
    ASSERT_EQ(received.byte_len, bytes + header) << "round " << round;
    ASSERT_EQ(far_host->bytes()[header + bytes - 1], std::byte(round));
    if (how == End::kErr) {
      const ibv_wc sent = near->next();
      EXPECT_EQ(sent.wr_id, 1u);
      EXPECT_TRUE(sent.status == IBV_WC_SUCCESS || sent.status == IBV_WC_WR_FLUSH_ERR);
    }
    near.reset();
    if (handle_ != nullptr) ibv_destroy_ah(std::exchange(handle_, nullptr));
    far.reset();
  }
}

std::string name_of_case(const testing::TestParamInfo<LastSends::ParamType>& info) {
  const auto [type, how] = info.param;
  const char* const service = type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD";
  return std::string(service) + (how == End::kErr     ? "Err"
                                 : how == End::kReset ? "Reset"
                                                      : "Destroy");
}

INSTANTIATE_TEST_SUITE_P(Services, LastSends,
                         testing::Combine(testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                                          testing::Values(End::kErr, End::kReset, End::kDestroy)),
                         name_of_case);

}  // namespace
}  // namespace hostnic::conformance
