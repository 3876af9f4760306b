// SPDX-License-Identifier: BSD-3-Clause
// hostnic-faulted: says what it meets, one line for each, for what `hostnic fault` makes of it. A
// plain verbs program, which goes on where a call fails.
//   hostnic-faulted calls [DEVICE]             calls that make objects, in a known order
//   hostnic-faulted completions [ex] [DEVICE]  ten WRITEs from one queue pair to another
//   hostnic-faulted armed [DEVICE]             rules that it arms itself (hostnic-fault.h)
//   hostnic-faulted until-fails SECONDS [DEVICE]  create_cq again and again, until it fails
//   hostnic-faulted events SECONDS [DEVICE]    asynchronous events that come in this time
//   hostnic-faulted own-events [DEVICE]        the device's own, which are late (late_events.h)
//   hostnic-faulted late [DEVICE]              requests that the device gets late (late.h)
//   hostnic-faulted skew HOW DEVICE DEVICE     completions of two devices (skew.h)
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/apps/faulted/late.h"
#include "tests/apps/faulted/late_events.h"
#include "tests/apps/faulted/skew.h"
#include "tests/support/verbs_pair.h"
#include "verbs-shim/faults/hostnic-fault.h"

namespace {

using namespace hostnic;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "hostnic-faulted: %s (errno %d)\n", what, errno);
  exit(1);
}

void say(const char* what, int error) {
  printf("%s: %s\n", what, error == 0 ? "ok" : strerrorname_np(error));
  fflush(stdout);
}

struct Objects {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
};

ibv_context* open(const char* device) {
  ibv_context* context = device != nullptr ? verbs::open_device(std::string_view(device))
                                           : verbs::open_device(size_t{0});
  if (context == nullptr) fail("no device");
  return context;
}

Objects make_objects(const char* device) {
  Objects objects{.context = open(device)};
  objects.pd = ibv_alloc_pd(objects.context);
  objects.cq = ibv_create_cq(objects.context, 64, nullptr, nullptr, 0);
  if (objects.pd == nullptr || objects.cq == nullptr) fail("objects");
  return objects;
}

ibv_qp* make_qp(const Objects& objects, ibv_cq* cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(objects.pd, &attr);
  if (qp == nullptr) fail("ibv_create_qp");
  return qp;
}

void create_queues(ibv_context* context, const char* what) {
  for (int i = 0; i < 5; ++i) {
    errno = 0;
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    say(what, cq == nullptr ? errno : 0);
    if (cq != nullptr) say("destroy_cq", ibv_destroy_cq(cq));
  }
}

int run_calls(const char* device) {
  const Objects objects = make_objects(device);
  create_queues(objects.context, "create_cq");
  std::vector<char> buffer(4 << 20);
  for (const size_t bytes : {size_t{4096}, size_t{1} << 20, buffer.size()}) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(objects.pd, buffer.data(), bytes, IBV_ACCESS_LOCAL_WRITE);
    say("reg_mr", mr == nullptr ? errno : 0);
    if (mr != nullptr) say("dereg_mr", ibv_dereg_mr(mr));
  }
  ibv_gid gid{};
  errno = 0;
  const int result = ibv_query_gid(objects.context, 1, 0, &gid);
  say("query_gid", result == -1 ? errno : result);
  ibv_qp* qp = make_qp(objects, objects.cq);
  const auto start = std::chrono::steady_clock::now();
  say("modify_qp", verbs::to_init(qp, {}));
  const auto took = std::chrono::steady_clock::now() - start;
  printf("modify_qp took %s\n", took >= std::chrono::milliseconds(300) ? "long" : "a moment");
  ibv_recv_wr receive{}, *bad = nullptr;
  receive.wr_id = 7;
  const int posted = ibv_post_recv(qp, &receive, &bad);
  say("post_recv", posted);
  if (posted != 0 && bad != &receive) fail("bad_wr");
  if (const pid_t child = fork(); child == 0) {
    create_queues(open(device), "child's create_cq");
    _exit(0);
  } else if (int status = 0; waitpid(child, &status, 0) != child || status != 0) {
    fail("child");
  }
  if (ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(objects.cq) != 0 ||
      ibv_dealloc_pd(objects.pd) != 0 || ibv_close_device(objects.context) != 0)
    fail("not all could be destroyed");
  return 0;
}

int run_until_fails(int seconds, const char* device) {
  const Objects objects = make_objects(device);
  printf("begun\n");
  fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    ibv_cq* cq = ibv_create_cq(objects.context, 16, nullptr, nullptr, 0);
    if (cq == nullptr) {
      say("create_cq", errno);
      return 0;
    }
    if (ibv_destroy_cq(cq) != 0) fail("ibv_destroy_cq");
    usleep(1000);
  }
  printf("it never failed\n");
  return 1;
}

// Arms, counts and disarms.
int run_armed(const char* device) {
  const Objects objects = make_objects(device);
  printf("arm: %d\n", hostnic_fault_arm("fault create_cq every 2 errno ENOMEM"));
  printf("arm nonsense: %d\n", hostnic_fault_arm("fault ack_cq_events errno EIO"));
  create_queues(objects.context, "create_cq");
  printf("fired: %ld\n", hostnic_fault_fired(0));
  printf("disarm: %d\n", hostnic_fault_disarm(0));
  create_queues(objects.context, "disarmed create_cq");
  printf("fired: %ld, and no rule %ld\n", hostnic_fault_fired(0), hostnic_fault_fired(1));
  return 0;
}

verbs::QpAddress address_of(const Objects& objects, const ibv_qp* qp) {
  verbs::QpAddress address{.qpn = qp->qp_num, .psn = 100};
  if (ibv_query_gid(objects.context, 1, 0, &address.gid) != 0) fail("ibv_query_gid");
  return address;
}

