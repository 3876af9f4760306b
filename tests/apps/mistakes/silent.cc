// SPDX-License-Identifier: BSD-3-Clause
// What is dropped and nobody is told of, as UC and UD do; events that do not come; calls that wait.
#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

constexpr int kLongMs = 4000;

// Two ends of an unreliable type, connected; `there` waits for a message of `here`.
struct Unreliable : Stage {
  explicit Unreliable(ibv_qp_type type) {
    here.how.type = there.how.type = type;
    here.how.qkey = there.how.qkey = 0x11111111;
  }
  void send_datagram(size_t bytes, uint32_t qpn) {
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.dgid = there.gid;
    to.grh.hop_limit = 64;
    ibv_ah* const ah = good(ibv_create_ah(here.pd, &to), "ibv_create_ah");
    ibv_sge sge = here.sge(bytes);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = there.how.qkey};
    good(ibv_post_send(here.qp, &wr, &bad), "ibv_post_send");
    here.completion();
    there.poll_for_ms(kLongMs);
  }
  void send(ibv_wr_opcode opcode, size_t bytes, uint32_t rkey = 0) {
    good(here.send(opcode, here.sge(bytes), remote(), rkey), "ibv_post_send");
    here.completion();
    there.poll_for_ms(kLongMs);
  }
};

void ud_no_room_for_grh() {
  Unreliable s(IBV_QPT_UD);
  s.ready();
  good(s.there.receive(s.there.sge(64)), "ibv_post_recv");
  s.send_datagram(64, s.there.qp->qp_num);
}

void ud_wrong_qpn() {
  Unreliable s(IBV_QPT_UD);
  s.ready();
  good(s.there.receive(s.there.sge(512)), "ibv_post_recv");
  fact("wrong", s.there.qp->qp_num ^ 0x40);
  s.send_datagram(64, s.there.qp->qp_num ^ 0x40);
}

void ud_no_receive() {
  Unreliable s(IBV_QPT_UD);
  s.ready();
  s.send_datagram(64, s.there.qp->qp_num);
}

void ud_in_init() {
  Unreliable s(IBV_QPT_UD);
  s.make();
  s.there.to_init();
  good(s.there.receive(s.there.sge(512)), "ibv_post_recv");
  s.here.to_init();
  s.here.to_rtr();
  s.here.to_rts();
  s.send_datagram(64, s.there.qp->qp_num);
}

void uc_wrong_psn() {
  Unreliable s(IBV_QPT_UC);
  s.make();
  s.here.peer = s.there.address();
  s.there.peer = s.here.address();
  s.here.psn = 5000;  // the other one is told 1000
  for (Side* side : {&s.here, &s.there}) side->to_init();
  for (Side* side : {&s.here, &s.there}) side->to_rtr();
  for (Side* side : {&s.here, &s.there}) side->to_rts();
  good(s.there.receive(s.there.sge(512)), "ibv_post_recv");
  s.send(IBV_WR_SEND, 64);
}

void uc_wrong_rkey() {
  Unreliable s(IBV_QPT_UC);
  s.ready();
  fact("key", s.there.mr->rkey ^ 0x77);
  s.send(IBV_WR_RDMA_WRITE, 64, s.there.mr->rkey ^ 0x77);
}

void uc_receive_too_short() {
  Unreliable s(IBV_QPT_UC);
  s.ready();
  good(s.there.receive(s.there.sge(16)), "ibv_post_recv");
  s.send(IBV_WR_SEND, 64);
}

void uc_mtu_of_both_ends() {
  Unreliable s(IBV_QPT_UC);
  s.here.how.mtu = IBV_MTU_256;
  s.ready();
  good(s.there.receive(s.there.sge(8192)), "ibv_post_recv");
  s.send(IBV_WR_SEND, 3000);
}

void mtu_of_a_read() {
  Stage s;
  s.here.how.mtu = IBV_MTU_256;
  s.ready();
  s.fails(IBV_WR_RDMA_READ, 8000, s.remote(), s.there.mr->rkey);
}

void solicited_only() {
  Stage s;
  s.ready();
  good(s.there.receive(s.there.sge(64)), "ibv_post_recv");
  good(ibv_req_notify_cq(s.there.cq, 1), "ibv_req_notify_cq");
  good(s.here.send(IBV_WR_SEND, s.here.sge(8)), "ibv_post_send");
  s.here.completion();
  pollfd waiting{s.there.channel->fd, POLLIN, 0};
  poll(&waiting, 1, kLongMs);
}

// Such a program stands still: it is ended from outside.
void event_not_acknowledged() {
  Stage s;
  s.ready();
  good(ibv_req_notify_cq(s.here.cq, 0), "ibv_req_notify_cq");
  good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  good(ibv_get_cq_event(s.here.channel, &cq, &context), "ibv_get_cq_event");
  s.here.completion();
  good(ibv_destroy_qp(s.here.qp), "ibv_destroy_qp");
  alarm(3);
  ibv_destroy_cq(s.here.cq);
}

}  // namespace

void add_silent(Table& table) {
  table.insert({{"ud-no-room-for-grh", ud_no_room_for_grh},
                {"ud-wrong-qpn", ud_wrong_qpn},
                {"ud-no-receive", ud_no_receive},
                {"ud-in-init", ud_in_init},
                {"uc-wrong-psn", uc_wrong_psn},
                {"uc-wrong-rkey", uc_wrong_rkey},
                {"uc-receive-too-short", uc_receive_too_short},
                {"uc-mtu-of-both-ends", uc_mtu_of_both_ends},
                {"mtu-of-a-read", mtu_of_a_read},
                {"solicited-only", solicited_only},
                {"event-not-acknowledged", event_not_acknowledged}});
}

}  // namespace hostnic::mistakes
