// SPDX-License-Identifier: BSD-3-Clause
// Completion queues.
#include "verbs-shim/abi/cq.h"

#include <algorithm>

#include "verbs-shim/abi/async_event.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

// Called with the CQ's lock held.
void on_completion_event(void* argument) {
  auto* cq = static_cast<CqObject*>(argument);
  if (cq->channel_object != nullptr) cq->channel_object->events.push(cq->id);
}

// The parent domain that the queue is to belong to, or null.
PdObject* parent_domain_of(const ibv_cq_init_attr_ex& attr) {
  return attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? object_of(attr.parent_domain) : nullptr;
}

// Returns 0, or why the queue can't be created.
int check(ContextObject& context, const ibv_cq_init_attr_ex& attr) {
  const DeviceOffer& offer = offer_of(context);
  if (attr.cqe == 0 || attr.cqe > offer.max_cqe)
    return refuse({Reason::kCqEntries, attr.cqe, offer.max_cqe});
  if (attr.comp_vector >= static_cast<uint32_t>(kCompletionVectors))
    return refuse({Reason::kCompletionVector, attr.comp_vector, kCompletionVectors});
  if (attr.channel != nullptr && !is_live_in(Kind::kChannel, attr.channel, &context))
    return refuse({.reason = Reason::kNotOfDevice, .text = "the completion channel"});
  if (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
    if (!is_live_in(Kind::kPd, attr.parent_domain, &context)) return ENOENT;
    if (parent_domain_of(attr)->extended == nullptr)
      return EINVAL;  // the parent domain is a plain
                      // protection domain
  }
  if (context.cqs == offer.max_cqs) return ENOMEM;
  return is_unusable(context) ? EIO : 0;
}

// Reserves room for the queue and a reference to the channel, before the driver is asked.
int reserve(ContextObject& context, const ibv_cq_init_attr_ex& attr) {
  ObjectLock lock = lock_objects();
  if (int error = check(context, attr)) return error;
  ++context.cqs;
  if (attr.channel != nullptr) ++attr.channel->refcnt;
  if (PdObject* parent = parent_domain_of(attr)) ++parent->users;
  return 0;
}

void unreserve(ContextObject& context, ibv_comp_channel* channel, PdObject* parent) {
  ObjectLock lock = lock_objects();
  --context.cqs;
  if (channel != nullptr) --channel->refcnt;
  if (parent != nullptr) --parent->users;
}

CqObject* create_reserved(ContextObject& context, const ibv_cq_init_attr_ex& attr) {
  auto cq = std::make_unique<CqObject>();
  cq->id = next_object_id();
  cq->owner = &context;
  cq->context = public_of(&context);
  cq->channel = attr.channel;
  cq->channel_object = attr.channel != nullptr ? object_of(attr.channel) : nullptr;
  cq->parent_domain = parent_domain_of(attr);
  cq->cq_context = attr.cq_context;
  cq->handle = static_cast<uint32_t>(cq->id);
  cq->wc_flags = attr.wc_flags;
  cq->cq = context.driver->driver().create_cq(attr.cqe, on_completion_event, cq.get());
  if (cq->cq == nullptr) return fail_null(ENOMEM);
  cq->cqe = static_cast<int>(cq->cq->entries());
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  ObjectLock lock = lock_objects();
  context.cq_ids[cq->cq.get()] = cq->id;
  add_object(Kind::kCq, public_of(cq.get()), *cq);
  show(*cq,
       {.kind = ObjectKind::kCq, .handle = cq->handle, .entries = static_cast<uint32_t>(cq->cqe)});
  return cq.release();
}

void wait_until_acknowledged(CqObject& cq) {
  uint32_t comp_events = 0, async_events = 0;
  {
    ObjectLock lock = lock_objects();
    comp_events = cq.comp_events_taken;
    async_events = cq.async_events_taken;
  }
  abi::wait_until_acknowledged("ibv_destroy_cq", cq.mutex, cq.cond,
                               {{"ibv_ack_cq_events", comp_events, &cq.comp_events_completed},
                                {"ibv_ack_async_event", async_events, &cq.async_events_completed}});
}

}  // namespace

CqObject* create_cq_object(ContextObject& context, const ibv_cq_init_attr_ex& attr) {
  if (int error = reserve(context, attr)) {
    tell_refusal("ibv_create_cq", 0, error);
    return fail_null(error);
  }
  CqObject* cq = without_exceptions([&] { return create_reserved(context, attr); });
  if (cq == nullptr) {
    const int error = errno;
    unreserve(context, attr.channel, parent_domain_of(attr));
    errno = error;
  }
  return cq;
}

