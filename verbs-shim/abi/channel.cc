// SPDX-License-Identifier: BSD-3-Clause
// Completion channels.
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

ibv_comp_channel* create_channel(ibv_context* context) {
  auto channel = std::make_unique<ChannelObject>();
  if (is_unusable(*object_of(context))) return fail_null(EIO);
  if (int error = channel->events.open()) return fail_null(error);
  channel->id = next_object_id();
  channel->owner = object_of(context);
  channel->context = context;
  channel->fd = channel->events.fd();
  ObjectLock lock = lock_objects();
  add_object(Kind::kChannel, channel.get(), *channel);
  // The device may have died meanwhile, perhaps after close_channels().
  if (is_unusable(*channel->owner)) channel->events.close();
  return channel.release();
}

}  // namespace

namespace {

constexpr int kWaitAgain = -1;

// Delivers an event that was waited for. Returns 0, an errno value, or kWaitAgain when its
// completion queue was destroyed meanwhile. So may the channel have been, by a thread that need not
// know that this one has been woken: from a kernel's channel nothing but the event is used then. It
// is not inline because of EventQueue::wait().
[[gnu::noinline]] int deliver(uint64_t channel_id, ibv_cq** cq, void** cq_context) {
  ObjectLock lock = lock_objects();
  auto* const channel = static_cast<ibv_comp_channel*>(find_object(Kind::kChannel, channel_id));
  if (channel == nullptr) return EBADF;
  uint64_t id = 0;
  const EventQueue::Taken taken = object_of(channel)->events.take(id);
  if (taken == EventQueue::Taken::kClosed) return EIO;
  void* found = taken == EventQueue::Taken::kRecord ? find_object(Kind::kCq, id) : nullptr;
  if (found == nullptr) return kWaitAgain;
  *cq = static_cast<ibv_cq*>(found);
  CqObject* object = object_of(*cq);
  ++object->comp_events_taken;
  *cq_context = object->cq_context;
  return 0;
}

}  // namespace

void close_channels(const ContextObject& context) {
  ObjectLock lock = lock_objects();
  for (void* channel : objects_of(Kind::kChannel, &context))
    object_of(static_cast<ibv_comp_channel*>(channel))->events.close();
}

void destroy_channel_object(ChannelObject& channel) { delete &channel; }

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_comp_channel*(ibv_context*)> real("ibv_create_comp_channel",
                                                                  "IBVERBS_1.0");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context);
  return without_exceptions([&] { return create_channel(context); });
}

HOSTNIC_VERB int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_comp_channel*)> real("ibv_destroy_comp_channel", "IBVERBS_1.0");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kChannel, channel, [channel] { return channel->refcnt != 0; });
    if (claimed == 0) remove_object(channel);
  }
  if (claimed == kNotOurs) return real.foreign(channel);
  if (claimed == EBUSY)
    return refuse_in_use("ibv_destroy_comp_channel", 0, static_cast<size_t>(channel->refcnt),
                         "completion queue");
  if (claimed != 0) return fail(claimed);
  destroy_channel_object(*object_of(channel));
  return 0;
}

HOSTNIC_VERB int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  static constinit RealVerb<int(ibv_comp_channel*, ibv_cq**, void**)> real("ibv_get_cq_event",
                                                                           "IBVERBS_1.1");
  if (!is_ours(Kind::kChannel, channel)) return real.foreign(channel, cq, cq_context) ? -1 : 0;
  const uint64_t id = object_of(channel)->id;
  const int fd = object_of(channel)->events.fd();
  int error = kWaitAgain;
  while (error == kWaitAgain) {
    error = EventQueue::wait(fd);
    if (error == 0) error = deliver(id, cq, cq_context);
  }
  if (error == 0) return 0;
  errno = error;
  return -1;
}

HOSTNIC_VERB void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_cq*, unsigned int)> real("ibv_ack_cq_events", "IBVERBS_1.1");
  bool ours = false;
  {
    // The queue need only be known, not live: ibv_destroy_cq may be waiting for just this.
    ObjectLock lock = lock_objects();
    ours = is_known(Kind::kCq, cq);
  }
  if (!ours) return real.foreign(cq, count);
  CqObject* object = object_of(cq);
  pthread_mutex_lock(&object->mutex);
  object->comp_events_completed += count;
  pthread_cond_signal(&object->cond);
  pthread_mutex_unlock(&object->mutex);
}
