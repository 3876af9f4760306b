// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: RC queue pairs of a NIC that speaks MRC, which have attributes of MRC beside those
// of verbs. Verbs' transitions want attributes that MRC has not (RNR, READs): they are filled in
// here.
#include <algorithm>

#include "verbs-shim/base/log.h"
#include "verbs-shim/mrc/attributes.h"
#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"
#include "verbs-shim/mrc/verbs.h"

namespace hostnic::libmrc {
namespace {

constexpr uint64_t kOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;

// Returns 0, or why there can't be such a queue pair; the rest is for ibv_create_qp to say.
int check(const char* call, const mrc_context* context, const mrc_qp_init_attr& init) {
  const uint32_t version = number_in(init.protocol_version);
  if (version != MRC_PROTOCOL_VERSION_0 && version != MRC_PROTOCOL_VERSION_1)
    return refused(call, EINVAL, "protocol_version is %u: 1 is known, and 0 for any", version);
  if ((init.send_ops_flags & ~kOps) != 0) {
    return refused(call, EOPNOTSUPP,
                   "send_ops_flags names more than RDMA WRITE, with and without immediate data, "
                   "which are all that MRC has");
  }
  if (init.pd == nullptr) return refused(call, EINVAL, "pd is null");
  const bool has_queues = is_object_in(Kind::kCq, init.send_cq, context) &&
                          is_object_in(Kind::kCq, init.recv_cq, context);
  return has_queues
             ? 0
             : refused(call, EINVAL, "send_cq or recv_cq is no completion queue of the context");
}

// Attributes that ibv_modify_qp demands and MRC has not, and those that only MRC's own masks set.
struct VerbsStep {
  ibv_qp_attr attr;
  uint32_t mask;
};

VerbsStep step_of(const mrc_qp& qp, const mrc_qp_attr& wanted, const ibv_qp_attr& given,
                  uint32_t mask) {
  VerbsStep step{given, mask & ~kIgnoredOfVerbs};
  if ((mask & IBV_QP_STATE) == 0) return step;
  ibv_qp_attr& attr = step.attr;
  const uint32_t to = number_in(attr.qp_state);
  if (to == IBV_QPS_INIT) {
    step.mask |= IBV_QP_PORT;
    attr.port_num = 1;
  } else if (to == IBV_QPS_RTR) {
    constexpr uint8_t kAnyRnrTimer = 12;  // MRC has no RNR
    step.mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    attr.max_dest_rd_atomic = 0;
    attr.min_rnr_timer = kAnyRnrTimer;
    attr.ah_attr.port_num = 1;
  } else if (to == IBV_QPS_RTS && qp.verbs->state == IBV_QPS_RTR) {
    step.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    // Verbs' 0 is for ever, and MRC's is the shortest of all.
    attr.timeout = std::max<uint8_t>(wanted.timeout, 1);
    attr.retry_cnt = wanted.retry.linear_cnt;
    attr.rnr_retry = 0;
    attr.max_rd_atomic = 0;
  }
  return step;
}

// A port is what it is anyway.
void say_what_is_ignored(const mrc_qp& qp, uint32_t mask) {
  const uint32_t ignored = mask & kIgnoredOfVerbs & ~uint32_t{IBV_QP_PORT};
  if (ignored == 0) return;
  log_info(
      "mrc_modify_qp: QP 0x%x: 0x%x of vattr_mask is not MRC's, and ignored: IBV_QP_TIMEOUT and "
      "IBV_QP_RETRY_CNT are MRC_QP_TIMEOUT and MRC_QP_RETRY_CNT of mrc_attr_mask",
      qp.verbs->qp_num, ignored);
}

// Puts the new attributes in force, once the verb has succeeded.
void take(mrc_qp& qp, const mrc_qp_attr& attr) {
  const auto lock = lock_objects();
  if (qp.attr.qp_hint != nullptr) --qp.attr.qp_hint->users;
  if (attr.qp_hint != nullptr) ++attr.qp_hint->users;
  qp.attr = attr;
  qp.no_imm = attr.wimm.max_wimm == 0;
}

// Posts requests one by one, up to the first with immediate data: the program has said that there
// are none.
int post_without_imm(mrc_qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  for (; wr != nullptr; wr = wr->next) {
    *bad_wr = wr;
    if (number_in(wr->opcode) == IBV_WR_RDMA_WRITE_WITH_IMM) {
      return refused("mrc_post_send", EINVAL,
                     "QP 0x%x has max_wimm 0, and this is a WRITE with immediate data",
                     qp.verbs->qp_num);
    }
    ibv_send_wr one = *wr;
    one.next = nullptr;
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(qp.verbs, &one, &bad)) return error;
  }
  return 0;
}

}  // namespace
}  // namespace hostnic::libmrc

using namespace hostnic;
using namespace hostnic::libmrc;

