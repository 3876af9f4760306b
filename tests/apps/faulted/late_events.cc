// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/faulted/late_events.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic::faulted {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "hostnic-faulted: %s (errno %d)\n", what, errno);
  exit(1);
}

struct World {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::vector<ibv_qp*> qps;
};

World make_world(const char* device) {
  World world{.context = device != nullptr ? verbs::open_device(std::string_view(device))
                                           : verbs::open_device(size_t{0})};
  if (world.context == nullptr) fail("no device");
  world.pd = ibv_alloc_pd(world.context);
  world.cq = ibv_create_cq(world.context, 64, nullptr, nullptr, 0);
  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  world.srq = ibv_create_srq(world.pd, &srq);
  if (world.cq == nullptr || world.srq == nullptr) fail("objects");
  for (int i = 0; i < 3; ++i) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = world.cq;
    attr.srq = world.srq;
    attr.cap = {.max_send_wr = 16, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0};
    attr.qp_type = IBV_QPT_RC;
    world.qps.push_back(ibv_create_qp(world.pd, &attr));
    if (world.qps.back() == nullptr || verbs::to_init(world.qps.back(), {}) != 0)
      fail("queue pair");
  }
  return world;
}

void to_error(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) fail("ibv_modify_qp to ERR");
}

bool is_readable(const World& world, int wait_ms) {
  pollfd ready{world.context->async_fd, POLLIN, 0};
  return poll(&ready, 1, wait_ms) == 1;
}

// Says which queue pair the next event is of.
void take(const World& world) {
  ibv_async_event event{};
  if (ibv_get_async_event(world.context, &event) != 0) fail("ibv_get_async_event");
  size_t number = 0;
  while (number < world.qps.size() && event.element.qp != world.qps[number]) ++number;
  printf("event: %s of %zu\n", ibv_event_type_str(event.event_type), number + 1);
  fflush(stdout);
  ibv_ack_async_event(&event);
}

}  // namespace

int run_own_events(const char* device) {
  World world = make_world(device);
  const auto begun = Clock::now();
  to_error(world.qps[0]);
  to_error(world.qps[1]);
  printf("%s\n", is_readable(world, 200) ? "readable at once" : "nothing yet");
  const int flags = fcntl(world.context->async_fd, F_GETFL);
  fcntl(world.context->async_fd, F_SETFL, flags | O_NONBLOCK);
  if (ibv_async_event none{};
      !is_readable(world, 0) && (ibv_get_async_event(world.context, &none) == 0 || errno != EAGAIN))
    fail("an event that the descriptor does not show");
  fcntl(world.context->async_fd, F_SETFL, flags);
  // Two threads wait, in the call itself: each gets one.
  std::thread other([&] { take(world); });
  take(world);
  other.join();
  printf("both came %s\n",
         Clock::now() - begun >= std::chrono::milliseconds(1800) ? "late" : "at once");
  to_error(world.qps[2]);
  // It waits for events that were taken and not acknowledged, for none else.
  if (ibv_destroy_qp(world.qps[2]) != 0) fail("ibv_destroy_qp");
  if (is_readable(world, 1000)) {
    printf("an event of what is no more\n");
    take(world);
  } else {
    printf("no more events\n");
  }
  if (ibv_destroy_qp(world.qps[0]) != 0 || ibv_destroy_qp(world.qps[1]) != 0 ||
      ibv_destroy_srq(world.srq) != 0 || ibv_destroy_cq(world.cq) != 0 ||
      ibv_dealloc_pd(world.pd) != 0 || ibv_close_device(world.context) != 0)
    fail("not all could be destroyed");
  printf("all is destroyed\n");
  return 0;
}

}  // namespace hostnic::faulted
