// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: how they are made, and which states they are in.
#include "verbs-shim/check/queue_pairs.h"

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/shadow.h"

namespace hostnic::check {
namespace {

// One that a queue pair without completions to be told from others' has for itself.
void join(CqShadow* cq, QpShadow* qp) {
  if (cq == nullptr) return;
  const bool is_first = cq->qps.fetch_add(1) == 0;
  cq->only_qp.store(is_first ? qp : nullptr);
}

void leave(CqShadow* cq) {
  if (cq != nullptr && cq->qps.fetch_sub(1) == 1) cq->only_qp.store(nullptr);
}

template <typename Map, typename Key>
auto* value_of(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second;
}

QpShadow* take_free() {
  Shadow& all = shadow();
  if (all.free_qps.empty()) return new QpShadow;
  QpShadow* qp = all.free_qps.back();
  all.free_qps.pop_back();
  return qp;
}

void begin(QpShadow& of, const ibv_qp* qp, const ibv_qp_init_attr& attr) {
  Shadow& all = shadow();
  of.post_lock.reset();  // a builder may have left it
  of.qp = qp;
  of.context = qp->context;
  of.pd = plain_domain(qp->pd);
  of.qpn = qp->qp_num;
  of.type = attr.qp_type;
  of.is_infiniband = qp->context->device->transport_type == IBV_TRANSPORT_IB;
  of.signals_all = attr.sq_sig_all != 0;
  of.caps = attr.cap;
  of.send_cq = value_of(all.cqs, attr.send_cq);
  of.recv_cq = value_of(all.cqs, attr.recv_cq);
  of.srq = value_of(all.srqs, attr.srq);
  of.made_at = call_place();
  of.state.store(IBV_QPS_RESET);
  of.max_rd_atomic = of.max_dest_rd_atomic = -1;
  of.dest_qpn = 0;
  of.has_path = of.has_lost_track = of.has_failed = false;
  of.sent = of.received = of.reads = of.most_reads = of.last_completed = 0;
  of.sent_after_failure = 0;
  of.builder.store(0);
  of.building.clear();
  of.last_region_age = 0;
}

// The extended structure begins as the plain one.
void add_qp(const ibv_qp* qp, const ibv_qp_init_attr& attr) {
  // What a target or initiator of XRC receives is not its own.
  if (attr.qp_type != IBV_QPT_RC && attr.qp_type != IBV_QPT_UC && attr.qp_type != IBV_QPT_UD)
    return;
  const SpinGuard guard(shadow().lock);
  QpShadow* of = take_free();
  begin(*of, qp, attr);
  join(of->send_cq, of);
  if (of->recv_cq != of->send_cq) join(of->recv_cq, of);
  shadow().qps[{qp->context, qp->qp_num}] = of;
  shadow().age.fetch_add(1, std::memory_order_release);
}

// Under the queue's lock.
void reset(QpShadow& qp) {
  forget_posted(qp);
  qp.has_failed = qp.has_lost_track = false;
  qp.sent_after_failure = 0;
  qp.most_reads = 0;
}

}  // namespace

void note(ibv_qp* qp, const ibv_qp_init_attr* attr) {
  note_object(ObjectKind::kQp, qp, qp->context, {qp->pd, attr->send_cq, attr->recv_cq, attr->srq});
  add_qp(qp, *attr);
}

void note(ibv_qp* qp, const ibv_qp_init_attr_ex* attr) {
  note(qp, reinterpret_cast<const ibv_qp_init_attr*>(attr));
}

void forget_qp(const ibv_qp* qp) {
  QpShadow* of = nullptr;
  {
    const SpinGuard guard(shadow().lock);
    const auto found = shadow().qps.find({qp->context, qp->qp_num});
    if (found == shadow().qps.end()) return;
    of = found->second;
    shadow().qps.erase(found);
    shadow().age.fetch_add(1, std::memory_order_release);
  }
  {
    const SpinGuard guard(of->lock);
    forget_posted(*of);
    of->qp = nullptr;
  }
  leave(of->send_cq);
  if (of->recv_cq != of->send_cq) leave(of->recv_cq);
  const SpinGuard guard(shadow().lock);
  shadow().free_qps.push_back(of);
}

void modified(const ibv_qp* qp, const ibv_qp_attr& attr, int mask) {
  QpShadow* of = find_qp(qp->context, qp->qp_num);
  if (of == nullptr) return;
  {
    const SpinGuard guard(of->lock);
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) of->max_rd_atomic = attr.max_rd_atomic;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) of->max_dest_rd_atomic = attr.max_dest_rd_atomic;
    if ((mask & IBV_QP_DEST_QPN) != 0) of->dest_qpn = attr.dest_qp_num;
    if ((mask & IBV_QP_AV) != 0) {
      of->path = attr.ah_attr;
      of->has_path = true;
    }
    if ((mask & IBV_QP_STATE) != 0) {
      of->state.store(attr.qp_state);
      of->sent_after_failure = 0;
      if (attr.qp_state == IBV_QPS_RESET) reset(*of);
    }
  }
  constexpr unsigned kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((mask & IBV_QP_ACCESS_FLAGS) == 0 || (attr.qp_access_flags & kWrites) == 0) return;
  const SpinGuard guard(shadow().lock);
  shadow().domains[of->pd].peers_write = true;
}

void queried(const ibv_qp* qp, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_STATE) == 0) return;
  if (QpShadow* of = find_qp(qp->context, qp->qp_num)) of->state.store(attr.qp_state);
}

}  // namespace hostnic::check
