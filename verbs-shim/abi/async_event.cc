// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/async_event.h"

#include <time.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/explanation.h"

namespace hostnic::abi {
namespace {

// A record is the event type and the id of the object that the event is about (0: the port or
// device).
constexpr unsigned kTypeShift = 56;
constexpr uint64_t kIdMask = (uint64_t{1} << kTypeShift) - 1;

constexpr uint64_t make_record(uint64_t type, uint64_t id) { return type << kTypeShift | id; }

enum class About { kQp, kCq, kSrq, kDevice };

About about(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return About::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return About::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return About::kSrq;
    default:
      return About::kDevice;
  }
}

// Called with the driver lock held.
void on_event(void* argument, driver::AsyncEvent event, void* user, driver::Cq* cq) {
  auto& context = *static_cast<ContextObject*>(argument);
  uint64_t id = 0;
  // A completion queue's event also says which queue pair met it.
  if (about(static_cast<ibv_event_type>(event)) == About::kQp) {
    if (user == nullptr) return;
    id = static_cast<QpObject*>(user)->id;
  } else if (event == driver::AsyncEvent::kSrqLimitReached) {
    id = static_cast<SrqObject*>(user)->id;
  } else if (cq != nullptr) {
    ObjectLock lock = lock_objects();
    const auto found = context.cq_ids.find(cq);
    if (found == context.cq_ids.end()) return;
    id = found->second;
  }
  context.async_events.push(make_record(static_cast<uint64_t>(event), id));
  if (event == driver::AsyncEvent::kDeviceFatal) close_channels(context);
}

// Says in `event` what a record means; returns false when the object is gone. Called with the lock
// of objects held.
bool describe(uint64_t record, ibv_async_event& event) {
  event = {};
  event.event_type = static_cast<ibv_event_type>(record >> kTypeShift);
  const uint64_t id = record & kIdMask;
  switch (about(event.event_type)) {
    case About::kQp: {
      auto* qp = object_of(static_cast<ibv_qp*>(find_object(Kind::kQp, id)));
      if (qp == nullptr) return false;
      ++qp->async_events_taken;
      event.element.qp = public_of(qp);
      return true;
    }
    case About::kCq: {
      auto* cq = object_of(static_cast<ibv_cq*>(find_object(Kind::kCq, id)));
      if (cq == nullptr) return false;
      ++cq->async_events_taken;
      event.element.cq = public_of(cq);
      return true;
    }
    case About::kSrq: {
      auto* srq = object_of(static_cast<ibv_srq*>(find_object(Kind::kSrq, id)));
      if (srq == nullptr) return false;
      ++srq->async_events_taken;
      event.element.srq = srq;
      return true;
    }
    case About::kDevice:
      event.element.port_num = kPortNumber;
      return true;
  }
  return false;
}

constexpr int kAwaitNext = -1;

// Delivers an event that was waited for. Returns 0, an errno value, or kAwaitNext when what it is
// about is gone. The context may be gone as well, as a channel may (channel.cc). It is not inline
// because of EventQueue::wait().
[[gnu::noinline]] int deliver(uint64_t context_id, ibv_async_event& event) {
  ObjectLock lock = lock_objects();
  auto* const context = static_cast<ibv_context*>(find_object(Kind::kContext, context_id));
  if (context == nullptr) return EBADF;
  uint64_t record = 0;
  const EventQueue::Taken taken = object_of(context)->async_events.take(record);
  if (taken == EventQueue::Taken::kClosed) return EIO;
  return taken == EventQueue::Taken::kRecord && describe(record, event) ? 0 : kAwaitNext;
}

template <typename Object>
void acknowledge(Object& object, uint32_t& completed) {
  pthread_mutex_lock(&object.mutex);
  ++completed;
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace

void watch_async_events(ContextObject& context) {
  context.driver->driver().set_async_handler(on_event, &context);
}

void forget_async_events(ContextObject& context, uint64_t object_id) {
  context.async_events.remove_if(
      [object_id](uint64_t record) { return (record & kIdMask) == object_id; });
}

void wait_until_acknowledged(const char* call, pthread_mutex_t& mutex, pthread_cond_t& cond,
                             std::initializer_list<EventTally> tallies) {
  const auto open = [&] {
    return std::ranges::find_if(
        tallies, [](const EventTally& tally) { return *tally.acknowledged != tally.taken; });
  };
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);  // the condition's clock
  ++until.tv_sec;
  pthread_mutex_lock(&mutex);
  while (open() != tallies.end() && pthread_cond_timedwait(&cond, &mutex, &until) != ETIMEDOUT) {
  }
  if (const auto tally = open(); tally != tallies.end())
    explain("%s waits until %s has acknowledged all events: %u were taken, %u are acknowledged",
            call, tally->acknowledged_by, tally->taken, *tally->acknowledged);
  while (open() != tallies.end()) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace hostnic::abi

using namespace hostnic::abi;

HOSTNIC_VERB int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  static constinit RealVerb<int(ibv_context*, ibv_async_event*)> real("ibv_get_async_event",
                                                                      "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, event) == 0 ? 0 : -1;
  const uint64_t id = object_of(context)->id;
  const int fd = object_of(context)->async_events.fd();
  int error = kAwaitNext;
  while (error == kAwaitNext) {
    error = EventQueue::wait(fd);
    if (error == 0) error = deliver(id, *event);
  }
  if (error == 0) return 0;
  errno = error;
  return -1;
}

HOSTNIC_VERB void ibv_ack_async_event(ibv_async_event* event) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_async_event*)> real("ibv_ack_async_event", "IBVERBS_1.1");
  QpObject* qp = nullptr;
  CqObject* cq = nullptr;
  SrqObject* srq = nullptr;
  const About what = about(event->event_type);
  {
    // The object need only be known, not live: ibv_destroy_* may be waiting for just this.
    ObjectLock lock = lock_objects();
    if (what == About::kQp && is_known(Kind::kQp, event->element.qp)) {
      qp = object_of(event->element.qp);
    } else if (what == About::kCq && is_known(Kind::kCq, event->element.cq)) {
      cq = object_of(event->element.cq);
    } else if (what == About::kSrq && is_known(Kind::kSrq, event->element.srq)) {
      srq = object_of(event->element.srq);
    }
  }
  if (qp != nullptr) {
    acknowledge(qp->qp_base, qp->qp_base.events_completed);
  } else if (cq != nullptr) {
    acknowledge(*cq, cq->async_events_completed);
  } else if (srq != nullptr) {
    acknowledge(*srq, srq->events_completed);
  } else {
    real.foreign(event);
  }
}
