// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues.
#include "verbs-shim/abi/async_event.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

// Counts the queue in its domain and context, before the driver is asked. Returns 0, or why there
// can't be such a queue.
int reserve(ContextObject& context, ibv_pd* pd, const ibv_srq_attr& attr) {
  ObjectLock lock = lock_objects();
  if (!is_live(Kind::kPd, pd)) return ENOENT;
  const DeviceOffer& offer = offer_of(context);
  if (offer.lacks(kMissingSrq))
    return refuse({.reason = Reason::kNotOffered,
                   .text = "the device has no shared receive queues (max_srq is 0)"});
  if (attr.max_wr == 0 || attr.max_wr > offer.max_srq_wr)
    return refuse({Reason::kSharedWr, attr.max_wr, offer.max_srq_wr});
  if (attr.max_sge > offer.max_srq_sge)
    return refuse({Reason::kSharedSge, attr.max_sge, offer.max_srq_sge});
  if (context.srqs == offer.max_srqs) return ENOMEM;
  if (is_unusable(context)) return EIO;
  ++object_of(pd)->users;
  ++context.srqs;
  return 0;
}

void unreserve(ContextObject& context, ibv_pd* pd) {
  ObjectLock lock = lock_objects();
  --object_of(pd)->users;
  --context.srqs;
}

SrqObject* create_reserved(ContextObject& context, ibv_pd* pd, const ibv_srq_init_attr& attr) {
  auto srq = std::make_unique<SrqObject>();
  srq->id = next_object_id();
  srq->owner = &context;
  srq->context = public_of(&context);
  srq->srq_context = attr.srq_context;
  srq->pd = pd;
  srq->handle = static_cast<uint32_t>(srq->id);
  srq->max_wr = attr.attr.max_wr;
  srq->max_sge = attr.attr.max_sge;
  auto created = context.driver->driver().create_srq(
      {.pd = pd->handle, .max_wr = srq->max_wr, .max_sge = srq->max_sge, .user = srq.get()});
  if (!created) return fail_null(created.error());
  srq->srq = *created;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  ObjectLock lock = lock_objects();
  add_object(Kind::kSrq, static_cast<ibv_srq*>(srq.get()), *srq);
  show(*srq,
       {.kind = ObjectKind::kSrq, .handle = srq->handle, .pd = pd->handle, .entries = srq->max_wr});
  return srq.release();
}

ibv_srq* create(ibv_pd* pd, const ibv_srq_init_attr& attr) {
  ContextObject& context = *object_of(pd->context);
  if (int error = reserve(context, pd, attr.attr)) {
    tell_refusal("ibv_create_srq", 0, error);
    return fail_null(error);
  }
  SrqObject* srq = without_exceptions([&] { return create_reserved(context, pd, attr); });
  if (srq == nullptr) {
    const int error = errno;
    unreserve(context, pd);
    errno = error;
  }
  return srq;
}

void wait_until_acknowledged(SrqObject& srq) {
  uint32_t taken = 0;
  {
    ObjectLock lock = lock_objects();
    taken = srq.async_events_taken;
  }
  abi::wait_until_acknowledged("ibv_destroy_srq", srq.mutex, srq.cond,
                               {{"ibv_ack_async_event", taken, &srq.events_completed}});
}

void destroy_driver_srq(SrqObject& srq) {
  if (srq.owner->abandoned || srq.srq == nullptr) return;
  if (int error = srq.owner->driver->driver().destroy_srq(srq.srq))
    log_warn("ibv_destroy_srq: error %d", error);
  srq.srq = nullptr;
}

}  // namespace

void destroy_srq_object(SrqObject& srq) {
  destroy_driver_srq(srq);
  pthread_cond_destroy(&srq.cond);
  pthread_mutex_destroy(&srq.mutex);
  delete &srq;
}

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_srq*(ibv_pd*, ibv_srq_init_attr*)> real("ibv_create_srq",
                                                                        "IBVERBS_1.1");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, attr);
  return create(pd, *attr);
}

HOSTNIC_VERB int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_srq*, ibv_srq_attr*, int)> real("ibv_modify_srq",
                                                                    "IBVERBS_1.1");
  if (!is_ours(Kind::kSrq, srq)) return real.foreign(srq, attr, mask);
  if (int error = check_handle(Kind::kSrq, srq)) return fail(error);
  SrqObject* object = object_of(srq);
  if (is_unusable(*object->owner)) return fail(EIO);
  if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) return fail(EINVAL);
  if (mask & IBV_SRQ_MAX_WR)  // IBV_DEVICE_SRQ_RESIZE is not advertised
    return refuse_call("ibv_modify_srq", 0,
                       {.reason = Reason::kNotOffered,
                        .text = "IBV_SRQ_MAX_WR: shared receive queues keep their size"});
  if (!(mask & IBV_SRQ_LIMIT)) return 0;
  if (attr->srq_limit > object->max_wr)
    return refuse_call("ibv_modify_srq", 0,
                       {Reason::kSharedLimit, attr->srq_limit, object->max_wr});
  const int error = object->owner->driver->driver().arm_srq(object->srq, attr->srq_limit);
  return error == 0 ? 0 : fail(error);
}

HOSTNIC_VERB int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_srq*, ibv_srq_attr*)> real("ibv_query_srq", "IBVERBS_1.1");
  if (!is_ours(Kind::kSrq, srq)) return real.foreign(srq, attr);
  if (int error = check_handle(Kind::kSrq, srq)) return fail(error);
  SrqObject* object = object_of(srq);
  if (is_unusable(*object->owner)) return fail(EIO);
  *attr = {.max_wr = object->max_wr,
           .max_sge = object->max_sge,
           .srq_limit = object->owner->driver->driver().srq_limit(object->srq)};
  return 0;
}

HOSTNIC_VERB int ibv_destroy_srq(ibv_srq* srq) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_srq*)> real("ibv_destroy_srq", "IBVERBS_1.1");
  int claimed = 0;
  uint32_t users = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kSrq, srq, [&] { return (users = object_of(srq)->qps) != 0; });
  }
  if (claimed == kNotOurs) return real.foreign(srq);
  if (claimed == EBUSY) return refuse_in_use("ibv_destroy_srq", 0, users, "queue pair");
  if (claimed != 0) return fail(claimed);
  SrqObject* object = object_of(srq);
  destroy_driver_srq(*object);
  forget_async_events(*object->owner, object->id);
  wait_until_acknowledged(*object);
  {
    ObjectLock lock = lock_objects();
    remove_object(srq);
    hide(*object);
    --object_of(srq->pd)->users;
    --object->owner->srqs;
  }
  destroy_srq_object(*object);
  return 0;
}
