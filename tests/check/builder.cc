// SPDX-License-Identifier: BSD-3-Clause
// Mistakes with ibv_wr_*, and changed memory of what it builds.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/check/stage.h"

namespace hostnic::planted {
namespace {

// The stage with queue pairs that build, and extended completion queues.
ibv_qp_ex* make_builder(Stage& stage) {
  stage.make();
  good(ibv_destroy_qp(stage.here.qp), "ibv_destroy_qp");
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = stage.here.cq;
  attr.cap = stage.wanted.cap;
  attr.qp_type = IBV_QPT_RC;
  attr.pd = stage.pd;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  stage.here.qp = good(ibv_create_qp_ex(stage.context, &attr), "ibv_create_qp_ex");
  stage.connect();
  ibv_qp_ex* qp = good(ibv_qp_to_qp_ex(stage.here.qp), "ibv_qp_to_qp_ex");
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  return qp;
}

void two_threads(Stage& stage) {
  ibv_qp_ex* qp = make_builder(stage);
  ibv_wr_start(qp);
  std::thread([&] {
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, stage.here.mr->lkey, stage.here.address(), 64);
  }).join();
  ibv_wr_abort(qp);
}

void not_started(Stage& stage) {
  ibv_qp_ex* qp = make_builder(stage);
  ibv_wr_send(qp);
}

// Devices wait for the lock that they have: as an end of its own it is a good one.
void restarted(Stage& stage) {
  ibv_qp_ex* qp = make_builder(stage);
  signal(SIGALRM, [](int) { _exit(0); });
  alarm(2);
  ibv_wr_start(qp);
  ibv_wr_start(qp);
  ibv_wr_abort(qp);
}

void changed_built(Stage& stage) {
  ibv_qp_ex* qp = make_builder(stage);
  good(stage.there.receive(stage.there.sge(64)), "receive");
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, stage.here.mr->lkey, stage.here.address(), 64);
  good(ibv_wr_complete(qp), "ibv_wr_complete");
  stage.here.memory[3] = std::byte{1};
  stage.here.completion();
  stage.there.completion();
}

}  // namespace

void add_builder(Table& table) {
  table["builder-two-threads"] = two_threads;
  table["builder-not-started"] = not_started;
  table["builder-restarted"] = restarted;
  table["changed-built"] = changed_built;
}

}  // namespace hostnic::planted
