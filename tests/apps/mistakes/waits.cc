// SPDX-License-Identifier: BSD-3-Clause
// Nothing happens: the peer is not there, not ready, or stopped; or completions lie where nobody
// looks.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

void write_to_peer(Stage& s) {
  fact("peer", s.here.peer.qpn);
  s.fails(IBV_WR_RDMA_WRITE, 8, s.remote(), s.there.mr->rkey);
}

// Connects this side alone.
void connect_here(Stage& s) {
  s.here.to_init();
  s.here.to_rtr();
  s.here.to_rts();
}

void wrong_qpn() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.there.peer = s.here.address();
  for (Side* side : {&s.there}) side->to_init(), side->to_rtr(), side->to_rts();
  s.here.peer.qpn ^= 0x5a5;
  connect_here(s);
  write_to_peer(s);
}

void wrong_psn() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.there.peer = s.here.address();
  s.there.peer.psn = 2000;  // and hnic0 begins at 1000
  for (Side* side : {&s.there, &s.here}) side->to_init(), side->to_rtr(), side->to_rts();
  write_to_peer(s);
}

void peer_in_reset() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  connect_here(s);
  write_to_peer(s);
}

void peer_in_init() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.there.to_init();
  connect_here(s);
  write_to_peer(s);
}

void peer_of_another() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.there.peer = s.here.address();
  s.there.peer.qpn = 0x991334;
  for (Side* side : {&s.there, &s.here}) side->to_init(), side->to_rtr(), side->to_rts();
  write_to_peer(s);
}

void nobody_at_gid() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.here.peer.gid.raw[15] = 77;  // 127.77.0.77
  s.here.to_init();
  if (verbs::to_rtr(s.here.qp, s.here.how, s.here.peer) != 0) return;  // on the virtual wire
  s.here.to_rts();
  write_to_peer(s);
}

void other_type() {
  Stage s;
  s.there.how.type = IBV_QPT_UC;
  s.make();
  s.here.peer = s.there.address();
  s.there.peer = s.here.address();
  for (Side* side : {&s.there, &s.here}) side->to_init(), side->to_rtr(), side->to_rts();
  write_to_peer(s);
}

// The peer is a process of its own, which is there before this one has opened anything.
struct Child {
  pid_t pid = 0;
  int to = -1, from = -1;
  verbs::QpAddress address;
  uint64_t memory = 0;
  uint32_t rkey = 0;
};

struct Greeting {
  verbs::QpAddress address;
  uint64_t memory;
  uint32_t rkey;
};

template <class T>
void give(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != sizeof value) die("write");
}
template <class T>
T take(int fd) {
  T value;
  if (read(fd, &value, sizeof value) != sizeof value) die("read");
  return value;
}

[[noreturn]] void be_peer(int from, int to, bool receives) {
  Side side;
  side.open("hnic1");
  side.make();
  give(to, Greeting{side.address(), reinterpret_cast<uint64_t>(side.memory), side.mr->rkey});
  side.peer = take<verbs::QpAddress>(from);
  side.to_init();
  if (receives) good(side.receive(side.sge(64)), "ibv_post_recv");
  side.to_rtr();
  side.to_rts();
  give(to, 1);
  for (;;) pause();
}

struct Apart {
  Child child;
  Side here;

  Apart() {
    int down[2], up[2];
    good(pipe(down), "pipe");
    good(pipe(up), "pipe");
    child.pid = fork();
    if (child.pid == 0) be_peer(down[0], up[1], true);
    child.to = down[1];
    child.from = up[0];
    here.open("hnic0");
  }
  ~Apart() {
    kill(child.pid, SIGCONT);
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
  }
  void connect() {
    here.make();
    const auto greeting = take<Greeting>(child.from);
    here.peer = child.address = greeting.address;
    child.memory = greeting.memory;
    child.rkey = greeting.rkey;
    give(child.to, here.address());
    take<int>(child.from);
    here.to_init();
    here.to_rtr();
    here.to_rts();
    fact("pid", static_cast<uint64_t>(child.pid));
    printf("fact decimal_pid=%d\n", child.pid);
    fflush(stdout);
  }
};

