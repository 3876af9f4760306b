// SPDX-License-Identifier: BSD-3-Clause
// The end that writes.
#include <cerrno>
#include <cstdio>

#include "tests/apps/mrc/end.h"

namespace hostnic::mrc_app {
namespace {

void expect_sent(End& end, uint64_t id, const char* what) {
  const ibv_wc wc = end.next_sent();
  require(wc.status == IBV_WC_SUCCESS && wc.wr_id == id, what);
}

// WRITEs of all sizes, each told of by a WRITE with immediate data and no bytes.
void write_messages(End& end) {
  uint32_t round = 0;
  for (const size_t bytes : kMessageBytes) {
    for (size_t i = 0; i < bytes; ++i) end.buffer()[i] = byte_at(round, i);
    require(end.post(IBV_WR_RDMA_WRITE, bytes, round, false) == 0, "mrc_post_send");
    require(end.post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, round, true) == 0, "mrc_post_send");
    expect_sent(end, round, "a WRITE with immediate data");
    end.hear();  // the receiver has looked
    ++round;
  }
}

// More of them than may be on their way: the rest waits.
void write_many_imms(End& end) {
  end.hear();
  for (uint32_t i = 0; i < kManyImms; ++i)
    require(end.post(IBV_WR_RDMA_WRITE_WITH_IMM, 8, i, true) == 0, "mrc_post_send");
  for (uint32_t i = 0; i < kManyImms; ++i)
    expect_sent(end, i, "one of many WRITEs with immediate data");
}

void be_refused(End& end) {
  require(end.post(IBV_WR_SEND, 8, 0, true) == EOPNOTSUPP, "a SEND: EOPNOTSUPP");
  ibv_qp_attr verbs{};
  mrc_qp_attr mrc{};
  mrc.timeout = 20;
  require(mrc_modify_qp(end.qp(), &verbs, 0, &mrc, MRC_QP_TIMEOUT) == EINVAL,
          "a timeout for a queue pair in RTS: EINVAL");
  mrc_ctl_ev_profile_attr profile{};
  require(mrc_ctl_query_ev_profile(end.context(), 7, &profile, MRC_CTL_EV_PROFILE_STATE) == -1 &&
              errno == EINVAL,
          "EV profile 7: EINVAL");
  require(mrc_ctl_query_ev_profile(end.context(), 0, &profile, MRC_CTL_EV_PROFILE_STATE) == 0 &&
              profile.cur_profile_state == MRC_CTL_PROFILE_ONLINE && profile.ev_count != 0,
          "EV profile 0");
}

}  // namespace

int send_all(int socket) {
  End end(0, socket);
  end.connect();
  end.hear();  // receives are posted
  write_messages(end);
  write_many_imms(end);
  be_refused(end);
  require(end.post(IBV_WR_RDMA_WRITE, 8, 1, true, /*wrong_key=*/true) == 0, "mrc_post_send");
  require(end.next_sent().status == IBV_WC_REM_ACCESS_ERR, "a wrong key: REM_ACCESS_ERR");
  end.say();
  end.hear();
  end.destroy();
  printf("hostnic-mrc: sender ok\n");
  return 0;
}

}  // namespace hostnic::mrc_app
