// SPDX-License-Identifier: BSD-3-Clause
// Requests that are built by ibv_wr_*: from ibv_wr_start to ibv_wr_complete they belong to one
// thread. That keeps the queue's post_lock, as the device keeps its own.
#include "verbs-shim/check/check.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/posts.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {
namespace {

// The queue pair, if this thread may go on building; otherwise that is reported.
QpShadow* builder_of(const ibv_qp_ex* qp) {
  QpShadow* of = find_qp(qp->qp_base.context, qp->qp_base.qp_num);
  if (of == nullptr) return nullptr;
  const int builder = of->builder.load();
  if (builder == own_tid()) return of;
  if (builder == 0)
    report(CheckKind::kBuilderNotStarted, {"created", of->made_at},
           "QP 0x%x: a call that belongs between ibv_wr_start and ibv_wr_complete", of->qpn);
  else
    report(CheckKind::kBuilderThread, {"started", of->built_at},
           "QP 0x%x: thread %d builds a request while thread %d is between ibv_wr_start and "
           "ibv_wr_complete",
           of->qpn, own_tid(), builder);
  return nullptr;
}

void begin(const ibv_qp_ex* qp, ibv_wr_opcode opcode, uint64_t remote = 0, uint32_t rkey = 0) {
  QpShadow* of = builder_of(qp);
  if (of == nullptr) return;
  SendEntry entry;
  entry.wr_id = qp->wr_id;
  entry.opcode = opcode;
  entry.is_signalled = of->signals_all || (qp->wr_flags & IBV_SEND_SIGNALED) != 0;
  entry.remote = remote;
  entry.rkey = rkey;
  entry.posted_at = entry_place();
  of->building.push_back(entry);
}

// The request that is being built; null: there is none.
SendEntry* current(QpShadow* of) {
  return of == nullptr || of->building.empty() ? nullptr : &of->building.back();
}

void add_sges(const ibv_qp_ex* qp, const ibv_sge* sges, size_t count) {
  QpShadow* of = builder_of(qp);
  SendEntry* entry = current(of);
  if (entry == nullptr) return;
  entry->bytes = 0;
  for (size_t i = 0; sges != nullptr && i < count; ++i) entry->bytes += sges[i].length;
  entry->pieces.count = 0;
  look_at_send(*of, *entry, sges, static_cast<uint32_t>(count));
}

void add_inline(const ibv_qp_ex* qp, size_t bytes) {
  QpShadow* of = builder_of(qp);
  SendEntry* entry = current(of);
  if (entry == nullptr) return;
  entry->bytes = bytes;
  entry->is_inline = true;
  look_at_send(*of, *entry, nullptr, 0);
}

}  // namespace

namespace built {

void wr_start(ibv_qp_ex* qp) {
  QpShadow* of = find_qp(qp->qp_base.context, qp->qp_base.qp_num);
  if (of == nullptr) return;
  if (of->builder.load() == own_tid()) {
    report(CheckKind::kBuilderRestarted, {"started", of->built_at},
           "QP 0x%x: ibv_wr_start, and this thread has not ended what it started", of->qpn);
  } else {
    of->post_lock.lock();
  }
  of->building.clear();
  of->built_at = entry_place();
  of->builder.store(own_tid());
}

void wr_abort(ibv_qp_ex* qp) {
  QpShadow* of = builder_of(qp);
  if (of == nullptr) return;
  of->building.clear();
  of->builder.store(0);
  of->post_lock.unlock();
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, uint64_t, uint64_t) {
  begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, remote, rkey);
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, uint64_t) {
  begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, remote, rkey);
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw*, uint32_t, const ibv_mw_bind_info*) {
  begin(qp, IBV_WR_BIND_MW);
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t) { begin(qp, IBV_WR_LOCAL_INV); }
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote) {
  begin(qp, IBV_WR_RDMA_READ, remote, rkey);
}
void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote) {
  begin(qp, IBV_WR_RDMA_WRITE, remote, rkey);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, __be32) {
  begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, remote, rkey);
}
void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* qp, __be32) { begin(qp, IBV_WR_SEND_WITH_IMM); }
void wr_send_inv(ibv_qp_ex* qp, uint32_t) { begin(qp, IBV_WR_SEND_WITH_INV); }
void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah*, uint32_t, uint32_t) { builder_of(qp); }

void wr_set_inline_data(ibv_qp_ex* qp, void*, size_t length) { add_inline(qp, length); }
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  size_t bytes = 0;
  for (size_t i = 0; list != nullptr && i < count; ++i) bytes += list[i].length;
  add_inline(qp, bytes);
}
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  add_sges(qp, &sge, 1);
}
void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  add_sges(qp, list, count);
}

}  // namespace built

Posting completes(ibv_qp_ex* qp) {
  QpShadow* of = builder_of(qp);
  if (of == nullptr) return {};
  Posting posting{.qp = of, .is_send = true};
  of->builder.store(0);
  if (is_followed(*of)) {
    for (SendEntry& entry : of->building) {
      entry.number = of->sent++;
      add_send(*of, entry);
      ++posting.requests;
    }
  }
  of->building.clear();
  return posting;
}

}  // namespace hostnic::check
