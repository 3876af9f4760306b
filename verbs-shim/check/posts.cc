// SPDX-License-Identifier: BSD-3-Clause
// Requests and receives that are posted.
#include "verbs-shim/check/posts.h"

#include <cerrno>
#include <cstring>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/memory.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {
namespace {

constexpr uint32_t kGrhBytes = 40;
constexpr uint32_t kAtomicBytes = 8;
constexpr uint32_t kPatience = 16;  // requests that are posted after an error
constexpr uint32_t kFlagBytes = 8;
// More than a queue holds: its completions are taken on ways that are not seen here.
constexpr uint64_t kSpareEntries = 64;

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void look_at_cq(CqShadow* cq, int64_t more) {
  if (cq == nullptr || more == 0) return;
  const int64_t due = cq->may_come.fetch_add(more) + more;
  const int entries = cq->entries.load();
  if (due <= entries) return;
  const void* made_at = nullptr;
  {
    const SpinGuard guard(shadow().lock);
    const auto found = shadow().objects.find(cq->cq);
    if (found != shadow().objects.end()) made_at = found->second.made_at;
  }
  report(CheckKind::kSmallCq, {"created", made_at},
         "%ld completions may come into a completion queue of %d entries", static_cast<long>(due),
         entries);
}

// The other end, if this process has it.
QpShadow* peer_of(const QpShadow& qp) {
  for (QpShadow* other : all_qps())
    if (other != &qp && other->qpn == qp.dest_qpn && other->dest_qpn == qp.qpn &&
        other->type == qp.type)
      return other;
  return nullptr;
}

void look_at_reads(QpShadow& qp, const SendEntry& entry) {
  if (entry.opcode != IBV_WR_RDMA_READ && !is_atomic(entry.opcode)) return;
  if (qp.type != IBV_QPT_RC) return;
  if (qp.max_rd_atomic == 0)
    report(CheckKind::kNoReadDepth, {"created", qp.made_at},
           "a %s on QP 0x%x, which went to RTS with max_rd_atomic 0", name_of(entry.opcode),
           qp.qpn);
  const uint64_t reads = qp.reads + 1;
  if (reads <= qp.most_reads) return;
  qp.most_reads = reads;
  const QpShadow* peer = peer_of(qp);
  if (peer == nullptr || peer->max_dest_rd_atomic < 0) return;
  const auto granted = static_cast<uint64_t>(peer->max_dest_rd_atomic);
  if (reads > granted && qp.max_rd_atomic > peer->max_dest_rd_atomic)
    report(CheckKind::kReadDepth, {"created (peer)", peer->made_at},
           "%lu READs and atomics of QP 0x%x may be under way (max_rd_atomic %d), its peer takes "
           "%d (max_dest_rd_atomic)",
           static_cast<unsigned long>(reads), qp.qpn, qp.max_rd_atomic, peer->max_dest_rd_atomic);
}

void look_at_atomic(const SendEntry& entry) {
  if (!is_atomic(entry.opcode)) return;
  if (entry.remote % kAtomicBytes != 0)
    report(CheckKind::kMisalignedAtomic, {}, "a %s of the remote address 0x%lx",
           name_of(entry.opcode), static_cast<unsigned long>(entry.remote));
  if (entry.bytes < kAtomicBytes)
    report(CheckKind::kShortAtomic, {}, "a %s with %lu bytes for its result of %u",
           name_of(entry.opcode), static_cast<unsigned long>(entry.bytes), kAtomicBytes);
}

void look_at_state(QpShadow& qp, const SendEntry& entry) {
  const auto state = static_cast<ibv_qp_state>(qp.state.load());
  if (qp.is_infiniband && (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR))
    report(CheckKind::kQpState, {"created", qp.made_at}, "a %s is posted to QP 0x%x in %s",
           name_of(entry.opcode), qp.qpn, name_of(state));
}

// Whether both write to the same memory, as far as can be told. A region has another key for each
// device, and so has the peer another address: then places alone say it.
bool same_peer(const QpShadow& one, const QpShadow& other, const SendEntry& flag,
               const SendEntry& data) {
  if (one.context->device != other.context->device) return true;
  if (flag.rkey != data.rkey) return false;
  return one.has_path && other.has_path && one.path.is_global == other.path.is_global &&
         one.path.dlid == other.path.dlid &&
         memcmp(&one.path.grh.dgid, &other.path.grh.dgid, sizeof(ibv_gid)) == 0;
}

// A short WRITE right behind, or in front of, what another queue pair is still writing.
void look_for_race(const QpShadow& qp, const SendEntry& flag) {
  if (!is_strict() || !is_write(flag.opcode) || flag.bytes == 0 || flag.bytes > kFlagBytes) return;
  for (QpShadow* other : all_qps()) {
    if (other == &qp) continue;
    SendEntry data;
    {
      const SpinGuard guard(other->lock);
      for (size_t i = 0; i < other->sends.size(); ++i) {
        const SendEntry& entry = other->sends[i];
        if (is_write(entry.opcode) && entry.bytes > kFlagBytes &&
            same_peer(qp, *other, flag, entry) &&
            (entry.remote + entry.bytes == flag.remote || flag.remote + flag.bytes == entry.remote))
          data = entry;
      }
    }
    if (data.bytes == 0) continue;
    report(CheckKind::kWriteRace, {"data posted", data.posted_at},
           "a %s of %lu bytes on QP 0x%x lies beside one of %lu bytes on QP 0x%x that is not "
           "complete: as a flag it may be seen before the data, since only requests of one queue "
           "pair are in order",
           name_of(flag.opcode), static_cast<unsigned long>(flag.bytes), qp.qpn,
           static_cast<unsigned long>(data.bytes), other->qpn);
  }
}

}  // namespace

