// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/send_builder.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "verbs-shim/abi/objects.h"
#include "verbs-shim/base/refusal.h"
#include "verbs-shim/runtime/context.h"

namespace hostnic::abi {

void SendBuilder::clear() {
  pending_.clear();
  sges_.clear();
  inline_bytes_.clear();
  binds_.clear();
  error_ = 0;
}

void SendBuilder::start() {
  mutex_.lock();
  clear();
}

driver::SendRequest& SendBuilder::begin(SendOp op, uint64_t wr_id, unsigned int flags) {
  scratch_ = {};
  scratch_.wr_id = wr_id;
  scratch_.op = op;
  scratch_.signalled = flags & IBV_SEND_SIGNALED;
  scratch_.solicited = flags & IBV_SEND_SOLICITED;
  scratch_.fence = flags & IBV_SEND_FENCE;
  const bool reads = op == SendOp::kRead || op == SendOp::kCompareSwap || op == SendOp::kFetchAdd;
  const bool sends = op == SendOp::kSend || op == SendOp::kSendImm;
  const bool invalidates = op == SendOp::kSendInv;  // a key at the peer is invalidated
  if ((type_ == QpType::kUc && (reads || invalidates)) || (type_ == QpType::kUd && !sends))
    refuse(hostnic::refuse({Reason::kNotOfThisType, static_cast<uint64_t>(op)}));
  if (pending_.size() >= caps_.max_send_wr)
    refuse(hostnic::refuse({Reason::kBatchTooLong, pending_.size() + 1, caps_.max_send_wr}));
  if (error_ != 0) return scratch_;
  try {
    pending_.push_back({scratch_, sges_.size(), 0, inline_bytes_.size(), 0});
  } catch (const std::bad_alloc&) {
    refuse(ENOMEM);
    return scratch_;
  }
  return pending_.back().request;
}

void SendBuilder::add_sges(const ibv_sge* list, size_t count) {
  if (error_ != 0) return;
  if (pending_.empty()) return refuse(EINVAL);
  if (count > caps_.max_send_sge)
    return refuse(hostnic::refuse({Reason::kSges, count, caps_.max_send_sge}));
  try {
    Pending& last = pending_.back();
    sges_.resize(last.first_sge);  // a second setter replaces the first
    for (size_t i = 0; i < count; ++i) {
      sges_.push_back({list[i].addr, list[i].length, list[i].lkey});
    }
    last.sge_count = count;
    last.request.inline_data = false;
  } catch (const std::bad_alloc&) {
    refuse(ENOMEM);
  }
}

void SendBuilder::add_inline(const ibv_data_buf* buffers, size_t count) {
  if (error_ != 0) return;
  if (pending_.empty()) return refuse(EINVAL);
  Pending& last = pending_.back();
  const SendOp op = last.request.op;
  if (op == SendOp::kRead || op == SendOp::kCompareSwap || op == SendOp::kFetchAdd) {
    return refuse(hostnic::refuse({Reason::kInlineRead}));
  }
  try {
    inline_bytes_.resize(last.first_inline_byte);
    for (size_t i = 0; i < count; ++i) {
      const size_t used = inline_bytes_.size() - last.first_inline_byte;
      if (buffers[i].length > caps_.max_inline_bytes - used)
        return refuse(hostnic::refuse(
            {Reason::kInlineBytes, used + buffers[i].length, caps_.max_inline_bytes}));
      const auto* bytes = static_cast<const std::byte*>(buffers[i].addr);
      inline_bytes_.insert(inline_bytes_.end(), bytes, bytes + buffers[i].length);
    }
    last.inline_bytes = inline_bytes_.size() - last.first_inline_byte;
    last.request.inline_data = true;
  } catch (const std::bad_alloc&) {
    refuse(ENOMEM);
  }
}

void SendBuilder::set_destination(const driver::UdAddress& destination) {
  if (error_ != 0) return;
  if (pending_.empty() || type_ != QpType::kUd) return refuse(EINVAL);
  pending_.back().request.ud = destination;
}

void SendBuilder::set_window(ibv_mw* window) {
  if (error_ != 0) return;
  try {
    binds_.push_back({pending_.size() - 1, window});
  } catch (const std::bad_alloc&) {
    refuse(ENOMEM);
  }
}

void SendBuilder::refuse(int error) {
  if (error_ == 0) error_ = error;
}

int SendBuilder::complete(runtime::Context& context, driver::Qp& qp) {
  int error = error_;
  if (error == 0 && !pending_.empty()) error = post_all(context, qp);
  mutex_.unlock();
  return error;
}

void SendBuilder::abort() { mutex_.unlock(); }

int SendBuilder::post_all(runtime::Context& context, driver::Qp& qp) {
  // A datagram whose destination was never set is found only now.
  for (const Pending& item : pending_) {
    if (type_ == QpType::kUd && raw(item.request.ud.ip) == 0)
      return hostnic::refuse({Reason::kNoDestination});
  }
  // Sizes and SGEs were checked while building, the state is the first request's business: with
  // room for all, only that one can be refused. A single request is all or nothing by itself.
  if (pending_.size() > 1) {
    if (!context.alive()) return EIO;
    const uint64_t free = context.driver().free_send_slots(&qp);
    if (free < pending_.size())
      return hostnic::refuse({Reason::kBatchTooLong, pending_.size(), free});
  }
  for (Pending& item : pending_) {
    Sge inline_sge{};
    if (item.request.inline_data) {
      // The address is taken only now: the buffer may have moved while it grew.
      const std::byte* bytes = inline_bytes_.data() + item.first_inline_byte;
      inline_sge = {reinterpret_cast<uintptr_t>(bytes), static_cast<uint32_t>(item.inline_bytes),
                    0};
      item.request.sges = {&inline_sge, 1};
    } else {
      item.request.sges = {sges_.data() + item.first_sge, item.sge_count};
    }
    if (int error = context.post_send(qp, item.request)) return error;
  }
  for (const Bind& bind : binds_) bind.window->rkey = pending_[bind.index].request.rkey;
  return 0;
}

// ---- the function pointers of ibv_qp_ex

namespace {

driver::SendRequest& begin(ibv_qp_ex* qp, SendOp op) {
  return object_of(qp)->builder.begin(op, qp->wr_id, qp->wr_flags);
}

void remote(driver::SendRequest& request, uint32_t rkey, uint64_t remote_va) {
  request.rkey = rkey;
  request.remote_va = remote_va;
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va) {
  remote(begin(qp, SendOp::kWrite), rkey, remote_va);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, __be32 imm_data) {
  driver::SendRequest& request = begin(qp, SendOp::kWriteImm);
  remote(request, rkey, remote_va);
  request.imm_data = imm_data;
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va) {
  remote(begin(qp, SendOp::kRead), rkey, remote_va);
}

void wr_send(ibv_qp_ex* qp) { begin(qp, SendOp::kSend); }

void wr_send_imm(ibv_qp_ex* qp, __be32 imm_data) {
  begin(qp, SendOp::kSendImm).imm_data = imm_data;
}

void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) { begin(qp, SendOp::kSendInv).imm_data = rkey; }

void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) { begin(qp, SendOp::kLocalInvalidate).rkey = rkey; }

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  driver::SendRequest& request = begin(qp, SendOp::kBindWindow);
  const int error = to_bind(qp->qp_base, mw, IBV_MW_TYPE_2, rkey, *info, request);
  if (error != 0) return object_of(qp)->builder.refuse(error);
  object_of(qp)->builder.set_window(mw);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, uint64_t compare,
                       uint64_t swap) {
  driver::SendRequest& request = begin(qp, SendOp::kCompareSwap);
  remote(request, rkey, remote_va);
  request.compare_add = compare;
  request.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_va, uint64_t add) {
  driver::SendRequest& request = begin(qp, SendOp::kFetchAdd);
  remote(request, rkey, remote_va);
  request.compare_add = add;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  driver::UdAddress destination;
  const int error = to_datagram(qp->qp_base, ah, remote_qpn, remote_qkey, destination);
  if (error != 0) return object_of(qp)->builder.refuse(error);
  object_of(qp)->builder.set_destination(destination);
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  // An empty SGE is none, as with hardware providers, so that zero-length sends need no valid lkey.
  object_of(qp)->builder.add_sges(&sge, length != 0 ? 1 : 0);
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  object_of(qp)->builder.add_sges(list, count);
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{address, length};
  object_of(qp)->builder.add_inline(&buffer, 1);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  object_of(qp)->builder.add_inline(list, count);
}

