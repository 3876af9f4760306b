// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/mistakes/stage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace hostnic::mistakes {

using Clock = std::chrono::steady_clock;

void fact(const char* name, uint64_t value) {
  printf("fact %s=%#llx\n", name, static_cast<unsigned long long>(value));
  fflush(stdout);
}
void fact(const char* name, const char* value) {
  printf("fact %s=%s\n", name, value);
  fflush(stdout);
}

void die(const char* what) {
  fprintf(stderr, "hostnic-mistakes: %s: %s\n", what, strerror(errno));
  exit(3);
}

void Side::open(const char* device) {
  context = good(verbs::open_device(device), device);
  pd = good(ibv_alloc_pd(context), "ibv_alloc_pd");
  channel = good(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  good(ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
  void* const mapped =
      mmap(nullptr, 2 * kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) die("mmap");
  memory = static_cast<std::byte*>(mapped);
  how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC;
  how.timeout = 12;
  how.retry_cnt = 1;
  wanted.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
}

void Side::make() {
  cq = good(ibv_create_cq(context, cq_entries, nullptr, channel, 0), "ibv_create_cq");
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = how.type;
  qp = good(ibv_create_qp(pd, &wanted), "ibv_create_qp");
  mr = good(ibv_reg_mr(pd, memory, kBufferBytes, access), "ibv_reg_mr");
}

ibv_sge Side::sge(size_t bytes) const {
  return {.addr = reinterpret_cast<uint64_t>(memory),
          .length = static_cast<uint32_t>(bytes),
          .lkey = mr->lkey};
}

int Side::send(ibv_wr_opcode opcode, const ibv_sge& sge, uint64_t remote, uint32_t rkey,
               unsigned flags) const {
  ibv_sge copy = sge;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 7;
  wr.sg_list = &copy;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.remote_addr = remote;
    wr.wr.atomic.rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
  }
  return ibv_post_send(qp, &wr, &bad);
}

int Side::receive(const ibv_sge& sge) const {
  ibv_sge copy = sge;
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = 9;
  wr.sg_list = &copy;
  wr.num_sge = 1;
  return ibv_post_recv(qp, &wr, &bad);
}

ibv_wc Side::completion() const {
  ibv_wc wc{};
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
  }
  errno = ETIMEDOUT;
  die("no completion");
}

void Side::poll_for_ms(int ms) const {
  for (const auto end = Clock::now() + std::chrono::milliseconds(ms); Clock::now() < end;) {
    ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Stage::Stage() {
  here.open("hnic0");
  there.open("hnic1");
}

void Stage::connect() {
  here.peer = there.address();
  there.peer = here.address();
  for (Side* side : {&here, &there}) side->to_init();
  for (Side* side : {&here, &there}) side->to_rtr();
  for (Side* side : {&here, &there}) side->to_rts();
}

void Stage::fails(ibv_wr_opcode opcode, size_t bytes, uint64_t to, uint32_t rkey) {
  good(here.send(opcode, here.sge(bytes), to, rkey), "ibv_post_send");
  const ibv_wc wc = here.completion();
  printf("status %u, vendor err %u\n", wc.status, wc.vendor_err);
  if (wc.status == IBV_WC_SUCCESS) die("it did not fail");
}

}  // namespace hostnic::mistakes