void look_at_send(QpShadow& qp, SendEntry& entry, const ibv_sge* sges, uint32_t count) {
  look_at_state(qp, entry);
  const bool writes = entry.opcode == IBV_WR_RDMA_READ || is_atomic(entry.opcode);
  if (count > qp.caps.max_send_sge && !entry.is_inline)
    report(CheckKind::kTooManySges, {"created", qp.made_at},
           "%u SGEs are posted to QP 0x%x, which has max_send_sge %u", count, qp.qpn,
           qp.caps.max_send_sge);
  if (entry.is_inline && entry.bytes > qp.caps.max_inline_data)
    report(CheckKind::kInlineTooLong, {"created", qp.made_at},
           "%lu bytes inline on QP 0x%x, which has max_inline_data %u",
           static_cast<unsigned long>(entry.bytes), qp.qpn, qp.caps.max_inline_data);
  if (!entry.is_inline)
    look_at_sges({&qp, qp.context, qp.pd, name_of(entry.opcode), writes}, sges, count,
                 entry.pieces);
  look_at_atomic(entry);
}

void add_send(QpShadow& qp, SendEntry& entry) {
  entry.order = shadow().posted.fetch_add(1, std::memory_order_relaxed) + 1;
  look_at_reads(qp, entry);
  look_for_race(qp, entry);
  take_digest(qp, entry);
  {
    const SpinGuard guard(qp.lock);
    if (qp.sends.size() > 2 * uint64_t{qp.caps.max_send_wr} + kSpareEntries) {
      qp.has_lost_track = true;
      return forget_posted(qp);
    }
    qp.sends.push(entry);
    if (entry.opcode == IBV_WR_RDMA_READ || is_atomic(entry.opcode)) ++qp.reads;
  }
  look_at_cq(qp.send_cq, entry.is_signalled ? 1 : 0);
}

bool is_followed(QpShadow& qp) {
  const SpinGuard guard(qp.lock);
  if (qp.has_lost_track) return false;
  if (!qp.has_failed) return true;
  if (qp.state.load() == IBV_QPS_RTS && ++qp.sent_after_failure == kPatience)
    report(CheckKind::kIgnoredError, {"polled", qp.failed_at},
           "%u requests are posted to QP 0x%x since a completion with error: it is in ERR",
           kPatience, qp.qpn);
  return false;
}

// Posted between this thread's ibv_wr_start and ibv_wr_complete.
static void lose_track(QpShadow& qp) {
  const SpinGuard guard(qp.lock);
  qp.has_lost_track = true;
  forget_posted(qp);
}

Posting sends(const ibv_qp* qp, const ibv_send_wr* first) {
  QpShadow* of = find_qp(qp->context, qp->qp_num);
  if (of == nullptr) return {};
  if (of->builder.load() == own_tid()) {
    lose_track(*of);
    return {};
  }
  Posting posting{.qp = of, .is_send = true};
  of->post_lock.lock();
  if (!is_followed(*of)) return posting;
  for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
    SendEntry entry;
    entry.wr_id = wr->wr_id;
    entry.opcode = wr->opcode;
    entry.is_signalled = of->signals_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    entry.is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    entry.number = of->sent++;
    entry.posted_at = entry_place();
    const auto count = wr->num_sge > 0 ? static_cast<uint32_t>(wr->num_sge) : 0;
    for (uint32_t i = 0; wr->sg_list != nullptr && i < count; ++i)
      entry.bytes += wr->sg_list[i].length;
    entry.remote = is_atomic(wr->opcode) ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
    entry.rkey = is_atomic(wr->opcode) ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
    look_at_send(*of, entry, wr->sg_list, count);
    add_send(*of, entry);
    ++posting.requests;
  }
  return posting;
}

