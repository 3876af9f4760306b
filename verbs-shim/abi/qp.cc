// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: creation, state, destruction.
#include <cstring>
#include <utility>

#include "verbs-shim/abi/async_event.h"
#include "verbs-shim/abi/context_numbers.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/refusal.h"
#include "verbs-shim/runtime/lab_peer.h"

namespace hostnic::abi {
namespace {

// Returns 0, or why there can't be such a queue pair. [registry]
int check(ContextObject& context, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  const DeviceOffer& offer = offer_of(context);
  const auto type = qp_type(attr.qp_type);
  if (!type) return refuse({Reason::kQpType, number_in(attr.qp_type)});
  if (type == QpType::kUc && offer.lacks(kMissingUc))
    return refuse({.reason = Reason::kNotOffered, .text = "the device has no UC queue pairs"});
  if (type == QpType::kUd && offer.lacks(kMissingUd))
    return refuse({.reason = Reason::kNotOffered, .text = "the device has no UD queue pairs"});
  const auto foreign = [](const char* object) {
    return refuse({.reason = Reason::kNotOfDevice, .text = object});
  };
  if (!is_live_in(Kind::kPd, pd, &context)) return foreign("the protection domain");
  for (const auto& [cq, name] : {std::pair{attr.send_cq, "send_cq"}, {attr.recv_cq, "recv_cq"}}) {
    if (cq == nullptr) return refuse({.reason = Reason::kNoObject, .text = name});
    if (!is_live_in(Kind::kCq, cq, &context)) return foreign(name);
  }
  const ibv_qp_cap& cap = attr.cap;
  if (cap.max_send_wr > offer.max_qp_wr)
    return refuse({Reason::kMaxSendWr, cap.max_send_wr, offer.max_qp_wr});
  if (cap.max_send_sge > offer.max_sge)
    return refuse({Reason::kMaxSendSge, cap.max_send_sge, offer.max_sge});
  if (attr.srq != nullptr) {  // with a shared queue the limits for receives don't matter (man
                              // ibv_create_qp)
    if (!is_live_in(Kind::kSrq, attr.srq, &context)) return foreign("srq");
  } else if (cap.max_recv_wr > offer.max_qp_wr) {
    return refuse({Reason::kMaxRecvWr, cap.max_recv_wr, offer.max_qp_wr});
  } else if (cap.max_recv_sge > offer.max_sge) {
    return refuse({Reason::kMaxRecvSge, cap.max_recv_sge, offer.max_sge});
  }
  if (cap.max_inline_data > offer.max_inline_bytes)
    return refuse({Reason::kMaxInline, cap.max_inline_data, offer.max_inline_bytes});
  return is_unusable(context) ? EIO : 0;
}

void count_users(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq, int change) {
  object_of(pd)->users += change;
  object_of(send_cq)->qps += change;
  object_of(recv_cq)->qps += change;
  show_users(*object_of(send_cq), object_of(send_cq)->qps);
  show_users(*object_of(recv_cq), object_of(recv_cq)->qps);
  if (srq != nullptr) object_of(srq)->qps += change;
}

int acquire_users(ContextObject& context, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  ObjectLock lock = lock_objects();
  if (int error = check(context, pd, attr)) return error;
  count_users(pd, attr.send_cq, attr.recv_cq, attr.srq, +1);
  return 0;
}

void fill_public_fields(QpObject& qp, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  ibv_qp& base = qp.qp_base;
  base.context = public_of(qp.owner);
  base.qp_context = attr.qp_context;
  base.pd = pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.srq = attr.srq;
  base.handle = static_cast<uint32_t>(qp.id);
  base.qp_num = driver::qpn_of(*qp.qp);
  base.state = IBV_QPS_RESET;
  base.qp_type = attr.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
}

QpObject* create_with_users(ContextObject& context, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  auto qp = std::make_unique<QpObject>();
  qp->id = next_object_id();
  qp->owner = &context;
  qp->signal_all = attr.sq_sig_all != 0;
  driver::QpInit init;
  init.type = *qp_type(attr.qp_type);
  init.pd = pd->handle;
  init.send_cq = object_of(attr.send_cq)->cq.get();
  init.recv_cq = object_of(attr.recv_cq)->cq.get();
  init.srq = attr.srq != nullptr ? object_of(attr.srq)->srq : nullptr;
  init.caps = to_qp_caps(attr.cap);
  init.signal_all = qp->signal_all;
  init.max_message_bytes = offer_of(context).max_message_bytes;
  init.fails_send_with_inv = offer_of(context).fails_send_with_inv != 0;
  init.user = qp.get();
  init.read_by_posts = {qp.get(), &qp->qp};
  auto created = context.driver->driver().create_qp(init);
  if (!created) return fail_null(created.error());
  qp->qp = *created;
  driver::QpAttr unused;
  context.driver->driver().query_qp(qp->qp, unused, qp->caps);
  fill_public_fields(*qp, pd, attr);
  install_send_builder(*qp);
  qp->builder.set_limits(qp->caps, init.type);
  ObjectLock lock = lock_objects();
  add_object(Kind::kQp, public_of(qp.get()), *qp);
  return qp.release();
}

QpObject* create_qp(ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  ContextObject* context = object_of(pd->context);
  if (int error = acquire_users(*context, pd, attr)) {
    tell_refusal("ibv_create_qp", 0, error);
    return fail_null(error);
  }
  QpObject* qp = without_exceptions([&] { return create_with_users(*context, pd, attr); });
  if (qp == nullptr) {
    const int error = errno;
    ObjectLock lock = lock_objects();
    count_users(pd, attr.send_cq, attr.recv_cq, attr.srq, -1);
    errno = error;
  }
  return qp;
}

void wait_until_acknowledged(QpObject& qp) {
  uint32_t taken = 0;
  {
    ObjectLock lock = lock_objects();
    taken = qp.async_events_taken;
  }
  abi::wait_until_acknowledged("ibv_destroy_qp", qp.qp_base.mutex, qp.qp_base.cond,
                               {{"ibv_ack_async_event", taken, &qp.qp_base.events_completed}});
}

// Destroys the driver's part. Whatever it answers (hostnicd may be gone), the QP is no more.
void destroy_driver_qp(QpObject& qp) {
  if (qp.owner->abandoned || qp.qp == nullptr) return;
  if (int error = qp.owner->driver->driver().destroy_qp(qp.qp)) {
    log_debug("ibv_destroy_qp: QP 0x%x: error %d", qp.qp_base.qp_num, error);
  }
  qp.qp = nullptr;
}

}  // namespace

void destroy_qp_object(QpObject& qp) {
  destroy_driver_qp(qp);
  pthread_cond_destroy(&qp.qp_base.cond);
  pthread_mutex_destroy(&qp.qp_base.mutex);
  delete &qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  const CancellationOff cancellation_off;
  constexpr uint32_t kSupportedMask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr->comp_mask & ~kSupportedMask) {
    return fail_null(
        refuse_call("ibv_create_qp_ex", 0,
                    {.reason = Reason::kNotOffered,
                     .text = "comp_mask asks for more than PD, CREATE_FLAGS and SEND_OPS_FLAGS"}));
  }
  if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
    return fail_null(
        refuse_call("ibv_create_qp_ex", 0,
                    {.reason = Reason::kArgument, .text = "comp_mask lacks IBV_QP_INIT_ATTR_PD"}));
  }
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags != 0) {
    return fail_null(
        refuse_call("ibv_create_qp_ex", 0,
                    {.reason = Reason::kNotOffered, .text = "create_flags: there are none here"}));
  }
  const bool with_ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const DeviceOffer& offer = offer_of(*object_of(context));
  if (with_ops && offer.lacks(kMissingSendOps)) {
    return fail_null(refuse_call("ibv_create_qp_ex", 0,
                                 {.reason = Reason::kNotOffered,
                                  .text = "send_ops_flags: the device has ibv_post_send alone"}));
  }
  uint64_t ops = send_ops_of(qp_type(attr->qp_type).value_or(QpType::kRc));
  if (offer.lacks(kMissingWindows))
    ops &= ~(uint64_t{IBV_QP_EX_WITH_BIND_MW} | uint64_t{IBV_QP_EX_WITH_LOCAL_INV});
  if (with_ops && (attr->send_ops_flags & ~ops)) {
    return fail_null(
        refuse_call("ibv_create_qp_ex", 0,
                    {.reason = Reason::kNotOffered,
                     .text = "send_ops_flags names operations that such queue pairs do not have"}));
  }
  if (!is_ours(Kind::kPd, attr->pd) || attr->pd->context != context) return fail_null(EINVAL);
  QpObject* qp = create_qp(attr->pd, *attr);
  if (qp == nullptr) return nullptr;
  qp->has_builder = with_ops;
  attr->cap = from_qp_caps(qp->caps);
  return public_of(qp);
}

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

