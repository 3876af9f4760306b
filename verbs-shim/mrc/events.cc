// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events: those of verbs, about objects of this library.
#include "verbs-shim/base/log.h"
#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"
#include "verbs-shim/mrc/verbs.h"

using namespace hostnic;
using namespace hostnic::libmrc;

namespace {

enum class About : uint8_t { kPort, kQp, kCq, kOther };

About subject_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return About::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return About::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_WQ_FATAL:
      return About::kOther;
    default:
      return About::kPort;
  }
}

// Returns whether the event is about something that programs know by this library: the device is
// also open to verbs, whose objects have events of their own.
bool translate(const ibv_async_event& from, mrc_async_event& to) {
  const auto lock = lock_objects();
  to.event_type = from.event_type;
  switch (subject_of(from.event_type)) {
    case About::kQp: {
      ibv_qp* const qp = from.element.qp;
      to.element.qp = standing_for<mrc_qp>(Kind::kQp, qp, qp->qp_context);
      return to.element.qp != nullptr;
    }
    case About::kCq: {
      ibv_cq* const cq = from.element.cq;
      to.element.cq = standing_for<mrc_cq>(Kind::kCq, cq, cq->cq_context);
      return to.element.cq != nullptr;
    }
    case About::kPort:
      to.element.port_num = from.element.port_num;
      return true;
    case About::kOther:
      break;
  }
  return false;
}

}  // namespace

MRC_CALL int mrc_get_async_event(mrc_context* context, mrc_async_event* event) {
  constexpr const char* kCall = "mrc_get_async_event";
  if (!is_object(Kind::kContext, context)) return minus_one(no_object(kCall, Kind::kContext));
  if (event == nullptr) return minus_one(refused(kCall, EINVAL, "event is null"));
  ibv_async_event of_verbs;
  while (verbs().get_async_event(context->verbs, &of_verbs) == 0) {
    if (translate(of_verbs, *event)) return 0;
    log_info("%s: an event of type %d is about an object that is not of libmrc: left out", kCall,
             of_verbs.event_type);
    verbs().ack_async_event(&of_verbs);
  }
  return -1;
}

MRC_CALL void mrc_ack_async_event(mrc_async_event* event) {
  ibv_async_event of_verbs{};
  of_verbs.event_type = event->event_type;
  const About about = subject_of(event->event_type);
  if (about == About::kQp) of_verbs.element.qp = event->element.qp->verbs;
  if (about == About::kCq) of_verbs.element.cq = event->element.cq->verbs;
  if (about == About::kPort) of_verbs.element.port_num = event->element.port_num;
  verbs().ack_async_event(&of_verbs);
}