void wr_start(ibv_qp_ex* qp) { object_of(qp)->builder.start(); }

int wr_complete(ibv_qp_ex* qp) {
  QpObject* object = object_of(qp);
  const int error = object->builder.complete(*object->owner->driver, *object->qp);
  if (error != 0) {
    tell_refusal("ibv_wr_complete", object->qp_base.qp_num, error);
    errno = error;
  }
  return error;
}

void wr_abort(ibv_qp_ex* qp) { object_of(qp)->builder.abort(); }

// Takes the place of operations that were not asked for at creation: programs call through any of
// the pointers without looking, and get an error of the batch, not a jump to null.
template <typename... Arguments>
void unsupported(ibv_qp_ex* qp, Arguments...) {
  object_of(qp)->builder.refuse(EOPNOTSUPP);
}

}  // namespace

uint64_t send_ops_of(QpType type) {
  constexpr uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  constexpr uint64_t kWindows = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
  constexpr uint64_t kReads = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  switch (type) {
    case QpType::kUd:
      return kSends;
    case QpType::kUc:
      return kSends | kWrites | kWindows;
    default:
      return kSends | kWrites | kReads | kWindows | IBV_QP_EX_WITH_SEND_WITH_INV;
  }
}

void install_send_builder(ibv_qp_ex& qp) {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = unsupported<void*, uint16_t, uint16_t>;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = unsupported<uint32_t>;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_atomic_write = unsupported<uint32_t, uint64_t, const void*>;
}

}  // namespace hostnic::abi
