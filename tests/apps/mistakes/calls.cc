// SPDX-License-Identifier: BSD-3-Clause
// Calls that are refused: what EINVAL, ENOMEM and EBUSY are about.
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

void refused(bool is_refused, const char* what) {
  if (!is_refused) die(what);
  printf("refused: %s, errno %d\n", what, errno);
}

void no_grh() {
  Stage s;
  s.make();
  s.here.to_init();
  ibv_qp_attr attr = verbs::rtr_attributes(s.here.how, s.there.address());
  attr.ah_attr.is_global = 0;
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::rtr_mask(IBV_QPT_RC)) != 0, "RTR");
}

void gid_index() {
  Stage s;
  s.make();
  s.here.to_init();
  ibv_qp_attr attr = verbs::rtr_attributes(s.here.how, s.there.address());
  attr.ah_attr.grh.sgid_index = 200;
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::rtr_mask(IBV_QPT_RC)) != 0, "RTR");
}

void missing_attribute() {
  Stage s;
  s.make();
  s.here.to_init();
  ibv_qp_attr attr = verbs::rtr_attributes(s.here.how, s.there.address());
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::rtr_mask(IBV_QPT_RC) & ~IBV_QP_MIN_RNR_TIMER) != 0,
          "RTR");
}

void wrong_transition() {
  Stage s;
  s.make();
  ibv_qp_attr attr = verbs::rts_attributes(s.here.how, 0);
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::rts_mask(IBV_QPT_RC)) != 0, "RTS");
}

void send_in_init() {
  Stage s;
  s.make();
  s.here.to_init();
  refused(s.here.send(IBV_WR_SEND, s.here.sge(8)) != 0, "ibv_post_send");
}

void receive_in_reset() {
  Stage s;
  s.make();
  refused(s.here.receive(s.here.sge(8)) != 0, "ibv_post_recv");
}

void send_queue_full() {
  Stage s;
  s.ready();
  for (int i = 0; i < 16; ++i)
    good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey, 0), "post");
  refused(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey, 0) != 0,
          "the 17th");
}

void receive_queue_full() {
  Stage s;
  s.ready();
  for (int i = 0; i < 16; ++i) good(s.here.receive(s.here.sge(8)), "ibv_post_recv");
  refused(s.here.receive(s.here.sge(8)) != 0, "the 17th");
}

void shared_queue_full() {
  Stage s;
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = good(ibv_create_srq(s.here.pd, &attr), "ibv_create_srq");
  s.make();
  ibv_sge sge = s.here.sge(8);
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  int error = 0;
  for (int i = 0; i < 100 && error == 0; ++i) error = ibv_post_srq_recv(srq, &wr, &bad);
  refused(error != 0, "ibv_post_srq_recv");
}

void too_many_sges() {
  Stage s;
  s.ready();
  std::vector<ibv_sge> sges(5, s.here.sge(8));
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = sges.data();
  wr.num_sge = 5;
  wr.opcode = IBV_WR_SEND;
  refused(ibv_post_send(s.here.qp, &wr, &bad) != 0, "ibv_post_send");
}

void inline_too_long() {
  Stage s;
  s.here.wanted.cap.max_inline_data = 512;
  s.ready();
  refused(s.here.send(IBV_WR_SEND, s.here.sge(2000), 0, 0, IBV_SEND_INLINE) != 0, "post");
}

void cq_entries() {
  Stage s;
  refused(ibv_create_cq(s.here.context, 100'000'000, nullptr, nullptr, 0) == nullptr, "cq");
}

void resize_cq() {
  Stage s;
  s.make();
  refused(ibv_resize_cq(s.here.cq, 100'000'000) != 0, "ibv_resize_cq");
}