namespace {

RecvEntry receive_of(const Use& use, const ibv_recv_wr& wr, uint64_t& bytes) {
  RecvEntry entry;
  entry.wr_id = wr.wr_id;
  entry.posted_at = entry_place();
  const auto count = wr.num_sge > 0 ? static_cast<uint32_t>(wr.num_sge) : 0;
  for (uint32_t i = 0; wr.sg_list != nullptr && i < count; ++i) bytes += wr.sg_list[i].length;
  look_at_sges(use, wr.sg_list, count, entry.pieces);
  return entry;
}

void look_at_receive(const QpShadow& qp, const ibv_recv_wr& wr, uint64_t bytes) {
  if (qp.is_infiniband && qp.state.load() == IBV_QPS_RESET)
    report(CheckKind::kQpState, {"created", qp.made_at}, "a receive is posted to QP 0x%x in RESET",
           qp.qpn);
  if (wr.num_sge > 0 && static_cast<uint32_t>(wr.num_sge) > qp.caps.max_recv_sge)
    report(CheckKind::kTooManySges, {"created", qp.made_at},
           "%d SGEs in a receive of QP 0x%x, which has max_recv_sge %u", wr.num_sge, qp.qpn,
           qp.caps.max_recv_sge);
  if (qp.type == IBV_QPT_UD && bytes < kGrhBytes)
    report(CheckKind::kNoGrhRoom, {"created", qp.made_at},
           "a receive of %lu bytes on UD QP 0x%x: the first %u are for the GRH",
           static_cast<unsigned long>(bytes), qp.qpn, kGrhBytes);
}

}  // namespace

Posting receives(const ibv_qp* qp, const ibv_recv_wr* first) {
  QpShadow* of = find_qp(qp->context, qp->qp_num);
  if (of == nullptr) return {};
  of->receive_lock.lock();
  Posting posting{.qp = of};
  {
    const SpinGuard guard(of->lock);
    if (of->has_failed || of->has_lost_track) return posting;
  }
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    uint64_t bytes = 0;
    const RecvEntry entry = receive_of({of, of->context, of->pd, "receive", true}, *wr, bytes);
    look_at_receive(*of, *wr, bytes);
    {
      const SpinGuard guard(of->lock);
      if (of->receives.size() > 2 * uint64_t{of->caps.max_recv_wr} + kSpareEntries) {
        of->has_lost_track = true;
        forget_posted(*of);
        return posting;
      }
      of->receives.push(entry);
      ++of->received;
    }
    look_at_cq(of->recv_cq, 1);
    ++posting.requests;
  }
  return posting;
}

Posting receives(const ibv_srq* srq, const ibv_recv_wr* first) {
  SrqShadow* of = find_srq(srq);
  if (of == nullptr) return {};
  of->post_lock.lock();
  Posting posting{.srq = of};
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next, ++posting.requests) {
    uint64_t bytes = 0;
    const RecvEntry entry = receive_of({nullptr, of->context, of->pd, "receive", true}, *wr, bytes);
    const SpinGuard guard(of->lock);
    of->receives.push(entry);
  }
  return posting;
}

namespace {

void take_back_sends(QpShadow& qp, uint32_t count) {
  for (; count > 0 && qp.sends.size() > 0; --count) {
    const SendEntry& entry = qp.sends[qp.sends.size() - 1];
    if (entry.is_signalled && qp.send_cq != nullptr) qp.send_cq->may_come.fetch_sub(1);
    if ((entry.opcode == IBV_WR_RDMA_READ || is_atomic(entry.opcode)) && qp.reads > 0) --qp.reads;
    qp.sends.pop_back();
  }
}

// A queue that is full, and of whose requests none will say that it is done.
bool is_stuck(QpShadow& qp) {
  for (size_t i = 0; i < qp.sends.size(); ++i)
    if (qp.sends[i].is_signalled) return false;
  return qp.sends.size() > 0;
}

}  // namespace

void posted(const Posting& posting, int result, uint32_t good) {
  const int saved_errno = errno;
  const int error = result == -1 ? errno : result;
  const uint32_t back = result == 0 || good > posting.requests ? 0 : posting.requests - good;
  if (posting.srq != nullptr) {
    const SpinGuard guard(posting.srq->lock);
    for (uint32_t i = 0; i < back && posting.srq->receives.size() > 0; ++i)
      posting.srq->receives.pop_back();
    posting.srq->post_lock.unlock();
    return;
  }
  QpShadow& qp = *posting.qp;
  bool stuck = false;
  {
    const SpinGuard guard(qp.lock);
    if (posting.is_send) {
      take_back_sends(qp, back);
      stuck = error == ENOMEM && back > 0 && is_stuck(qp);
    } else {
      for (uint32_t i = 0; i < back && qp.receives.size() > 0; ++i) {
        qp.receives.pop_back();
        if (qp.recv_cq != nullptr) qp.recv_cq->may_come.fetch_sub(1);
      }
    }
  }
  if (stuck)
    report(CheckKind::kQueueStuck, {"created", qp.made_at},
           "the send queue of QP 0x%x is full (max_send_wr %u) and none of its requests is "
           "signalled: it will never have room again",
           qp.qpn, qp.caps.max_send_wr);
  (posting.is_send ? qp.post_lock : qp.receive_lock).unlock();
  errno = saved_errno;
}

void report_no_receive(const QpShadow& qp, const SendEntry& entry) {
  const QpShadow* peer = peer_of(qp);
  const bool never = peer != nullptr && peer->received == 0 && peer->srq == nullptr;
  report(CheckKind::kNoReceive, {"posted", entry.posted_at},
         "a %s on QP 0x%x failed by RNR_RETRY_EXC: its peer %s", name_of(entry.opcode), qp.qpn,
         never ? "has never posted a receive" : "had no receive posted, again and again");
}

}  // namespace hostnic::check
