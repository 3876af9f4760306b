// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/mrc/end.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/verbs_pair.h"

namespace hostnic::mrc_app {
namespace {

constexpr int kWaitMs = 20'000;
constexpr uint8_t kTimeout = 14, kLinearRetries = 5, kExponentialRetries = 2;

template <class T>
void send_to(int socket, T value) {
  require(write(socket, &value, sizeof value) == sizeof value, "write to the peer");
}
template <class T>
T receive_from(int socket) {
  T value{};
  require(read(socket, &value, sizeof value) == sizeof value, "read from the peer");
  return value;
}

}  // namespace

void require(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "hostnic-mrc: %s failed: %s\n", what, strerror(errno));
  _exit(1);
}

End::End(size_t device, int socket)
    : socket_(socket), device_(verbs::open_device(device)), buffer_(kBufferBytes) {
  require(device_ != nullptr, "open_device");
  query_device();
  mrc_context_attr attr{MRC_API_CURRENT_VERSION, 0};
  context_ = mrc_create_context(device_, &attr);
  require(context_ != nullptr, "mrc_create_context");
  pd_ = ibv_alloc_pd(device_);
  require(pd_ != nullptr, "ibv_alloc_pd");
  mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  require(mr_ != nullptr, "ibv_reg_mr");
  require(mrc_create_comp_channel(context_, &channel_) == 0, "mrc_create_comp_channel");
  send_cq_ = mrc_create_cq(context_, kQueueEntries, this, nullptr, 0);
  recv_cq_ = mrc_create_cq(context_, kQueueEntries, this, channel_, 0);
  require(send_cq_ != nullptr && recv_cq_ != nullptr, "mrc_create_cq");
  mrc_qp_hint_init_attr hint{};
  hint.attr.num_send_peers = 1;
  hint_ = mrc_create_qp_hint(context_, &hint);
  require(hint_ != nullptr, "mrc_create_qp_hint");
  mrc_qp_init_attr init{};
  init.qp_context = this;
  init.send_cq = send_cq_;
  init.recv_cq = recv_cq_;
  init.cap = {.max_send_wr = kQueueEntries,
              .max_recv_wr = kQueueEntries,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.pd = pd_;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  init.protocol_version = MRC_PROTOCOL_VERSION_1;
  qp_ = mrc_create_qp(context_, &init);
  require(qp_ != nullptr, "mrc_create_qp");
}

void End::query_device() const {
  mrc_device_attr attr{};
  mrc_ctl_device_attr control{};
  int supported = 0;
  require(mrc_query_device(device_, &attr, &supported) == 0, "mrc_query_device");
  require(supported != 0, "a device that speaks MRC (hostnic lab --nic transport=mrc): none");
  require(attr.mrc_protocol_version == MRC_PROTOCOL_VERSION_1 && attr.mpr_attr.max_mpr >= 1,
          "the device's attributes");
  require(mrc_ctl_query_device(device_, &control) == 0, "mrc_ctl_query_device");
  require(control.ev.ev_mode_mask == MRC_CTL_EV_MODE_AUTO &&
              std::strcmp(control.cc.algorithms[0], "uet-1.0-nscc") == 0,
          "the device's attributes for controllers");
}

// ---- connecting

void End::to_init() {
  ibv_qp_attr verbs{};
  verbs.qp_state = IBV_QPS_INIT;
  verbs.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  mrc_qp_attr mrc{};
  mrc.qp_hint = hint_;
  require(mrc_modify_qp(qp_, &verbs, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, &mrc,
                        MRC_QP_HINT | MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID) == 0,
          "mrc_modify_qp to INIT");
}

void End::to_rtr() {
  ibv_qp_attr verbs{};
  verbs.qp_state = IBV_QPS_RTR;
  verbs.path_mtu = IBV_MTU_4096;
  verbs.dest_qp_num = peer_.qpn;
  verbs.rq_psn = peer_.psn;
  verbs.ah_attr.is_global = 1;
  verbs.ah_attr.grh.dgid = peer_.gid;
  mrc_qp_attr mrc{};
  mrc.wimm.max_wimm_dest = kMaxImms;
  mrc.mpr.mpr_dest = 2;
  mrc.cap = MRC_QP_CAP_DYNAMIC_MPR;
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  require(mrc_modify_qp(qp_, &verbs, mask, &mrc,
                        MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR_DEST | MRC_QP_CAP) == 0,
          "mrc_modify_qp to RTR");
}

void End::to_rts() {
  ibv_qp_attr verbs{};
  verbs.qp_state = IBV_QPS_RTS;
  verbs.sq_psn = own_.psn;
  mrc_qp_attr mrc{};
  mrc.wimm.max_wimm = kMaxImms;
  mrc.mpr.mpr = 2;
  mrc.timeout = kTimeout;
  mrc.retry = {kLinearRetries, kExponentialRetries};
  require(mrc_modify_qp(qp_, &verbs, IBV_QP_STATE | IBV_QP_SQ_PSN, &mrc,
                        MRC_QP_MAX_WIMM | MRC_QP_MPR | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT) == 0,
          "mrc_modify_qp to RTS");
  mrc_qp_attr now{};
  mrc_qp_init_attr init{};
  require(mrc_query_qp(qp_, &verbs, IBV_QP_STATE, &now, MRC_QP_TIMEOUT, &init) == 0,
          "mrc_query_qp");
  require(verbs.qp_state == IBV_QPS_RTS && now.wimm.max_wimm == kMaxImms &&
              now.wimm.max_wimm_dest == kMaxImms && now.mpr.mpr == 2 && now.timeout == kTimeout &&
              now.retry.linear_cnt == kLinearRetries && now.qp_hint == hint_ &&
              init.qp_context == this && init.send_cq == send_cq_,
          "what mrc_query_qp says");
}

void End::connect() {
  require(mrc_get_qpn(qp_, &own_.qpn) == 0, "mrc_get_qpn");
  require(ibv_query_gid(device_, 1, 0, &own_.gid) == 0, "ibv_query_gid");
  own_.psn = own_.qpn * 77 & 0xffffff;
  own_.buffer = reinterpret_cast<uintptr_t>(buffer_.data());
  own_.rkey = mr_->rkey;
  send_to(socket_, own_);
  peer_ = receive_from<Address>(socket_);
  to_init();
  to_rtr();
  to_rts();
  say();
  hear();
}

void End::say() const { send_to(socket_, char{}); }
void End::hear() const { receive_from<char>(socket_); }

// ---- data

int End::post(ibv_wr_opcode opcode, size_t bytes, uint32_t imm, bool is_signalled, bool wrong_key) {
  ibv_sge sge{own_.buffer, static_cast<uint32_t>(bytes), mr_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = imm;
  wr.sg_list = &sge;
  wr.num_sge = bytes == 0 ? 0 : 1;
  wr.opcode = opcode;
  wr.send_flags = is_signalled ? IBV_SEND_SIGNALED : 0;
  wr.imm_data = htonl(imm);
  wr.wr.rdma.remote_addr = peer_.buffer;
  wr.wr.rdma.rkey = wrong_key ? peer_.rkey ^ 0x100 : peer_.rkey;
  ibv_send_wr* bad = nullptr;
  return mrc_post_send(qp_, &wr, &bad);
}

void End::post_receives(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    ibv_recv_wr wr{};
    wr.wr_id = i;
    ibv_recv_wr* bad = nullptr;
    require(mrc_post_recv(qp_, &wr, &bad) == 0, "mrc_post_recv");
  }
}

ibv_wc End::next_sent() {
  ibv_wc wc{};
  int found = 0;
  while (found == 0) found = mrc_poll_cq(send_cq_, 1, &wc);
  require(found == 1, "mrc_poll_cq");
  return wc;
}

ibv_wc End::next_received() {
  ibv_wc wc{};
  require(mrc_req_notify_cq(recv_cq_, 0) == 0, "mrc_req_notify_cq");
  int found = mrc_poll_cq(recv_cq_, 1, &wc);
  while (found == 0) {
    int fd = -1;
    require(mrc_get_comp_channel_fd(channel_, &fd) == 0, "mrc_get_comp_channel_fd");
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    require(poll(&waits, 1, kWaitMs) == 1, "an event of the completion channel");
    mrc_cq* cq = nullptr;
    void* cq_context = nullptr;
    require(mrc_get_cq_event(channel_, &cq, &cq_context) == 0, "mrc_get_cq_event");
    require(cq == recv_cq_ && cq_context == this, "what mrc_get_cq_event says");
    mrc_ack_cq_events(cq, 1);
    require(mrc_req_notify_cq(recv_cq_, 0) == 0, "mrc_req_notify_cq");
    found = mrc_poll_cq(recv_cq_, 1, &wc);
  }
  require(found == 1, "mrc_poll_cq");
  return wc;
}

void End::destroy() {
  errno = 0;
  require(mrc_destroy_context(context_) == -1 && errno == EBUSY,
          "mrc_destroy_context of a context with objects: EBUSY");
  require(mrc_destroy_qp_hint(hint_) == -1 && errno == EBUSY,
          "mrc_destroy_qp_hint of a hint with a queue pair: EBUSY");
  require(mrc_destroy_qp(qp_) == 0, "mrc_destroy_qp");
  require(mrc_destroy_qp(qp_) == EINVAL, "mrc_destroy_qp of what is destroyed: EINVAL");
  require(mrc_destroy_qp_hint(hint_) == 0, "mrc_destroy_qp_hint");
  require(mrc_destroy_cq(send_cq_) == 0 && mrc_destroy_cq(recv_cq_) == 0, "mrc_destroy_cq");
  require(mrc_destroy_comp_channel(channel_) == 0, "mrc_destroy_comp_channel");
  require(mrc_destroy_context(context_) == 0, "mrc_destroy_context");
  require(ibv_dereg_mr(mr_) == 0 && ibv_dealloc_pd(pd_) == 0 && ibv_close_device(device_) == 0,
          "ibv_close_device");
}

}  // namespace hostnic::mrc_app