void qp_limit() {
  Stage s;
  s.here.wanted.cap.max_send_wr = 100'000;
  s.here.cq = good(ibv_create_cq(s.here.context, 8, nullptr, nullptr, 0), "cq");
  s.here.wanted.send_cq = s.here.wanted.recv_cq = s.here.cq;
  s.here.wanted.qp_type = IBV_QPT_RC;
  refused(ibv_create_qp(s.here.pd, &s.here.wanted) == nullptr, "ibv_create_qp");
}

void qp_type() {
  Stage s;
  s.here.cq = good(ibv_create_cq(s.here.context, 8, nullptr, nullptr, 0), "cq");
  s.here.wanted.send_cq = s.here.wanted.recv_cq = s.here.cq;
  s.here.wanted.qp_type = IBV_QPT_RAW_PACKET;
  refused(ibv_create_qp(s.here.pd, &s.here.wanted) == nullptr, "ibv_create_qp");
}

void srq_limit() {
  Stage s;
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 100'000, .max_sge = 1, .srq_limit = 0};
  refused(ibv_create_srq(s.here.pd, &attr) == nullptr, "ibv_create_srq");
}

void too_many_reads_wanted() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.here.to_init();
  s.here.to_rtr();
  s.here.how.rd_atomic = 100;
  refused(verbs::to_rts(s.here.qp, s.here.how, 0) != 0, "RTS");
}

void uc_read() {
  Stage s;
  s.here.how.type = s.there.how.type = IBV_QPT_UC;
  s.ready();
  refused(s.here.send(IBV_WR_RDMA_READ, s.here.sge(8), s.remote(), s.there.mr->rkey) != 0, "post");
}

void uc_atomic() {
  Stage s;
  s.here.how.type = s.there.how.type = IBV_QPT_UC;
  s.ready();
  refused(
      s.here.send(IBV_WR_ATOMIC_FETCH_AND_ADD, s.here.sge(8), s.remote(), s.there.mr->rkey) != 0,
      "post");
}

void ud_too_long() {
  Stage s;
  s.here.how.type = s.there.how.type = IBV_QPT_UD;
  s.ready();
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = s.there.gid;
  to.grh.hop_limit = 64;
  ibv_ah* const ah = good(ibv_create_ah(s.here.pd, &to), "ibv_create_ah");
  ibv_sge sge = s.here.sge(60000);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {.ah = ah, .remote_qpn = s.there.qp->qp_num, .remote_qkey = 0};
  if (ibv_post_send(s.here.qp, &wr, &bad) == 0) s.here.completion();
}

void pd_in_use() {
  Stage s;
  s.make();
  refused(ibv_dealloc_pd(s.here.pd) != 0, "ibv_dealloc_pd");
}

void cq_in_use() {
  Stage s;
  s.make();
  refused(ibv_destroy_cq(s.here.cq) != 0, "ibv_destroy_cq");
}

