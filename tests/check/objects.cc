// SPDX-License-Identifier: BSD-3-Clause
// Mistakes with objects: what is destroyed when, events, forks.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/check/stage.h"

namespace hostnic::planted {
namespace {

// Acknowledges when the destruction has waited for so long that it is a finding.
template <typename Acknowledge>
void destroy_late(Acknowledge acknowledge, int (*destroy)(ibv_cq*), ibv_cq* cq) {
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    acknowledge();
  });
  good(destroy(cq), "destroy");
  late.join();
}

void unacknowledged_cq_event(Stage& stage) {
  stage.ready();
  good(ibv_req_notify_cq(stage.there.cq, 0), "ibv_req_notify_cq");
  good(stage.there.receive(stage.there.sge(64)), "receive");
  good(stage.here.send(IBV_WR_SEND, stage.here.sge(64)), "send");
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  good(ibv_get_cq_event(stage.channel, &cq, &context), "ibv_get_cq_event");
  stage.there.completion();
  stage.here.completion();
  good(ibv_destroy_qp(stage.there.qp), "ibv_destroy_qp");
  stage.there.qp = nullptr;
  stage.there.cq = nullptr;
  destroy_late([&] { ibv_ack_cq_events(cq, 1); }, ibv_destroy_cq, cq);
}

// The queue pair's last receive is taken out of its shared queue: an event.
void unacknowledged_event(Stage& stage) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  stage.wanted.srq = good(ibv_create_srq(stage.pd, &attr), "ibv_create_srq");
  stage.ready();
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  good(ibv_modify_qp(stage.there.qp, &error, IBV_QP_STATE), "ERR");
  ibv_async_event event{};
  good(ibv_get_async_event(stage.context, &event), "ibv_get_async_event");
  if (event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED) die("another event");
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    ibv_ack_async_event(&event);
  });
  good(ibv_destroy_qp(stage.there.qp), "ibv_destroy_qp");
  stage.there.qp = nullptr;
  late.join();
  good(ibv_destroy_qp(stage.here.qp), "ibv_destroy_qp");
  stage.here.qp = nullptr;
  good(ibv_destroy_srq(stage.wanted.srq), "ibv_destroy_srq");
}

void cq_in_use(Stage& stage) {
  stage.make();
  if (ibv_destroy_cq(stage.here.cq) == 0) die("it is destroyed");
}

void domain_in_use(Stage& stage) {
  stage.make();
  if (ibv_dealloc_pd(stage.pd) == 0) die("it is destroyed");
}

void closed_early(Stage&) {
  ibv_context* context = good(verbs::open_device(size_t{0}), "no device");
  good(ibv_create_cq(context, 4, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_close_device(context);
}

void leak(Stage& stage) {
  stage.make();
  exit(0);
}

void forked(Stage& stage) {
  stage.make();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) die("fork");
}

}  // namespace

void add_objects(Table& table) {
  table["unacknowledged-cq-event"] = unacknowledged_cq_event;
  table["unacknowledged-event"] = unacknowledged_event;
  table["cq-in-use"] = cq_in_use;
  table["domain-in-use"] = domain_in_use;
  table["closed-early"] = closed_early;
  table["leak"] = leak;
  table["fork"] = forked;
}

}  // namespace hostnic::planted
