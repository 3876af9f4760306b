// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that are made by ibv_create_qp_ex and used by the ibv_wr_* calls.
#pragma once

#include <cerrno>
#include <cstring>

#include "tests/conformance/windows.h"

namespace hostnic::conformance {

inline constexpr uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
inline constexpr uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
inline constexpr uint64_t kWindowOps = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
inline constexpr uint64_t kRcOps =
    kSends | kWrites | kWindowOps | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;

inline uint64_t& word(const Host& host, uint64_t offset = 0) {
  return *reinterpret_cast<uint64_t*>(host.bytes().data() + offset);
}

// Both ends' queue pairs are made by ibv_create_qp_ex, with all operations of their type.
class Builder : public Windows {
 protected:
  static ibv_qp* make_qp(const Endpoint& end, uint64_t ops, ibv_qp_type type) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = end.cq;
    init.cap = end.options.caps;
    init.qp_type = type;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = end.host.pd;
    init.send_ops_flags = ops;
    return ibv_create_qp_ex(end.host.context, &init);
  }
  void build(uint64_t ops = kRcOps, ibv_qp_type type = IBV_QPT_RC) {
    ConnectOptions options;
    options.type = type;
    create(options);
    for (Endpoint* end : {near.get(), far.get()}) {
      ASSERT_EQ(ibv_destroy_qp(end->qp), 0);
      end->qp = make_qp(*end, ops, type);
      ASSERT_NE(end->qp, nullptr) << strerror(errno);
    }
    connect_endpoints(*near, *far);
    qp_ = ibv_qp_to_qp_ex(near->qp);
    ASSERT_NE(qp_, nullptr);
  }
  void start(uint64_t wr_id, unsigned int flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(qp_);
    next(wr_id, flags);
  }
  void next(uint64_t wr_id, unsigned int flags = IBV_SEND_SIGNALED) {
    qp_->wr_id = wr_id;
    qp_->wr_flags = flags;
  }
  void data(uint32_t bytes, uint64_t offset = 0) {
    ibv_wr_set_sge(qp_, near_host->mr->lkey, near_host->address(offset), bytes);
  }
  void fill(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) near_host->bytes()[i] = std::byte(i * 7 + 3);
  }
  bool arrived(size_t bytes, size_t at = 0, size_t from = 0) const {
    return std::memcmp(near_host->bytes().data() + from, far_host->bytes().data() + at, bytes) == 0;
  }
  uint64_t there(uint64_t offset = 0) const { return far_host->address(offset); }
  uint32_t rkey() const { return far_host->mr->rkey; }

  ibv_qp_ex* qp_ = nullptr;
};

}  // namespace hostnic::conformance
