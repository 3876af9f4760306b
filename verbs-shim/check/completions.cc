// SPDX-License-Identifier: BSD-3-Clause
// Completions that are polled: they say which requests and receives are done. Success is a fact of
// all requests in front of it, too; a failure ends what is followed of its queue pair.
#include <algorithm>
#include <cerrno>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/memory.h"
#include "verbs-shim/check/posts.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {
namespace {

struct Polled {
  uint64_t wr_id = 0;
  uint32_t qpn = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;  // of success only
};

bool fits(ibv_wc_opcode completed, ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return completed == IBV_WC_SEND;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return completed == IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return completed == IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return completed == IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return completed == IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return completed == IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return completed == IBV_WC_LOCAL_INV;
    default:
      return true;
  }
}

bool is_inbound(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// Requests whose memory was changed, of one completion: told when no lock is held.
struct Changes {
  uint32_t count = 0;
  SendEntry entry[2];
};

void retire_front(QpShadow& qp, Changes& changes) {
  const SendEntry& entry = qp.sends[0];
  if (is_inbound(entry.opcode)) {
    note_inbound(entry.pieces);
    if (qp.reads > 0) --qp.reads;
  } else if (changes.count < std::size(changes.entry) && has_changed(qp, entry)) {
    changes.entry[changes.count++] = entry;
  }
  qp.sends.pop_front();
}

// Where the request is whose completion this is; size(): none of those that are followed.
size_t place_of(QpShadow& qp, const Polled& polled) {
  const size_t size = qp.sends.size();
  for (size_t i = 0; i < size; ++i) {
    const SendEntry& entry = qp.sends[i];
    if (entry.is_signalled && entry.wr_id == polled.wr_id && fits(polled.opcode, entry.opcode))
      return i;
  }
  return size;
}

void complete_send(QpShadow& qp, const Polled& polled, Changes& changes) {
  const size_t place = place_of(qp, polled);
  if (place == qp.sends.size()) return;  // of a window that was bound, for example
  if (qp.send_cq != nullptr) qp.send_cq->may_come.fetch_sub(1);
  qp.last_completed = qp.sends[place].order;
  for (size_t i = 0; i <= place; ++i) {
    // A completion in front of it was taken where nobody saw it.
    if (i < place && qp.sends[0].is_signalled && qp.send_cq != nullptr)
      qp.send_cq->may_come.fetch_sub(1);
    retire_front(qp, changes);
  }
}

void complete_receive(QpShadow& qp, const Polled& polled) {
  size_t place = 0;
  while (place < qp.receives.size() && qp.receives[place].wr_id != polled.wr_id) ++place;
  if (place == qp.receives.size()) return;
  for (size_t i = 0; i <= place; ++i) {
    note_inbound(qp.receives[0].pieces);
    qp.receives.pop_front();
    if (qp.recv_cq != nullptr) qp.recv_cq->may_come.fetch_sub(1);
  }
}

// In any order, since several queue pairs take from it.
void complete_shared(SrqShadow& srq, const Polled& polled) {
  const SpinGuard guard(srq.lock);
  for (size_t i = 0; i < srq.receives.size(); ++i) {
    RecvEntry& entry = srq.receives[i];
    if (entry.is_taken || entry.wr_id != polled.wr_id) continue;
    note_inbound(entry.pieces);
    entry.is_taken = true;
    break;
  }
  while (srq.receives.size() > 0 && srq.receives[0].is_taken) srq.receives.pop_front();
}

// What a failure was about, as far as it can be told: a request, of whichever opcode.
bool find_failed(QpShadow& qp, const Polled& polled, SendEntry& failed) {
  for (size_t i = 0; i < qp.sends.size(); ++i)
    if (qp.sends[i].wr_id == polled.wr_id) {
      failed = qp.sends[i];
      return true;
    }
  return false;
}

void fail(QpShadow& qp, const Polled& polled, const CqShadow* cq) {
  SendEntry failed;
  bool is_request = false;
  {
    const SpinGuard guard(qp.lock);
    if (qp.has_failed) return;
    is_request = cq == qp.send_cq && find_failed(qp, polled, failed);
    // On another device a queue pair of these types goes on.
    if (polled.status != IBV_WC_WR_FLUSH_ERR || qp.type == IBV_QPT_RC) qp.has_failed = true;
    qp.failed_at = entry_place();
    forget_posted(qp);
  }
  if (!is_request) return;
  if (polled.status == IBV_WC_RNR_RETRY_EXC_ERR) report_no_receive(qp, failed);
  if (polled.status == IBV_WC_LOC_PROT_ERR) look_for_unmapped(qp, failed);
}

void take(const CqShadow* cq, QpShadow& qp, const Polled& polled) {
  const bool succeeded = polled.status == IBV_WC_SUCCESS;
  const bool is_receive = succeeded && (polled.opcode & IBV_WC_RECV) != 0;
  if (qp.srq != nullptr && (is_receive || (!succeeded && cq == qp.recv_cq)))
    complete_shared(*qp.srq, polled);
  if (!succeeded) return fail(qp, polled, cq);
  if (is_receive) qp.heard.fetch_add(1, std::memory_order_relaxed);
  if (is_receive && qp.srq != nullptr) return;
  Changes changes;
  {
    const SpinGuard guard(qp.lock);
    if (qp.has_failed || qp.has_lost_track) return;
    if (is_receive)
      complete_receive(qp, polled);
    else
      complete_send(qp, polled, changes);
  }
  for (uint32_t i = 0; i < changes.count; ++i) report_change(qp, changes.entry[i]);
}

}  // namespace

void polled(const ibv_cq* cq, const ibv_wc* completions, int count) {
  if (count <= 0) return;
  const int saved_errno = errno;
  const CqShadow* of = find_cq(cq);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& wc = completions[i];
    QpShadow* qp = find_qp(cq->context, wc.qp_num);
    if (qp != nullptr) take(of, *qp, {wc.wr_id, wc.qp_num, wc.status, wc.opcode});
  }
  errno = saved_errno;
}

void polled(ibv_cq_ex* cq) {
  const int saved_errno = errno;
  const CqShadow* of = find_cq(ibv_cq_ex_to_cq(cq));
  if (of == nullptr) return;
  QpShadow* qp = cq->read_qp_num != nullptr ? find_qp(cq->context, ibv_wc_read_qp_num(cq))
                                            : of->only_qp.load();
  Polled taken{cq->wr_id, 0, cq->status, IBV_WC_SEND};
  if (cq->status == IBV_WC_SUCCESS) taken.opcode = ibv_wc_read_opcode(cq);
  if (qp != nullptr) take(of, *qp, taken);
  errno = saved_errno;
}

}  // namespace hostnic::check