void region_with_windows() {
  Stage s;
  s.ready();
  ibv_mw* const mw = good(ibv_alloc_mw(s.here.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
  ibv_mw_bind bind{};
  bind.wr_id = 1;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {.mr = s.here.mr,
                    .addr = reinterpret_cast<uint64_t>(s.here.memory),
                    .length = 4096,
                    .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  good(ibv_bind_mw(s.here.qp, mw, &bind), "ibv_bind_mw");
  if (s.here.completion().status != IBV_WC_SUCCESS) die("bind");
  refused(ibv_dereg_mr(s.here.mr) != 0, "ibv_dereg_mr");
}

void remote_without_local() {
  Stage s;
  refused(ibv_reg_mr(s.here.pd, s.here.memory, 4096, IBV_ACCESS_REMOTE_WRITE) == nullptr, "reg");
}

// Far below where the kernel puts what has no place of its own, so that nothing gets into the hole.
void unmapped_memory() {
  Stage s;
  void* const place = reinterpret_cast<void*>(uintptr_t{0x200000000000});
  void* const mapped = mmap(place, kBufferBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != place) die("mmap");
  auto* const memory = static_cast<std::byte*>(mapped);
  munmap(memory + 4096, 4096);
  fact("hole", reinterpret_cast<uint64_t>(memory + 4096));
  refused(ibv_reg_mr(s.here.pd, memory, kBufferBytes, IBV_ACCESS_LOCAL_WRITE) == nullptr, "reg");
}

void read_only_memory() {
  Stage s;
  mprotect(s.here.memory + 8192, 4096, PROT_READ);
  fact("page", reinterpret_cast<uint64_t>(s.here.memory + 8192));
  refused(ibv_reg_mr(s.here.pd, s.here.memory, kBufferBytes, IBV_ACCESS_LOCAL_WRITE) == nullptr,
          "reg");
}

void huge_region() {
  Stage s;
  refused(ibv_reg_mr(s.here.pd, s.here.memory, size_t{1} << 62, IBV_ACCESS_LOCAL_WRITE) == nullptr,
          "reg");
}

void implicit_odp() {
  Stage s;
  refused(ibv_reg_mr(s.here.pd, nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND) == nullptr, "reg");
}

void unknown_access() {
  Stage s;
  refused(ibv_reg_mr(s.here.pd, s.here.memory, 4096, 1 << 12) == nullptr, "reg");
}

void bind_without_right() {
  Stage s;
  s.here.access = IBV_ACCESS_LOCAL_WRITE;
  s.ready();
  ibv_mw* const mw = good(ibv_alloc_mw(s.here.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {.mr = s.here.mr,
                    .addr = reinterpret_cast<uint64_t>(s.here.memory),
                    .length = 4096,
                    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  if (ibv_bind_mw(s.here.qp, mw, &bind) != 0) return refused(true, "ibv_bind_mw");
  refused(s.here.completion().status != IBV_WC_SUCCESS, "the bind");
}

void no_such_port() {
  Stage s;
  s.make();
  ibv_qp_attr attr = verbs::init_attributes(s.here.how);
  attr.port_num = 2;
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::init_mask(IBV_QPT_RC)) != 0, "INIT");
}

void mtu_beyond_the_port() {
  Stage s;
  s.make();
  s.here.to_init();
  ibv_qp_attr attr = verbs::rtr_attributes(s.here.how, s.there.address());
  attr.path_mtu = static_cast<ibv_mtu>(9);
  refused(ibv_modify_qp(s.here.qp, &attr, verbs::rtr_mask(IBV_QPT_RC)) != 0, "RTR");
}

}  // namespace

void add_calls(Table& table) {
  table.insert({{"no-grh", no_grh},
                {"gid-index", gid_index},
                {"missing-attribute", missing_attribute},
                {"wrong-transition", wrong_transition},
                {"send-in-init", send_in_init},
                {"receive-in-reset", receive_in_reset},
                {"send-queue-full", send_queue_full},
                {"receive-queue-full", receive_queue_full},
                {"shared-queue-full", shared_queue_full},
                {"too-many-sges", too_many_sges},
                {"inline-too-long", inline_too_long},
                {"cq-entries", cq_entries},
                {"resize-cq", resize_cq},
                {"qp-limit", qp_limit},
                {"qp-type", qp_type},
                {"srq-limit", srq_limit},
                {"too-many-reads-wanted", too_many_reads_wanted},
                {"uc-read", uc_read},
                {"uc-atomic", uc_atomic},
                {"ud-too-long", ud_too_long},
                {"pd-in-use", pd_in_use},
                {"cq-in-use", cq_in_use},
                {"region-with-windows", region_with_windows},
                {"remote-without-local", remote_without_local},
                {"unmapped-memory", unmapped_memory},
                {"read-only-memory", read_only_memory},
                {"huge-region", huge_region},
                {"implicit-odp", implicit_odp},
                {"unknown-access", unknown_access},
                {"bind-without-right", bind_without_right},
                {"no-such-port", no_such_port},
                {"mtu-beyond-the-port", mtu_beyond_the_port}});
}

}  // namespace hostnic::mistakes