void destroy_cq_object(CqObject& cq) {
  if (cq.owner->abandoned) static_cast<void>(cq.cq.release());
  pthread_cond_destroy(&cq.cond);
  pthread_mutex_destroy(&cq.mutex);
  delete &cq;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  // The batch is raw memory, since most polls find nothing and zeroing a batch would cost more than
  // the rest.
  constexpr int kBatch = 32;
  alignas(driver::Completion) std::byte storage[kBatch * sizeof(driver::Completion)];
  auto* batch = reinterpret_cast<driver::Completion*>(storage);
  CqObject& object = *object_of(cq);
  runtime::Context& context = *object.owner->driver;
  int done = 0;
  while (done < count) {
    const int wanted = std::min(count - done, kBatch);
    const int got = context.poll_cq(*object.cq, batch, wanted);
    if (got < 0) return done > 0 ? done : got;
    for (int i = 0; i < got; ++i) to_wc(batch[i], wc[done + i]);
    done += got;
    if (got < wanted) break;
  }
  return done;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  CqObject& object = *object_of(cq);
  if (!object.owner->driver->alive()) return fail(EIO);
  if (object.handle != static_cast<uint32_t>(object.id)) return fail(ENOENT);
  object.cq->arm(solicited_only ? driver::Arm::kSolicited : driver::Arm::kAny);
  return 0;
}

// Accepts event moderation and does nothing. Moderation says what a program can bear, not what it
// needs: an event for each arming, as without moderation, is within every count and period.
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  const CancellationOff cancellation_off;
  if (int error = check_handle(Kind::kCq, cq)) return fail(error);
  if (attr->attr_mask == 0) return fail(EINVAL);
  if (is_unusable(*object_of(cq)->owner)) return fail(EIO);
  if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) return fail(EOPNOTSUPP);
  return 0;
}

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

[[gnu::noinline]] static ibv_cq* create_cq_verb(ibv_context* context, int cqe, void* cq_context,
                                                ibv_comp_channel* channel, int comp_vector) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int)> real(
      "ibv_create_cq", "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) {
    return real.foreign(context, cqe, cq_context, channel, comp_vector);
  }
  if (cqe <= 0) {
    return fail_null(refuse_call("ibv_create_cq", 0,
                                 {Reason::kCqEntries, 0, offer_of(*object_of(context)).max_cqe}));
  }
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(cqe);
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<uint32_t>(comp_vector);
  CqObject* cq = create_cq_object(*object_of(context), attr);
  return cq != nullptr ? public_of(cq) : nullptr;
}

HOSTNIC_VERB ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                   ibv_comp_channel* channel, int comp_vector) {
  cancel_if_overdue();
  return create_cq_verb(context, cqe, cq_context, channel, comp_vector);
}

HOSTNIC_VERB int ibv_resize_cq(ibv_cq* cq, int cqe) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_cq*, int)> real("ibv_resize_cq", "IBVERBS_1.1");
  if (!is_ours(Kind::kCq, cq)) return real.foreign(cq, cqe);
  if (int error = check_handle(Kind::kCq, cq)) return fail(error);
  CqObject* object = object_of(cq);
  const uint32_t most = offer_of(*object->owner).max_cqe;
  if (cqe <= 0 || static_cast<uint32_t>(cqe) > most) {
    return refuse_call("ibv_resize_cq", 0,
                       {Reason::kCqEntries, static_cast<uint32_t>(std::max(cqe, 0)), most});
  }
  if (is_unusable(*object->owner)) return fail(EIO);
  try {
    const int error = object->owner->driver->resize_cq(*object->cq, static_cast<uint32_t>(cqe));
    if (error == EINVAL) {
      return refuse_call("ibv_resize_cq", 0,
                         {Reason::kCqHolds, object->cq->held(), static_cast<uint32_t>(cqe)});
    }
    if (error != 0) return fail(error);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  object->cqe = static_cast<int>(object->cq->entries());
  object->owner->driver->driver().objects().set_entries(object->line, object->cq->entries());
  return 0;
}

HOSTNIC_VERB int ibv_destroy_cq(ibv_cq* cq) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_cq*)> real("ibv_destroy_cq", "IBVERBS_1.1");
  CqObject* object = object_of(cq);
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kCq, cq, [object] { return object->qps != 0; });
    if (claimed == 0) object->owner->cq_ids.erase(object->cq.get());
  }
  if (claimed == kNotOurs) return real.foreign(cq);
  if (claimed != 0) {
    if (claimed == EBUSY) {
      // A queue pair may use it for both, sends and receives.
      size_t count = 0;
      {
        const ObjectLock lock = lock_objects();
        for (void* qp : objects_of(Kind::kQp, object->owner)) {
          const auto* user = static_cast<const ibv_qp*>(qp);
          if (user->send_cq == cq || user->recv_cq == cq) ++count;
        }
      }
      return refuse_in_use("ibv_destroy_cq", 0, count, "queue pair");
    }
    return fail(claimed);
  }
  const uint64_t id = object->id;
  if (object->channel_object != nullptr) {
    object->channel_object->events.remove_if([id](uint64_t record) { return record == id; });
  }
  forget_async_events(*object->owner, id);
  wait_until_acknowledged(*object);
  {
    ObjectLock lock = lock_objects();
    remove_object(cq);
    hide(*object);
  }
  unreserve(*object->owner, object->channel, object->parent_domain);
  destroy_cq_object(*object);
  return 0;
}
