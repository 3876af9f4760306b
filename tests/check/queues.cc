// SPDX-License-Identifier: BSD-3-Clause
// Mistakes with queues: requests, completions, states.
#include "tests/check/stage.h"

namespace hostnic::planted {
namespace {

void never_signalled(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.how.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.ready();
  for (int i = 0; i < 64; ++i)
    if (stage.here.send(IBV_WR_RDMA_WRITE, stage.here.sge(8), &stage.there, 0) != 0) return;
  die("the queue has no end");
}

void small_cq(Stage& stage) {
  stage.cq_entries = 2;
  stage.wanted.cap.max_recv_wr = 1024;
  stage.ready();
  // A device may give more than it was asked for.
  for (int i = 0; i <= stage.there.cq->cqe; ++i)
    good(stage.there.receive(stage.there.sge(64)), "receive");
}

void no_read_depth(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_READ;
  stage.how.rd_atomic = 0;
  stage.ready();
  stage.here.send(IBV_WR_RDMA_READ, stage.here.sge(64), &stage.there);
}

void read_depth(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_READ;
  stage.how.rd_atomic = 4;
  stage.rd_atomic_there = 1;
  stage.ready();
  for (int i = 0; i < 4; ++i)
    good(stage.here.send(IBV_WR_RDMA_READ, stage.here.sge(64), &stage.there), "read");
}

void no_receive(Stage& stage) {
  stage.how.rnr_retry = 0;
  stage.ready();
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(64)), "send");
  if (stage.here.completion().status != IBV_WC_RNR_RETRY_EXC_ERR) die("no RNR");
}

void misaligned_atomic(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_ATOMIC;
  stage.how.access |= IBV_ACCESS_REMOTE_ATOMIC;
  stage.ready();
  good(stage.here.send(IBV_WR_ATOMIC_FETCH_AND_ADD, stage.here.sge(8), &stage.there,
                       IBV_SEND_SIGNALED, 4),
       "atomic");
  stage.here.completion();
}

void short_atomic(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_ATOMIC;
  stage.how.access |= IBV_ACCESS_REMOTE_ATOMIC;
  stage.ready();
  stage.here.send(IBV_WR_ATOMIC_FETCH_AND_ADD, stage.here.sge(4), &stage.there);
}

void no_grh_room(Stage& stage) {
  stage.wanted.qp_type = IBV_QPT_UD;
  stage.ready();
  good(stage.there.receive(stage.there.sge(32)), "receive");
}

void send_in_init(Stage& stage) {
  stage.make();
  good(verbs::to_init(stage.here.qp, stage.how), "INIT");
  stage.here.send(IBV_WR_SEND, stage.here.sge(64));
}

void receive_in_reset(Stage& stage) {
  stage.make();
  stage.there.receive(stage.there.sge(64));
}

void inline_too_long(Stage& stage) {
  stage.ready();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  good(ibv_query_qp(stage.here.qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
  stage.here.send(IBV_WR_SEND, stage.here.sge(init.cap.max_inline_data + 1), nullptr,
                  IBV_SEND_SIGNALED | IBV_SEND_INLINE);
}

void too_many_sges(Stage& stage) {
  stage.ready();
  ibv_sge sges[64];
  for (ibv_sge& sge : sges) sge = stage.here.sge(8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = sges;
  wr.num_sge = 64;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_post_send(stage.here.qp, &wr, &bad);
}

void ignored_error(Stage& stage) {
  stage.how.rnr_retry = 0;
  stage.ready();
  for (int i = 0; i < 20; ++i) {
    good(stage.here.send(IBV_WR_SEND, stage.here.sge(64)), "send");
    if (stage.here.completion().status == IBV_WC_SUCCESS) die("success");
  }
}

// Data by one queue pair, the flag behind it by another: to the same end.
void write_race(Stage& stage) {
  stage.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.how.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.ready();
  Stage second;
  second.access = stage.access;
  second.how = stage.how;
  second.ready();
  // A key of the first stage's domain is none of the second's, which the race needs not.
  good(stage.here.send(IBV_WR_RDMA_WRITE, stage.here.sge(1024), &stage.there), "data");
  second.here.send(IBV_WR_RDMA_WRITE, second.here.sge(8), &stage.there, IBV_SEND_SIGNALED, 1024);
  stage.here.completion();
  second.here.completion();
  second.end();
}

}  // namespace

void add_queues(Table& table) {
  table["never-signalled"] = never_signalled;
  table["small-cq"] = small_cq;
  table["no-read-depth"] = no_read_depth;
  table["read-depth"] = read_depth;
  table["no-receive"] = no_receive;
  table["misaligned-atomic"] = misaligned_atomic;
  table["short-atomic"] = short_atomic;
  table["no-grh-room"] = no_grh_room;
  table["send-in-init"] = send_in_init;
  table["receive-in-reset"] = receive_in_reset;
  table["inline-too-long"] = inline_too_long;
  table["too-many-sges"] = too_many_sges;
  table["ignored-error"] = ignored_error;
  table["write-race"] = write_race;
}

}  // namespace hostnic::planted
