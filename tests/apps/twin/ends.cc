// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/ends.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace hostnic::twin {
namespace {

constexpr uint32_t kPsn = 0x123456;

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "hostnic-twin: %s: %s\n", what, strerror(errno));
  _exit(2);
}

verbs::ConnectOptions options(ibv_qp_type type, ibv_mtu mtu) {
  verbs::ConnectOptions how;
  how.type = type;
  how.access = kAllAccess;
  how.mtu = mtu;
  how.rd_atomic = 8;
  how.qkey = kQkey;
  return how;
}

void must(int error, const char* what) {
  if (error == 0) return;
  errno = error;
  die(what);
}

}  // namespace

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Ends::Ends(const char* device) {
  context = verbs::open_device(device);
  if (context == nullptr) die("ibv_open_device");
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
  if (pd == nullptr || cq == nullptr) die("ibv_alloc_pd, ibv_create_cq");
  ibv_port_attr port{};
  must(ibv_query_port(context, 1, &port), "ibv_query_port");
  must(ibv_query_gid(context, 1, 0, &gid_), "ibv_query_gid");
  mtu_ = port.active_mtu;
  reliable = make(IBV_QPT_RC);
  datagram = make(IBV_QPT_UD);
}

Ends::~Ends() {
  if (ah_ != nullptr) ibv_destroy_ah(ah_);
  ibv_destroy_qp(datagram);
  ibv_destroy_qp(reliable);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

ibv_qp* Ends::make(ibv_qp_type type) const {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  attr.cap = {.max_send_wr = 64,
              .max_recv_wr = 64,
              .max_send_sge = 2,
              .max_recv_sge = 2,
              .max_inline_data = 0};
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  if (qp == nullptr) die("ibv_create_qp");
  return qp;
}

Addresses Ends::addresses() const {
  return {{reliable->qp_num, kPsn, gid_, 0}, {datagram->qp_num, kPsn, gid_, 0}};
}

void Ends::connect(const Addresses& peer) {
  for (ibv_qp* qp : {reliable, datagram}) {
    const verbs::ConnectOptions how = options(qp->qp_type, mtu_);
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    must(ibv_modify_qp(qp, &reset, IBV_QP_STATE), "RESET");
    must(verbs::to_init(qp, how), "INIT");
    must(verbs::to_rtr(qp, how, qp == reliable ? peer.reliable : peer.datagram), "RTR");
    must(verbs::to_rts(qp, how, kPsn), "RTS");
  }
  ibv_wc old{};
  while (ibv_poll_cq(cq, 1, &old) > 0) {
  }
  if (ah_ == nullptr) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = peer.datagram.gid;
    attr.grh.hop_limit = 64;
    ah_ = ibv_create_ah(pd, &attr);
    if (ah_ == nullptr) die("ibv_create_ah");
  }
  peer_qpn_ = peer.datagram.qpn;
}

int Ends::post(ibv_send_wr wr, ibv_qp* qp) const {
  ibv_send_wr* bad = nullptr;
  wr.send_flags |= IBV_SEND_SIGNALED;
  if (qp == datagram) {
    wr.wr.ud.ah = ah_;
    wr.wr.ud.remote_qpn = peer_qpn_;
    wr.wr.ud.remote_qkey = kQkey;
  }
  return ibv_post_send(qp, &wr, &bad);
}

int Ends::post_receive(uint64_t address, uint32_t length, uint32_t lkey, ibv_qp* qp) const {
  ibv_sge sge{address, length, lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = 1000;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  return ibv_post_recv(qp, &wr, &bad);
}

bool Ends::next(ibv_wc& completion, double patience_s) const {
  const double end = now_s() + patience_s;
  unsigned turns = 0;
  do {
    const int count = ibv_poll_cq(cq, 1, &completion);
    if (count < 0) {
      errno = -count;
      die("ibv_poll_cq");
    }
    if (count == 1) return true;
    // Somebody else may need the processor to bring it.
    if (++turns > 200) usleep(20);
  } while (now_s() < end);
  return false;
}

}  // namespace hostnic::twin
