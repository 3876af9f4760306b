// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/libmrc/fake_verbs.h"

#include <cerrno>
#include <map>
#include <string>

#include "verbs-shim/libraries/forward.h"

namespace hostnic::libmrc_test {
namespace {

Fake the_fake;

template <class T>
T* make_object() {
  if (the_fake.error != 0) {
    errno = the_fake.error;
    return nullptr;
  }
  ++the_fake.alive;
  T* made = new T{};
  made->context = context();
  return made;
}
template <class T>
int destroy_object(T* object) {
  if (the_fake.error != 0) return errno = the_fake.error;
  --the_fake.alive;
  delete object;
  return 0;
}

ibv_comp_channel* create_channel(ibv_context*) { return make_object<ibv_comp_channel>(); }
ibv_cq* create_cq(ibv_context*, int cqe, void* user, ibv_comp_channel* channel, int) {
  ibv_cq* made = make_object<ibv_cq>();
  if (made == nullptr) return nullptr;
  made->cqe = cqe;
  made->cq_context = user;
  made->channel = channel;
  return made;
}
int get_cq_event(ibv_comp_channel*, ibv_cq**, void**) {
  errno = EAGAIN;
  return -1;
}
void ack_cq_events(ibv_cq*, unsigned int count) { the_fake.acknowledged += count; }

ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr* init) {
  the_fake.created = *init;
  ibv_qp* made = make_object<ibv_qp>();
  if (made == nullptr) return nullptr;
  made->qp_context = init->qp_context;
  made->qp_num = 0x123;
  init->cap.max_inline_data = 64;
  return made;
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (the_fake.error != 0) return errno = the_fake.error;
  ++the_fake.modifications;
  the_fake.modified = *attr;
  the_fake.modified_mask = static_cast<uint32_t>(mask);
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  *attr = {};
  attr->qp_state = qp->state;
  return 0;
}
int get_async_event(ibv_context*, ibv_async_event* event) {
  if (the_fake.events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = the_fake.events.front();
  the_fake.events.pop_front();
  return 0;
}
void ack_async_event(ibv_async_event*) { ++the_fake.acknowledged; }

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr**) {
  for (; wr != nullptr; wr = wr->next) the_fake.posted.push_back(wr->opcode);
  return 0;
}
int post_recv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  *bad = wr;
  return ENOMEM;
}

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

Fake& fake() { return the_fake; }
void reset_fake() { the_fake = {}; }

ibv_context* context() {
  static ibv_context only = [] {
    ibv_context made{};
    made.ops.post_send = post_send;
    made.ops.post_recv = post_recv;
    return made;
  }();
  return &only;
}

}  // namespace hostnic::libmrc_test

using namespace hostnic;
using namespace hostnic::libmrc_test;

void* hostnic_library_symbol(ForwardTo, const char* name, const char*) {
  static const std::map<std::string, void*> all = {
      {"ibv_create_comp_channel", address(create_channel)},
      {"ibv_destroy_comp_channel", address(destroy_object<ibv_comp_channel>)},
      {"ibv_create_cq", address(create_cq)},
      {"ibv_destroy_cq", address(destroy_object<ibv_cq>)},
      {"ibv_get_cq_event", address(get_cq_event)},
      {"ibv_ack_cq_events", address(ack_cq_events)},
      {"ibv_create_qp", address(create_qp)},
      {"ibv_destroy_qp", address(destroy_object<ibv_qp>)},
      {"ibv_modify_qp", address(modify_qp)},
      {"ibv_query_qp", address(query_qp)},
      {"ibv_get_async_event", address(get_async_event)},
      {"ibv_ack_async_event", address(ack_async_event)},
  };
  return all.at(name);
}

int hostnic_mrc_device(ibv_context*, MrcDevice* device) {
  if (!fake().is_ours) return ENODEV;
  *device = fake().device;
  return 0;
}

int hostnic_mrc_set_limits(ibv_qp*, const MrcQpLimits* limits) {
  fake().limits = *limits;
  ++fake().times_limited;
  return fake().error;
}