[[gnu::noinline]] static ibv_qp* create_qp_verb(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)> real("ibv_create_qp",
                                                                      "IBVERBS_1.1");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, attr);
  ibv_qp_init_attr_ex extended{};
  // The extended structure starts with the fields of the plain one.
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) ==
                offsetof(ibv_qp_init_attr, sq_sig_all));
  memcpy(&extended, attr, offsetof(ibv_qp_init_attr, sq_sig_all) + sizeof attr->sq_sig_all);
  QpObject* qp = create_qp(pd, extended);
  if (qp == nullptr) return nullptr;
  attr->cap = from_qp_caps(qp->caps);
  return public_of(qp);
}

HOSTNIC_VERB ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  cancel_if_overdue();
  return create_qp_verb(pd, attr);
}

HOSTNIC_VERB ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  static constinit RealVerb<ibv_qp_ex*(ibv_qp*)> real("ibv_qp_to_qp_ex", "IBVERBS_1.6");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp);
  QpObject* object = object_of(qp);
  return object->has_builder ? object : nullptr;
}

HOSTNIC_VERB int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_qp_attr*, int)> real("ibv_modify_qp", "IBVERBS_1.1");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp, attr, mask);
  if (int error = check_handle(Kind::kQp, qp)) return fail(error);
  QpObject* object = object_of(qp);
  if (is_unusable(*object->owner)) return fail(EIO);
  driver::QpAttr wanted;
  runtime::Context& context = *object->owner->driver;
  const auto bits = static_cast<uint32_t>(mask);
  ContextNumbers numbers(context);
  if (int error = to_qp_attr(*attr, bits, context.device_now(), numbers, wanted)) {
    tell_refusal("ibv_modify_qp", qp->qp_num, error);
    return fail(error);
  }
  const bool hears = (bits & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RTR;
  if (hears && qp->qp_type == IBV_QPT_UC) runtime::Context::take_unreliable_writes();
  if (int error = context.driver().modify_qp(object->qp, wanted, bits)) {
    tell_refusal("ibv_modify_qp", qp->qp_num, error);
    log_info("ibv_modify_qp: QP 0x%x: state %d to %d with mask 0x%x refused: error %d", qp->qp_num,
             qp->state, bits & IBV_QP_STATE ? attr->qp_state : qp->state, bits, error);
    return fail(error);
  }
  if (bits & IBV_QP_STATE) qp->state = attr->qp_state;
  if (hears && qp->qp_type != IBV_QPT_UD && attr->ah_attr.is_global != 0)
    runtime::warn_of_peer_outside_lab(attr->ah_attr.grh.dgid.raw, attr->dest_qp_num);
  if (bits & IBV_QP_QKEY) object->qkey.store(attr->qkey, std::memory_order_relaxed);
  return 0;
}

