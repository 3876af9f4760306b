// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/gpu/ends.h"

#include <unistd.h>

#include <chrono>

namespace hostnic::gpu_memory {
namespace {

constexpr int kDmaBufFd = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int kSyncMemops = 6;
constexpr size_t kPageBytes = 4096;
constexpr std::chrono::seconds kPatience{60};

verbs::ConnectOptions options() {
  verbs::ConnectOptions how;
  how.access = kAccess;
  return how;
}

verbs::QpAddress address_of(const End& end) {
  verbs::QpAddress address;
  address.qpn = end.qp->qp_num;
  if (ibv_query_gid(end.context, 1, 0, &address.gid) != 0) die("ibv_query_gid");
  return address;
}

}  // namespace

End open_end(const char* device) {
  End end;
  end.context = verbs::open_device(device);
  if (end.context == nullptr) die(device);
  end.pd = ibv_alloc_pd(end.context);
  end.cq = ibv_create_cq(end.context, 256, nullptr, nullptr, 0);
  if (end.pd == nullptr || end.cq == nullptr) die("ibv_alloc_pd, ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {64, 64, 1, 1, 0};
  end.qp = ibv_create_qp(end.pd, &init);
  if (end.qp == nullptr) die("ibv_create_qp");
  return end;
}

ibv_mr* register_part(const Cuda& cuda, const End& end, Way way, CuAddress address, size_t bytes) {
  ibv_mr* mr = nullptr;
  if (way == Way::kPeer) {
    mr = ibv_reg_mr(end.pd, reinterpret_cast<void*>(address), bytes, static_cast<int>(kAccess));
  } else {
    const CuAddress aligned = address & ~(kPageBytes - 1);
    const size_t offset = address - aligned;
    int fd = -1;
    must(cuda.handle_for_range(&fd, aligned, (offset + bytes + kPageBytes - 1) & ~(kPageBytes - 1),
                               kDmaBufFd, 0),
         "cuMemGetHandleForAddressRange");
    mr = ibv_reg_dmabuf_mr(end.pd, offset, bytes, address, fd, static_cast<int>(kAccess));
    close(fd);
  }
  if (mr == nullptr) die(way == Way::kPeer ? "ibv_reg_mr" : "ibv_reg_dmabuf_mr");
  return mr;
}

Memory allocate(const Cuda& cuda, const End& end, Way way, size_t bytes) {
  Memory memory{.address = 0, .bytes = bytes, .mr = nullptr};
  must(cuda.alloc(&memory.address, bytes), "cuMemAlloc");
  const unsigned int on = 1;
  must(cuda.set_attribute(&on, kSyncMemops, memory.address), "cuPointerSetAttribute");
  memory.mr = register_part(cuda, end, way, memory.address, bytes);
  return memory;
}

void connect(End& near, End& far) {
  const verbs::ConnectOptions how = options();
  const verbs::QpAddress a = address_of(near), b = address_of(far);
  if (verbs::to_init(near.qp, how) != 0 || verbs::to_init(far.qp, how) != 0 ||
      verbs::to_rtr(near.qp, how, b) != 0 || verbs::to_rtr(far.qp, how, a) != 0 ||
      verbs::to_rts(near.qp, how, a.psn) != 0 || verbs::to_rts(far.qp, how, b.psn) != 0)
    die("ibv_modify_qp");
}

int post(const End& near, const End& far, ibv_wr_opcode opcode, size_t bytes) {
  ibv_sge sge{near.memory.address, static_cast<uint32_t>(bytes), near.memory.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = far.memory.address;
    wr.wr.atomic.rkey = far.memory.mr->rkey;
    wr.wr.atomic.compare_add = 1;
  } else {
    wr.wr.rdma.remote_addr = far.memory.address;
    wr.wr.rdma.rkey = far.memory.mr->rkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(near.qp, &wr, &bad);
}

ibv_wc_status wait(const End& end) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  ibv_wc completion{};
  while (std::chrono::steady_clock::now() < until) {
    const int got = ibv_poll_cq(end.cq, 1, &completion);
    if (got < 0) die("ibv_poll_cq");
    if (got == 1) return completion.status;
  }
  die("no completion comes");
}

}  // namespace hostnic::gpu_memory
