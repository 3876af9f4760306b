// SPDX-License-Identifier: BSD-3-Clause
#include "tests/check/stage.h"

#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace hostnic::planted {

void die(const char* what) {
  fprintf(stderr, "hostnic-planted: %s (errno %d)\n", what, errno);
  exit(1);
}

int End::send(ibv_wr_opcode opcode, const ibv_sge& sge, const End* to, unsigned flags,
              size_t remote_offset) const {
  ibv_sge element = sge;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 7;
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  if (to != nullptr) {
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {to->address(remote_offset), 1, 0, to->mr->rkey};
    else
      wr.wr.rdma = {to->address(remote_offset), to->mr->rkey};
  }
  return ibv_post_send(qp, &wr, &bad);
}

int End::receive(const ibv_sge& sge) const {
  ibv_sge element = sge;
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = 9;
  wr.sg_list = &element;
  wr.num_sge = 1;
  return ibv_post_recv(qp, &wr, &bad);
}

ibv_wc End::completion() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0)
    if (std::chrono::steady_clock::now() > end) die("no completion");
  return wc;
}

Stage::Stage() {
  wanted.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
  wanted.qp_type = IBV_QPT_RC;
  how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  context = good(verbs::open_device(size_t{0}), "no device");
  channel = good(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  pd = good(ibv_alloc_pd(context), "ibv_alloc_pd");
}

void Stage::make() {
  for (End* of : {&here, &there}) {
    of->cq = good(ibv_create_cq(context, cq_entries, nullptr, channel, 0), "ibv_create_cq");
    ibv_qp_init_attr attr = wanted;
    attr.send_cq = attr.recv_cq = of->cq;
    of->qp = good(ibv_create_qp(pd, &attr), "ibv_create_qp");
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    of->memory = static_cast<std::byte*>(memory);
    of->mr = good(ibv_reg_mr(pd, memory, kBytes, access), "ibv_reg_mr");
  }
}

void Stage::connect() {
  const auto address_of = [&](const End& end) {
    verbs::QpAddress address{.qpn = end.qp->qp_num, .psn = 100};
    good(ibv_query_gid(context, 1, how.gid_index, &address.gid), "ibv_query_gid");
    return address;
  };
  how.type = wanted.qp_type;
  for (const auto& [one, other] : {std::pair{&here, &there}, std::pair{&there, &here}}) {
    verbs::ConnectOptions of = how;
    if (one == &there && rd_atomic_there >= 0) of.rd_atomic = rd_atomic_there;
    good(verbs::to_init(one->qp, of), "INIT");
    good(verbs::to_rtr(one->qp, of, address_of(*other)), "RTR");
    good(verbs::to_rts(one->qp, of, 100), "RTS");
  }
}

void Stage::end() {
  for (End* of : {&here, &there}) {
    if (of->qp != nullptr) good(ibv_destroy_qp(of->qp), "ibv_destroy_qp");
    if (of->mr != nullptr) good(ibv_dereg_mr(of->mr), "ibv_dereg_mr");
    if (of->cq != nullptr) good(ibv_destroy_cq(of->cq), "ibv_destroy_cq");
  }
  if (pd != nullptr) good(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  if (channel != nullptr) good(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  if (context != nullptr) good(ibv_close_device(context), "ibv_close_device");
}

}  // namespace hostnic::planted
