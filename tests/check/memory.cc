// SPDX-License-Identifier: BSD-3-Clause
// Mistakes with memory: contents that change, regions that go, keys that are others'.
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "tests/check/stage.h"

namespace hostnic::planted {
namespace {

constexpr int kLocalOnly = IBV_ACCESS_LOCAL_WRITE;

void take_both(const Stage& stage) {
  stage.here.completion();
  stage.there.completion();
}

void changed_send(Stage& stage) {
  stage.ready();
  good(stage.there.receive(stage.there.sge(64)), "receive");
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(64)), "send");
  stage.here.memory[17] = std::byte{1};
  take_both(stage);
}

void change_write(Stage& stage, unsigned flags) {
  stage.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.how.access |= IBV_ACCESS_REMOTE_WRITE;
  stage.make();
  // The sender's memory is nobody else's to write.
  good(ibv_dereg_mr(stage.here.mr), "ibv_dereg_mr");
  stage.here.mr = ibv_reg_mr(stage.pd, stage.here.memory, kBytes, kLocalOnly);
  stage.connect();
  good(stage.here.send(IBV_WR_RDMA_WRITE, stage.here.sge(4096), &stage.there, flags), "write");
  stage.here.memory[4000] = std::byte{1};
  if (flags == 0)
    good(stage.here.send(IBV_WR_RDMA_WRITE, stage.here.sge(8, 4096), &stage.there), "write");
  stage.here.completion();
}

void changed_write(Stage& stage) { change_write(stage, IBV_SEND_SIGNALED); }
// Known when a later one has completed.
void changed_unsignalled(Stage& stage) { change_write(stage, 0); }

// A datagram is answered, its memory changes, and then its completion is polled.
void changed_answered(Stage& stage) {
  stage.wanted.qp_type = IBV_QPT_UD;
  stage.how.qkey = 0x1234;
  stage.make();
  ibv_cq* const answers =
      good(ibv_create_cq(stage.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr attr = stage.wanted;
  attr.send_cq = stage.here.cq;
  attr.recv_cq = answers;
  good(ibv_destroy_qp(stage.here.qp), "ibv_destroy_qp");
  stage.here.qp = good(ibv_create_qp(stage.pd, &attr), "ibv_create_qp");
  stage.connect();
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.grh.hop_limit = 1;
  path.grh.sgid_index = static_cast<uint8_t>(stage.how.gid_index);
  good(ibv_query_gid(stage.context, 1, stage.how.gid_index, &path.grh.dgid), "ibv_query_gid");
  ibv_ah* const ah = good(ibv_create_ah(stage.pd, &path), "ibv_create_ah");
  const auto send = [&](const End& from, const End& to) {
    ibv_sge sge = from.sge(64);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.ud = {ah, to.qp->qp_num, stage.how.qkey};
    good(ibv_post_send(from.qp, &wr, &bad), "send");
  };
  for (const End* end : {&stage.here, &stage.there})
    good(end->receive(end->sge(104, 1024)), "receive");
  send(stage.here, stage.there);
  stage.there.completion();
  send(stage.there, stage.here);
  End heard = stage.here;
  heard.cq = answers;
  heard.completion();
  stage.here.memory[17] = std::byte{1};
  take_both(stage);
  good(ibv_destroy_ah(ah), "ibv_destroy_ah");
  good(ibv_destroy_qp(stage.here.qp), "ibv_destroy_qp");
  stage.here.qp = nullptr;
  good(ibv_destroy_cq(answers), "ibv_destroy_cq");
}

// Waits until the sender's NIC has nothing to do but to try again.
void let_it_wait() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void unmapped(Stage& stage) {
  stage.ready();
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(4096, 4096)), "send");
  let_it_wait();
  good(munmap(stage.here.memory + 4096, 4096), "munmap");
  good(stage.there.receive(stage.there.sge(4096)), "receive");
  stage.here.completion();
}

void region_of_receive(Stage& stage) {
  stage.ready();
  good(stage.there.receive(stage.there.sge(64)), "receive");
  good(ibv_dereg_mr(stage.there.mr), "ibv_dereg_mr");
  stage.there.mr = nullptr;
}

void region_of_send(Stage& stage) {
  stage.ready();
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(64)), "send");
  good(ibv_dereg_mr(stage.here.mr), "ibv_dereg_mr");
  stage.here.mr = nullptr;
}

void stale_key(Stage& stage) {
  stage.ready();
  const ibv_sge sge = stage.here.sge(64);
  good(ibv_dereg_mr(stage.here.mr), "ibv_dereg_mr");
  stage.here.mr = nullptr;
  good(stage.here.send(IBV_WR_SEND, sge), "send");
  stage.here.completion();
}

void unknown_key(Stage& stage) {
  stage.ready();
  ibv_sge sge = stage.here.sge(64);
  sge.lkey ^= 0x5a5a5a5a;
  good(stage.here.send(IBV_WR_SEND, sge), "send");
  stage.here.completion();
}

void other_domain(Stage& stage) {
  stage.ready();
  ibv_pd* pd = good(ibv_alloc_pd(stage.context), "ibv_alloc_pd");
  ibv_mr* mr = good(ibv_reg_mr(pd, stage.here.memory, kBytes, kLocalOnly), "reg_mr");
  good(stage.here.send(IBV_WR_SEND, {stage.here.address(), 64, mr->lkey}), "send");
  stage.here.completion();
  good(ibv_dereg_mr(mr), "ibv_dereg_mr");
  good(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

void outside_region(Stage& stage) {
  stage.ready();
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(64, kBytes - 63)), "send");
  stage.here.completion();
}

void receive_without_right(Stage& stage) {
  stage.access = 0;
  stage.ready();
  good(stage.there.receive(stage.there.sge(64)), "receive");
}

void read_without_right(Stage& stage) {
  stage.access = IBV_ACCESS_REMOTE_READ;
  stage.ready();
  good(stage.here.send(IBV_WR_RDMA_READ, stage.here.sge(64), &stage.there), "read");
  stage.here.completion();
}

}  // namespace

void add_memory(Table& table) {
  table["changed-send"] = changed_send;
  table["changed-write"] = changed_write;
  table["changed-unsignalled"] = changed_unsignalled;
  table["changed-answered"] = changed_answered;
  table["unmapped"] = unmapped;
  table["region-of-receive"] = region_of_receive;
  table["region-of-send"] = region_of_send;
  table["stale-key"] = stale_key;
  table["unknown-key"] = unknown_key;
  table["other-domain"] = other_domain;
  table["outside-region"] = outside_region;
  table["receive-without-right"] = receive_without_right;
  table["read-without-right"] = read_without_right;
}

}  // namespace hostnic::planted