void say_state(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) != 0) fail("ibv_query_qp");
  printf("state: %s\n", attr.qp_state == IBV_QPS_ERR ? "ERR" : "RTS or less");
}

void poll_plain(ibv_cq* cq, int count) {
  for (int got = 0; got < count;) {
    ibv_wc wc[4];
    const int found = ibv_poll_cq(cq, 4, wc);
    if (found < 0) fail("ibv_poll_cq");
    for (int i = 0; i < found; ++i, ++got)
      printf("wc %lu: status %d vendor 0x%x\n", wc[i].wr_id, wc[i].status,
             wc[i].status == IBV_WC_SUCCESS ? 0 : wc[i].vendor_err);
  }
}

void poll_extended(ibv_cq_ex* cq, int count) {
  for (int got = 0; got < count;) {
    ibv_poll_cq_attr attr{};
    int result = ibv_start_poll(cq, &attr);
    if (result == ENOENT) continue;
    for (; result == 0; result = ibv_next_poll(cq), ++got)
      printf("wc %lu: status %d vendor 0x%x\n", cq->wr_id, cq->status,
             cq->status == IBV_WC_SUCCESS ? 0 : ibv_wc_read_vendor_err(cq));
    ibv_end_poll(cq);
  }
}

int run_completions(bool extended, const char* device) {
  constexpr int kWrites = 10;
  Objects objects = make_objects(device);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 64;
  attr.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* cq_ex = extended ? ibv_create_cq_ex(objects.context, &attr) : nullptr;
  if (extended && cq_ex == nullptr) fail("ibv_create_cq_ex");
  ibv_cq* cq = extended ? ibv_cq_ex_to_cq(cq_ex) : objects.cq;
  ibv_qp* from = make_qp(objects, cq);
  ibv_qp* to = make_qp(objects, objects.cq);
  std::vector<char> buffer(8192);
  ibv_mr* mr = ibv_reg_mr(objects.pd, buffer.data(), buffer.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (mr == nullptr) fail("ibv_reg_mr");
  for (const auto& [one, other] : {std::pair{from, to}, std::pair{to, from}})
    if (verbs::to_init(one, {}) != 0 || verbs::to_rtr(one, {}, address_of(objects, other)) != 0 ||
        verbs::to_rts(one, {}, 100) != 0)
      fail("ibv_modify_qp");
  for (int i = 1; i <= kWrites; ++i) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer.data()), 1024, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = static_cast<uint64_t>(i);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(buffer.data()) + 4096, mr->rkey};
    if (ibv_post_send(from, &wr, &bad) != 0) fail("ibv_post_send");
  }
  extended ? poll_extended(cq_ex, kWrites) : poll_plain(cq, kWrites);
  say_state(from);
  if (ibv_destroy_qp(from) != 0 || ibv_destroy_qp(to) != 0 ||
      (extended && ibv_destroy_cq(cq) != 0) || ibv_destroy_cq(objects.cq) != 0 ||
      ibv_dereg_mr(mr) != 0 || ibv_dealloc_pd(objects.pd) != 0 ||
      ibv_close_device(objects.context) != 0)
    fail("not all could be destroyed");
  return 0;
}

int run_events(int seconds, const char* device) {
  const Objects objects = make_objects(device);
  ibv_qp* first = make_qp(objects, objects.cq);
  ibv_qp* second = make_qp(objects, objects.cq);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    pollfd ready{objects.context->async_fd, POLLIN, 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    ibv_async_event event{};
    if (ibv_get_async_event(objects.context, &event) != 0) fail("ibv_get_async_event");
    ibv_port_attr port{};
    if (ibv_query_port(objects.context, 1, &port) != 0) fail("ibv_query_port");
    const bool of_qp = event.event_type == IBV_EVENT_QP_FATAL;
    printf("event: %s%s, port %s\n", ibv_event_type_str(event.event_type),
           event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == objects.cq ? " of the queue"
           : !of_qp                                                               ? ""
           : event.element.qp == first                                            ? " of the first"
           : event.element.qp == second                                           ? " of the second"
                                                                                  : " of nobody",
           port.state == IBV_PORT_ACTIVE ? "active" : "down");
    fflush(stdout);
    ibv_ack_async_event(&event);
  }
  // These wait for events that were not acknowledged.
  if (ibv_destroy_qp(first) != 0 || ibv_destroy_qp(second) != 0 ||
      ibv_destroy_cq(objects.cq) != 0 || ibv_dealloc_pd(objects.pd) != 0 ||
      ibv_close_device(objects.context) != 0)
    fail("not all could be destroyed");
  printf("all is destroyed\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto word = [&](int i) { return i < argc ? argv[i] : nullptr; };
  if (mode == "calls") return run_calls(word(2));
  if (mode == "armed") return run_armed(word(2));
  if (mode == "completions") {
    const bool extended = argc > 2 && std::string_view(argv[2]) == "ex";
    return run_completions(extended, word(extended ? 3 : 2));
  }
  if (mode == "until-fails" && argc > 2) return run_until_fails(atoi(argv[2]), word(3));
  if (mode == "events" && argc > 2) return run_events(atoi(argv[2]), word(3));
  if (mode == "own-events") return faulted::run_own_events(word(2));
  if (mode == "late") return faulted::run_late(word(2));
  if (mode == "skew" && argc > 4) return faulted::run_skew(argv[2], argv[3], argv[4]);
  fprintf(stderr,
          "usage: hostnic-faulted calls|completions|armed|events|own-events|late|skew ...\n");
  return 2;
}