HOSTNIC_VERB int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*)> real("ibv_query_qp",
                                                                                     "IBVERBS_1.1");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp, attr, mask, init);
  if (int error = check_handle(Kind::kQp, qp)) return fail(error);
  QpObject* object = object_of(qp);
  if (is_unusable(*object->owner)) return fail(EIO);
  driver::QpAttr now;
  driver::QpCaps caps;
  object->owner->driver->driver().query_qp(object->qp, now, caps);
  from_qp_attr(now, caps, *attr);
  // The driver's QP may have gone to ERR or SQE by itself. As in libibverbs, the program's
  // structure hears of it if it asked for the state, and is left alone otherwise.
  if (static_cast<uint32_t>(mask) & IBV_QP_STATE) qp->state = attr->qp_state;
  *init = {};
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->cap = attr->cap;
  init->qp_type = qp->qp_type;
  init->sq_sig_all = object->signal_all;
  return 0;
}

HOSTNIC_VERB int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_wr_opcode, uint32_t)> real(
      "ibv_query_qp_data_in_order", "IBVERBS_1.14");
  if (is_ours(Kind::kQp, qp) || real_contexts_open.load() == 0) return 0;
  return real.call(qp, op, flags);
}

HOSTNIC_VERB int ibv_destroy_qp(ibv_qp* qp) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*)> real("ibv_destroy_qp", "IBVERBS_1.1");
  int claimed = 0;
  size_t groups = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kQp, qp, [&] { return (groups = object_of(qp)->groups.size()) != 0; });
  }
  if (claimed == kNotOurs) return real.foreign(qp);
  if (claimed == EBUSY)
    return refuse_in_use("ibv_destroy_qp", qp->qp_num, groups, "multicast group");
  if (claimed != 0) return fail(claimed);
  QpObject* object = object_of(qp);
  destroy_driver_qp(*object);
  forget_async_events(*object->owner, object->id);
  wait_until_acknowledged(*object);
  {
    ObjectLock lock = lock_objects();
    remove_object(qp);
    count_users(qp->pd, qp->send_cq, qp->recv_cq, qp->srq, -1);
  }
  destroy_qp_object(*object);
  return 0;
}
