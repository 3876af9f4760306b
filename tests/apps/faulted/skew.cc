// SPDX-License-Identifier: BSD-3-Clause
// hostnic-faulted skew: completions of two devices, in the order in which they are delivered.
#include "tests/apps/faulted/skew.h"

#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic::faulted {
namespace {

constexpr int kWrites = 10;

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

// A device with a queue pair that writes to another one of it.
struct Side {
  const char* name = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq_ex* cq_ex = nullptr;  // null: a plain queue
  ibv_cq* cq = nullptr;
  ibv_qp *from = nullptr, *to = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> buffer = std::vector<char>(8192);
  int delivered = 0;
};

void connect(Side& side) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = side.cq;
  attr.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
  attr.qp_type = IBV_QPT_RC;
  side.from = ibv_create_qp(side.pd, &attr);
  side.to = ibv_create_qp(side.pd, &attr);
  if (side.from == nullptr || side.to == nullptr) fail("ibv_create_qp");
  ibv_gid gid{};
  if (ibv_query_gid(side.context, 1, 0, &gid) != 0) fail("ibv_query_gid");
  for (const auto& [one, other] : {std::pair{side.from, side.to}, std::pair{side.to, side.from}})
    if (verbs::to_init(one, {}) != 0 ||
        verbs::to_rtr(one, {}, {.qpn = other->qp_num, .psn = 100, .gid = gid}) != 0 ||
        verbs::to_rts(one, {}, 100) != 0)
      fail("ibv_modify_qp");
}

void open(Side& side, const char* name, bool extended, bool events) {
  side.name = name;
  side.context = verbs::open_device(std::string_view(name));
  if (side.context == nullptr) fail(name);
  side.pd = ibv_alloc_pd(side.context);
  if (events) side.channel = ibv_create_comp_channel(side.context);
  if (side.pd == nullptr || (events && side.channel == nullptr)) fail("objects");
  if (extended) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.cq_context = &side;
    attr.channel = side.channel;
    attr.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN;
    side.cq_ex = ibv_create_cq_ex(side.context, &attr);
    if (side.cq_ex != nullptr) side.cq = ibv_cq_ex_to_cq(side.cq_ex);
  } else {
    side.cq = ibv_create_cq(side.context, 64, &side, side.channel, 0);
  }
  if (side.cq == nullptr) fail("ibv_create_cq");
  side.mr = ibv_reg_mr(side.pd, side.buffer.data(), side.buffer.size(),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (side.mr == nullptr) fail("ibv_reg_mr");
  connect(side);
}

void post(Side& side, int count) {
  for (int i = 1; i <= count; ++i) {
    ibv_sge sge{reinterpret_cast<uint64_t>(side.buffer.data()), 1024, side.mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = static_cast<uint64_t>(i);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(side.buffer.data()) + 4096, side.mr->rkey};
    if (ibv_post_send(side.from, &wr, &bad) != 0) fail("ibv_post_send");
  }
}

void say(Side& side, uint64_t wr_id, int status, int opcode, bool own) {
  ++side.delivered;
  printf("%s: wc %lu: status %d, opcode %d%s\n", side.name, wr_id, status, opcode,
         own ? "" : " of another queue pair");
  fflush(stdout);
}

// Returns whether there was one.
bool take(Side& side) {
  if (side.cq_ex == nullptr) {
    ibv_wc wc{};
    const int count = ibv_poll_cq(side.cq, 1, &wc);
    if (count < 0) fail("ibv_poll_cq");
    if (count > 0) say(side, wc.wr_id, wc.status, wc.opcode, wc.qp_num == side.from->qp_num);
    return count > 0;
  }
  ibv_poll_cq_attr attr{};
  const int result = ibv_start_poll(side.cq_ex, &attr);
  if (result == ENOENT) return false;
  if (result != 0) fail("ibv_start_poll");
  say(side, side.cq_ex->wr_id, side.cq_ex->status,
      side.cq_ex->status == IBV_WC_SUCCESS ? ibv_wc_read_opcode(side.cq_ex) : 0,
      ibv_wc_read_qp_num(side.cq_ex) == side.from->qp_num);
  ibv_end_poll(side.cq_ex);
  return true;
}

void poll_all(Side& one, Side& other) {
  while (one.delivered + other.delivered < 2 * kWrites) {
    take(one);
    take(other);
  }
}

// Sleeps until there is an event, and takes nothing that none has told of. The queues are armed.
void wait_all(Side& one, Side& other, int count) {
  int empty = 0;
  for (Side* side : {&one, &other})
    while (take(*side)) {
    }
  while (one.delivered + other.delivered < count) {
    pollfd ready[] = {{one.channel->fd, POLLIN, 0}, {other.channel->fd, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) fail("poll");
    for (Side* side : {&one, &other}) {
      if (ready[side == &one ? 0 : 1].revents == 0) continue;
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(side->channel, &cq, &context) != 0) fail("ibv_get_cq_event");
      if (cq != side->cq || context != side) fail("whose event is that");
      ibv_ack_cq_events(cq, 1);
      if (ibv_req_notify_cq(cq, 0) != 0) fail("ibv_req_notify_cq");
      const int before = side->delivered;
      while (take(*side)) {
      }
      empty += side->delivered == before ? 1 : 0;
    }
  }
  // An event may tell of what was taken before it, but not of what is there later.
  printf("%s\n", empty > (count > 2 ? count : 0) ? "too many events" : "events enough");
}

void arm(Side& side) {
  if (ibv_req_notify_cq(side.cq, 0) != 0) fail("ibv_req_notify_cq");
}

void close(Side& side) {
  if (ibv_destroy_qp(side.from) != 0 || ibv_destroy_qp(side.to) != 0 ||
      ibv_destroy_cq(side.cq) != 0 ||
      (side.channel != nullptr && ibv_destroy_comp_channel(side.channel) != 0) ||
      ibv_dereg_mr(side.mr) != 0 || ibv_dealloc_pd(side.pd) != 0 ||
      ibv_close_device(side.context) != 0)
    fail("not all could be destroyed");
}

}  // namespace

int run_skew(std::string_view how, const char* first, const char* second) {
  Side one, other;
  const bool events = how.starts_with("events"), extended = how.ends_with("ex");
  open(one, first, extended, events);
  open(other, second, extended, events);
  const int writes = how == "events-one" ? 1 : kWrites;
  for (Side* side : {&one, &other}) {
    if (writes == 1) arm(*side);
    post(*side, writes);
    if (events && writes != 1) arm(*side);
  }
  if (how == "left") {
    // Queue pairs and queues go while completions of theirs are held.
    poll(nullptr, 0, 300);
    take(one);
    take(other);
  } else if (events) {
    wait_all(one, other, 2 * writes);
  } else {
    poll_all(one, other);
  }
  close(one);
  close(other);
  printf("all is destroyed\n");
  return 0;
}

}  // namespace hostnic::faulted