MRC_CALL mrc_qp* mrc_create_qp(mrc_context* context, mrc_qp_init_attr* init) {
  constexpr const char* kCall = "mrc_create_qp";
  if (!is_object(Kind::kContext, context)) return no_pointer(no_object(kCall, Kind::kContext));
  if (init == nullptr) return no_pointer(refused(kCall, EINVAL, "mrc_qp_attr is null"));
  if (const int error = check(kCall, context, *init)) return no_pointer(error);
  auto* const made = make<mrc_qp>(context, *init);
  if (made == nullptr) return nullptr;
  made->attr = first_attributes(context->device);
  ibv_qp_init_attr of_verbs{};
  of_verbs.qp_context = made;
  of_verbs.send_cq = init->send_cq->verbs;
  of_verbs.recv_cq = init->recv_cq->verbs;
  of_verbs.cap = init->cap;
  of_verbs.qp_type = IBV_QPT_RC;
  of_verbs.sq_sig_all = init->sq_sig_all;
  made->verbs = verbs().create_qp(init->pd, &of_verbs);
  if (made->verbs == nullptr) {
    const int error = errno;
    delete made;
    return no_pointer(error);
  }
  init->cap = made->init.cap = of_verbs.cap;
  const auto lock = lock_objects();
  add_object(*made);
  return made;
}

MRC_CALL int mrc_destroy_qp(mrc_qp* qp) {
  bool is_known = false;
  {
    const auto lock = lock_objects();
    is_known = is_live(Kind::kQp, qp);
    if (is_known) remove_object(*qp);
  }
  if (!is_known) return no_object("mrc_destroy_qp", Kind::kQp);
  const int error = verbs().destroy_qp(qp->verbs);
  const auto lock = lock_objects();
  if (error != 0) {
    add_object(*qp);
    return error;
  }
  if (qp->attr.qp_hint != nullptr) --qp->attr.qp_hint->users;
  delete qp;
  return 0;
}

MRC_CALL int mrc_modify_qp(mrc_qp* qp, ibv_qp_attr* vattr, int vattr_mask, mrc_qp_attr* mrc_attr,
                           int mrc_attr_mask) {
  constexpr const char* kCall = "mrc_modify_qp";
  const auto of_verbs = static_cast<uint32_t>(vattr_mask);
  const auto of_mrc = static_cast<uint32_t>(mrc_attr_mask);
  if (!is_object(Kind::kQp, qp)) return no_object(kCall, Kind::kQp);
  if ((of_verbs != 0 && vattr == nullptr) || (of_mrc != 0 && mrc_attr == nullptr))
    return refused(kCall, EINVAL, "vattr or mrc_attr is null");
  const ibv_qp_attr none{};
  const ibv_qp_attr& given = vattr == nullptr ? none : *vattr;
  mrc_qp_attr wanted = qp->attr;
  if (of_mrc != 0) {
    const Step step{.call = kCall, .verbs = given, .verbs_mask = of_verbs, .mask = of_mrc};
    if (const int error = apply(step, *qp, *mrc_attr, wanted)) return error;
  }
  if ((of_verbs & kRefusedOfVerbs) != 0)
    return refused(kCall, EINVAL, "there are no alternate paths: 0x%x of vattr_mask",
                   of_verbs & kRefusedOfVerbs);
  say_what_is_ignored(*qp, of_verbs);
  VerbsStep step = step_of(*qp, wanted, given, of_verbs);
  int error = 0;
  if ((step.mask & IBV_QP_STATE) != 0 && number_in(step.attr.qp_state) == IBV_QPS_RTS) {
    const MrcQpLimits limits = limits_of(wanted);
    error = hostnic_mrc_set_limits(qp->verbs, &limits);
  }
  if (error == 0 && step.mask != 0)
    error = verbs().modify_qp(qp->verbs, &step.attr, static_cast<int>(step.mask));
  if (error != 0) return errno = error;
  take(*qp, wanted);
  return 0;
}

MRC_CALL int mrc_query_qp(mrc_qp* qp, ibv_qp_attr* vattr, int vattr_mask, mrc_qp_attr* mrc_attr,
                          int /*mrc_attr_mask*/, mrc_qp_init_attr* init) {
  if (!is_object(Kind::kQp, qp)) return no_object("mrc_query_qp", Kind::kQp);
  ibv_qp_attr of_verbs;
  ibv_qp_init_attr unused;
  const int error =
      verbs().query_qp(qp->verbs, vattr == nullptr ? &of_verbs : vattr, vattr_mask, &unused);
  if (error != 0) return error;
  const auto lock = lock_objects();
  if (mrc_attr != nullptr) *mrc_attr = qp->attr;
  if (init != nullptr) {
    *init = qp->init;
    init->protocol_version = MRC_PROTOCOL_VERSION_1;
  }
  return 0;
}

MRC_CALL int mrc_get_qpn(mrc_qp* qp, uint32_t* qpn) {
  constexpr const char* kCall = "mrc_get_qpn";
  if (!is_object(Kind::kQp, qp)) return minus_one(no_object(kCall, Kind::kQp));
  if (qpn == nullptr) return minus_one(refused(kCall, EINVAL, "qpn is null"));
  *qpn = qp->verbs->qp_num;
  return 0;
}

MRC_CALL int mrc_post_recv(mrc_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return minus_one(ibv_post_recv(qp->verbs, wr, bad_wr));
}

MRC_CALL int mrc_post_send(mrc_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (qp->no_imm) [[unlikely]]
    return post_without_imm(*qp, wr, bad_wr);
  return ibv_post_send(qp->verbs, wr, bad_wr);
}
