// SPDX-License-Identifier: BSD-3-Clause
// Completion channels and completion queues.
#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"
#include "verbs-shim/mrc/verbs.h"

using namespace hostnic;
using namespace hostnic::libmrc;

namespace {

// Ends an object's life for programs; `destroy` may wait, or refuse. Returns an errno value.
template <class T, class Destroy>
int destroy_object(const char* call, Kind kind, T* object, Destroy destroy) {
  bool is_known = false;
  {
    const auto lock = lock_objects();
    is_known = is_live(kind, object);
    if (is_known) remove_object(*object);
  }
  if (!is_known) return no_object(call, kind);
  const int error = destroy(object->verbs);
  if (error == 0) {
    delete object;
    return 0;
  }
  const auto lock = lock_objects();
  add_object(*object);
  return error;
}

}  // namespace

// ---- channels

MRC_CALL int mrc_create_comp_channel(mrc_context* context, mrc_comp_channel** channel) {
  constexpr const char* kCall = "mrc_create_comp_channel";
  if (!is_object(Kind::kContext, context)) return no_object(kCall, Kind::kContext);
  if (channel == nullptr) return refused(kCall, EINVAL, "channel is null");
  auto* const made = make<mrc_comp_channel>(context);
  if (made == nullptr) return ENOMEM;
  made->verbs = verbs().create_comp_channel(context->verbs);
  if (made->verbs == nullptr) {
    const int error = errno;
    delete made;
    return errno = error;
  }
  const auto lock = lock_objects();
  add_object(*made);
  *channel = made;
  return 0;
}

MRC_CALL int mrc_get_comp_channel_fd(mrc_comp_channel* channel, int* fd) {
  constexpr const char* kCall = "mrc_get_comp_channel_fd";
  if (!is_object(Kind::kChannel, channel)) return minus_one(no_object(kCall, Kind::kChannel));
  if (fd == nullptr) return minus_one(refused(kCall, EINVAL, "fd is null"));
  *fd = channel->verbs->fd;
  return 0;
}

MRC_CALL int mrc_destroy_comp_channel(mrc_comp_channel* channel) {
  return destroy_object("mrc_destroy_comp_channel", Kind::kChannel, channel,
                        verbs().destroy_comp_channel);
}

// ---- queues

MRC_CALL mrc_cq* mrc_create_cq(mrc_context* context, int cqe, void* cq_context,
                               mrc_comp_channel* channel, int comp_vector) {
  constexpr const char* kCall = "mrc_create_cq";
  if (!is_object(Kind::kContext, context)) return no_pointer(no_object(kCall, Kind::kContext));
  if (channel != nullptr && !is_object(Kind::kChannel, channel))
    return no_pointer(no_object(kCall, Kind::kChannel));
  if (channel != nullptr && channel->context != context)
    return no_pointer(refused(kCall, EINVAL, "the channel is of another context"));
  auto* const made = make<mrc_cq>(context, cq_context);
  if (made == nullptr) return nullptr;
  made->verbs = verbs().create_cq(context->verbs, cqe, made,
                                  channel == nullptr ? nullptr : channel->verbs, comp_vector);
  if (made->verbs == nullptr) {
    const int error = errno;
    delete made;
    return no_pointer(error);
  }
  const auto lock = lock_objects();
  add_object(*made);
  return made;
}

MRC_CALL int mrc_destroy_cq(mrc_cq* cq) {
  return destroy_object("mrc_destroy_cq", Kind::kCq, cq, verbs().destroy_cq);
}

MRC_CALL int mrc_poll_cq(mrc_cq* cq, int num_entries, ibv_wc* wc) {
  return ibv_poll_cq(cq->verbs, num_entries, wc);
}

MRC_CALL int mrc_req_notify_cq(mrc_cq* cq, int solicited_only) {
  return ibv_req_notify_cq(cq->verbs, solicited_only);
}

MRC_CALL int mrc_get_cq_event(mrc_comp_channel* channel, mrc_cq** cq, void** cq_context) {
  constexpr const char* kCall = "mrc_get_cq_event";
  if (!is_object(Kind::kChannel, channel)) return minus_one(no_object(kCall, Kind::kChannel));
  ibv_cq* found = nullptr;
  void* of_cq = nullptr;
  // What the channel has queues of is made here alone: their context is the queue of this library.
  if (verbs().get_cq_event(channel->verbs, &found, &of_cq) != 0) return -1;
  *cq = static_cast<mrc_cq*>(of_cq);
  *cq_context = (*cq)->user;
  return 0;
}

MRC_CALL void mrc_ack_cq_events(mrc_cq* cq, unsigned int nevents) {
  verbs().ack_cq_events(cq->verbs, nevents);
}
