// SPDX-License-Identifier: BSD-3-Clause
// Requests that fail: keys, bounds, rights, lengths.
#include <cstdio>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

constexpr unsigned kWithoutAtomics =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void wrong_rkey() {
  Stage s;
  s.ready();
  const uint32_t key = s.there.mr->rkey ^ 0x155;
  fact("key", key);
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), key);
}

void revoked_rkey() {
  Stage s;
  s.ready();
  const uint32_t key = s.there.mr->rkey;
  good(ibv_dereg_mr(s.there.mr), "ibv_dereg_mr");
  fact("key", key);
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), key);
}

void beyond_region() {
  Stage s;
  s.ready();
  fact("region", s.remote());
  s.fails(IBV_WR_RDMA_WRITE, 4096, s.remote(kBufferBytes - 4095), s.there.mr->rkey);
}

void before_region() {
  Stage s;
  s.ready();
  fact("region", s.remote());
  s.fails(IBV_WR_RDMA_READ, 64, s.remote() - 16, s.there.mr->rkey);
}

void no_remote_write() {
  Stage s;
  s.there.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  s.ready();
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), s.there.mr->rkey);
}

void no_remote_read() {
  Stage s;
  s.there.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  s.ready();
  s.fails(IBV_WR_RDMA_READ, 8, s.remote(), s.there.mr->rkey);
}

void no_remote_atomic() {
  Stage s;
  s.there.access = kWithoutAtomics;
  s.ready();
  s.fails(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, s.remote(), s.there.mr->rkey);
}

void misaligned_atomic() {
  Stage s;
  s.ready();
  fact("va", s.remote(4));
  s.fails(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, s.remote(4), s.there.mr->rkey);
}

void qp_without_right() {
  Stage s;
  s.there.how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  s.ready();
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), s.there.mr->rkey);
}

void region_of_other_pd() {
  Stage s;
  s.ready();
  ibv_pd* const other = good(ibv_alloc_pd(s.there.context), "ibv_alloc_pd");
  ibv_mr* const mr = good(ibv_reg_mr(other, s.there.memory, 4096, kAllAccess), "ibv_reg_mr");
  fact("key", mr->rkey);
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), mr->rkey);
}

void wrong_lkey() {
  Stage s;
  s.ready();
  ibv_sge sge = s.here.sge(8);
  sge.lkey ^= 0x155;
  fact("key", sge.lkey);
  good(s.here.send(IBV_WR_RDMA_WRITE, sge, s.remote(), s.there.mr->rkey), "post");
  s.here.completion();
}

void sge_beyond_region() {
  Stage s;
  s.ready();
  fact("region", reinterpret_cast<uint64_t>(s.here.memory));
  good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(kBufferBytes + 8), s.remote(), s.there.mr->rkey),
       "post");
  s.here.completion();
}

void read_into_read_only() {
  Stage s;
  s.here.access = 0;
  s.ready();
  good(s.here.send(IBV_WR_RDMA_READ, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  s.here.completion();
}

void wrong_lkey_of_receive() {
  Stage s;
  s.ready();
  ibv_sge sge = s.there.sge(64);
  sge.lkey ^= 0x155;
  fact("key", sge.lkey);
  good(s.there.receive(sge), "ibv_post_recv");
  s.fails(IBV_WR_SEND, 8, 0, 0);
  s.there.completion();
}

void receive_into_read_only() {
  Stage s;
  s.there.access = 0;
  s.ready();
  good(s.there.receive(s.there.sge(64)), "ibv_post_recv");
  s.fails(IBV_WR_SEND, 8, 0, 0);
  s.there.completion();
}

void receive_too_short() {
  Stage s;
  s.ready();
  good(s.there.receive(s.there.sge(100)), "ibv_post_recv");
  s.fails(IBV_WR_SEND, 101, 0, 0);
  s.there.completion();
}

void no_receive() {
  Stage s;
  s.here.how.rnr_retry = 2;
  s.ready();
  s.fails(IBV_WR_SEND, 8, 0, 0);
}

void mtu_of_both_ends() {
  Stage s;
  s.here.how.mtu = IBV_MTU_1024;
  s.there.how.mtu = IBV_MTU_512;
  s.ready();
  s.fails(IBV_WR_RDMA_WRITE, 4096, s.remote(), s.there.mr->rkey);
}

void too_many_reads() {
  Stage s;
  s.here.how.rd_atomic = 8;
  s.there.how.rd_atomic = 1;
  s.ready();
  for (int i = 0; i < 8; ++i)
    good(s.here.send(IBV_WR_RDMA_READ, s.here.sge(4096), s.remote(), s.there.mr->rkey), "post");
  for (int i = 0; i < 8; ++i) s.here.completion();
}

void ah_of_other_pd() {
  Stage s;
  s.here.how.type = s.there.how.type = IBV_QPT_UD;
  s.ready();
  ibv_pd* const other = good(ibv_alloc_pd(s.here.context), "ibv_alloc_pd");
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = s.there.gid;
  to.grh.hop_limit = 64;
  ibv_ah* const ah = good(ibv_create_ah(other, &to), "ibv_create_ah");
  ibv_sge sge = s.here.sge(8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {.ah = ah, .remote_qpn = s.there.qp->qp_num, .remote_qkey = 0};
  if (ibv_post_send(s.here.qp, &wr, &bad) == 0) s.here.completion();
}

void invalidate_wrong_rkey() {
  Stage s;
  s.ready();
  good(s.there.receive(s.there.sge(64)), "ibv_post_recv");
  ibv_sge sge = s.here.sge(8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = 0x80001234;
  fact("key", wr.invalidate_rkey);
  good(ibv_post_send(s.here.qp, &wr, &bad), "post");
  s.here.completion();
}

void local_invalidate() {
  Stage s;
  s.ready();
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = 0x80001234;
  fact("key", wr.invalidate_rkey);
  if (ibv_post_send(s.here.qp, &wr, &bad) == 0) s.here.completion();
}

void cq_overrun() {
  Stage s;
  s.here.cq_entries = 64;
  s.here.wanted.cap.max_send_wr = 200;
  s.ready();
  for (int i = 0; i < 150; ++i)
    s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey);
  s.there.poll_for_ms(500);
}

void writes() {
  Stage s;
  s.ready();
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), s.there.mr->rkey);
}

}  // namespace

void add_accesses(Table& table) {
  table["writes"] = writes;  // no mistake: the wire is bad
  table.insert({{"wrong-rkey", wrong_rkey},
                {"revoked-rkey", revoked_rkey},
                {"beyond-region", beyond_region},
                {"before-region", before_region},
                {"no-remote-write", no_remote_write},
                {"no-remote-read", no_remote_read},
                {"no-remote-atomic", no_remote_atomic},
                {"misaligned-atomic", misaligned_atomic},
                {"qp-without-right", qp_without_right},
                {"region-of-other-pd", region_of_other_pd},
                {"wrong-lkey", wrong_lkey},
                {"sge-beyond-region", sge_beyond_region},
                {"read-into-read-only", read_into_read_only},
                {"wrong-lkey-of-receive", wrong_lkey_of_receive},
                {"receive-into-read-only", receive_into_read_only},
                {"receive-too-short", receive_too_short},
                {"no-receive", no_receive},
                {"mtu-of-both-ends", mtu_of_both_ends},
                {"too-many-reads", too_many_reads},
                {"ah-of-other-pd", ah_of_other_pd},
                {"invalidate-wrong-rkey", invalidate_wrong_rkey},
                {"local-invalidate", local_invalidate},
                {"cq-overrun", cq_overrun}});
}

}  // namespace hostnic::mistakes
