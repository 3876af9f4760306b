// SPDX-License-Identifier: BSD-3-Clause
// Events that were taken and have to be acknowledged.
#include "verbs-shim/check/check.h"
#include "verbs-shim/check/shadow.h"

namespace hostnic::check {
namespace {

// The object that an event is about; null: the device.
const void* element_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    default:
      return nullptr;
  }
}

Object* find_object(const void* object) {
  const auto found = shadow().objects.find(object);
  return found == shadow().objects.end() ? nullptr : &found->second;
}

}  // namespace

void took_cq_event(const ibv_cq* cq) {
  if (CqShadow* of = find_cq(cq)) of->unacknowledged.fetch_add(1);
}

void acknowledged(const ibv_cq* cq, unsigned count) {
  if (CqShadow* of = find_cq(cq)) of->unacknowledged.fetch_sub(count);
}

void took_event(const ibv_async_event& event) {
  const SpinGuard guard(shadow().lock);
  if (Object* of = find_object(element_of(event))) ++of->events;
}

void acknowledged(const ibv_async_event& event) {
  const SpinGuard guard(shadow().lock);
  Object* of = find_object(element_of(event));
  if (of != nullptr && of->events > 0) --of->events;
}

}  // namespace hostnic::check