void peer_killed() {
  Apart a;
  a.connect();
  good(a.here.send(IBV_WR_RDMA_WRITE, a.here.sge(8), a.child.memory, a.child.rkey), "post");
  if (a.here.completion().status != IBV_WC_SUCCESS) die("the first WRITE");
  kill(a.child.pid, SIGKILL);
  usleep(200'000);
  good(a.here.send(IBV_WR_RDMA_WRITE, a.here.sge(8), a.child.memory, a.child.rkey), "post");
  a.here.completion();
}

// A stopped peer's NIC goes on: what is missing are its receives.
void peer_stopped() {
  Apart a;
  a.connect();
  good(a.here.send(IBV_WR_SEND, a.here.sge(8)), "post");
  if (a.here.completion().status != IBV_WC_SUCCESS) die("the first SEND");
  kill(a.child.pid, SIGSTOP);
  good(a.here.send(IBV_WR_SEND, a.here.sge(8)), "post");
  a.here.poll_for_ms(3500);
}

// One that is stopped after its receives have come sends no answer either.
void peer_stopped_before_its_answer() {
  Apart a;
  a.connect();
  good(a.here.receive(a.here.sge(8)), "receive");
  good(a.here.send(IBV_WR_SEND, a.here.sge(8)), "post");
  if (a.here.completion().status != IBV_WC_SUCCESS) die("the first SEND");
  kill(a.child.pid, SIGSTOP);
  a.here.poll_for_ms(4500);
}

void rnr_for_ever() {
  Stage s;
  s.ready();
  good(s.here.send(IBV_WR_SEND, s.here.sge(8)), "post");
  s.here.poll_for_ms(3500);
}

void silent_for_long() {
  Stage s;
  s.here.how.timeout = 18;  // 1.07 s
  s.here.how.retry_cnt = 7;
  s.make();
  s.here.peer = s.there.address();
  connect_here(s);
  fact("peer", s.here.peer.qpn);
  good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  s.here.poll_for_ms(4000);
}

void not_polled() {
  Stage s;
  s.ready();
  for (int i = 0; i < 16; ++i)
    good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  sleep(4);
}

void unsignalled() {
  Stage s;
  s.ready();
  good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey, 0), "post");
  s.here.poll_for_ms(4000);
}

void not_armed() {
  Stage s;
  s.ready();
  good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  pollfd waiting{s.here.channel->fd, POLLIN, 0};
  poll(&waiting, 1, 4000);
}

void nobody_sends() {
  Stage s;
  s.ready();
  good(s.here.receive(s.here.sge(64)), "ibv_post_recv");
  s.here.poll_for_ms(4000);
}

void wrong_qkey() {
  Stage s;
  s.here.how.type = s.there.how.type = IBV_QPT_UD;
  s.here.how.qkey = s.there.how.qkey = 0x11111111;
  s.ready();
  good(s.there.receive(s.there.sge(128)), "ibv_post_recv");
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = s.there.gid;
  to.grh.hop_limit = 64;
  ibv_ah* const ah = good(ibv_create_ah(s.here.pd, &to), "ibv_create_ah");
  ibv_sge sge = s.here.sge(8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {.ah = ah, .remote_qpn = s.there.qp->qp_num, .remote_qkey = 0x2222};
  good(ibv_post_send(s.here.qp, &wr, &bad), "post");
  s.here.completion();
  s.there.poll_for_ms(4000);
}

}  // namespace

void add_waits(Table& table) {
  table.insert({{"wrong-qpn", wrong_qpn},
                {"wrong-psn", wrong_psn},
                {"peer-in-reset", peer_in_reset},
                {"peer-in-init", peer_in_init},
                {"peer-of-another", peer_of_another},
                {"nobody-at-gid", nobody_at_gid},
                {"other-type", other_type},
                {"peer-killed", peer_killed},
                {"peer-stopped", peer_stopped},
                {"peer-stopped-before-its-answer", peer_stopped_before_its_answer},
                {"rnr-for-ever", rnr_for_ever},
                {"silent-for-long", silent_for_long},
                {"not-polled", not_polled},
                {"unsignalled", unsignalled},
                {"not-armed", not_armed},
                {"nobody-sends", nobody_sends},
                {"wrong-qkey", wrong_qkey}});
}

}  // namespace hostnic::mistakes
