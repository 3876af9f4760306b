// SPDX-License-Identifier: BSD-3-Clause
// A libibverbs with one device, "fake0", as far as hostnic-traced needs it: an adapter of somebody
// else for `hostnic trace`, on machines that have none.
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#undef ibv_get_device_list
#undef ibv_reg_mr

namespace {

ibv_device fake_device;
ibv_device* fake_list[] = {&fake_device, nullptr};

int poll_nothing(ibv_cq*, int, ibv_wc*) { return 0; }

// As a kernel knows its own descriptors: the context's must be it where a queue is made.
struct Context : ibv_context {
  int events = -1;
};

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  strcpy(fake_device.name, "fake0");
  if (count != nullptr) *count = 1;
  return fake_list;
}
void ibv_free_device_list(ibv_device**) {}

ibv_context* ibv_open_device(ibv_device* device) {
  auto* context = new Context{};
  context->device = device;
  context->ops.poll_cq = poll_nothing;
  context->async_fd = context->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return context;
}
int ibv_close_device(ibv_context* context) {
  // The tables have to be as they were made.
  auto* const whole = static_cast<Context*>(context);
  const bool own = whole->ops.poll_cq == poll_nothing && whole->async_fd == whole->events;
  close(whole->events);
  delete whole;
  return own ? 0 : EINVAL;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int) {
  static std::atomic<uint32_t> key{1};
  auto* mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->lkey = mr->rkey = key.fetch_add(1);
  return mr;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t, unsigned int access) {
  return ibv_reg_mr(pd, address, length, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  delete mr;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  if (entries <= 0) {
    errno = EINVAL;
    return nullptr;
  }
  if (context->async_fd != static_cast<Context*>(context)->events) {
    errno = EBADF;
    return nullptr;
  }
  auto* cq = new ibv_cq{};
  cq->context = context;
  return cq;
}
int ibv_destroy_cq(ibv_cq* cq) {
  delete cq;
  return 0;
}

}  // extern "C"
