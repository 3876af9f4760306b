// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/failover/rail.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/verbs_pair.h"

namespace hostnic::failover {
namespace {

const verbs::ConnectOptions kHow;
constexpr uint32_t kQueue = 2 * kChunks;

[[noreturn]] void end(const char* what) {
  fprintf(stderr, "hostnic-failover: %s (errno %d)\n", what, errno);
  exit(1);
}

}  // namespace

uint8_t byte_of(size_t chunk, size_t offset) {
  return static_cast<uint8_t>((chunk * 131 + offset * 2654435761u) >> 7);
}

void Rail::fail(const std::string& reason) {
  if (!works_) return;
  works_ = false;
  reason_ = reason;
  printf("rail %zu is down: %s\n", index_ % kRails, reason.c_str());
  fflush(stdout);
  if (!failover_) exit(4);
}

void Rail::open(size_t index, std::span<uint8_t> memory, bool failover) {
  index_ = index;
  failover_ = failover;
  works_ = true;
  context_ = verbs::open_device(index);
  if (context_ == nullptr) end("it wants four devices: hostnic lab --nics 4");
  fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  pd_ = ibv_alloc_pd(context_);
  cq_ = ibv_create_cq(context_, 2 * static_cast<int>(kQueue), nullptr, nullptr, 0);
  if (pd_ != nullptr)
    mr_ = ibv_reg_mr(pd_, memory.data(), memory.size(), static_cast<int>(kHow.access));
  if (cq_ == nullptr || mr_ == nullptr) return fail("its objects");
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = cq_;
  attr.cap = {kQueue, kQueue, 1, 1, 0};
  qp_ = ibv_create_qp(pd_, &attr);
  if (qp_ == nullptr) return fail("ibv_create_qp");
  if (verbs::to_init(qp_, kHow) != 0) return fail("to INIT");
  for (uint32_t i = 0; i < kQueue; ++i) post_receive();
}

Address Rail::address() const {
  Address mine;
  mine.works = works_;
  if (!works_) return mine;
  ibv_query_gid(context_, 1, 0, &mine.gid);
  mine.qpn = qp_->qp_num;
  mine.rkey = mr_->rkey;
  mine.va = reinterpret_cast<uint64_t>(mr_->addr);
  return mine;
}

void Rail::connect(const Address& peer) {
  if (!peer.works) fail("the peer's end");
  if (!works_) return;
  peer_ = peer;
  if (const int error = verbs::to_rtr(qp_, kHow, {.qpn = peer.qpn, .psn = 0, .gid = peer.gid});
      error != 0)
    return fail(std::string("to RTR: ") + strerrorname_np(error));
  if (const int error = verbs::to_rts(qp_, kHow, 0); error != 0)
    return fail(std::string("to RTS: ") + strerrorname_np(error));
}

void Rail::look_for_events() {
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return;
  const std::string what = ibv_event_type_str(event.event_type);
  const bool is_end = event.event_type == IBV_EVENT_PORT_ERR ||
                      event.event_type == IBV_EVENT_QP_FATAL ||
                      event.event_type == IBV_EVENT_DEVICE_FATAL;
  ibv_ack_async_event(&event);
  if (is_end) fail(what);
}

bool Rail::next(ibv_wc& completion) {
  if (context_ == nullptr) return false;
  look_for_events();
  if (!works_ || ibv_poll_cq(cq_, 1, &completion) != 1) return false;
  if (completion.status == IBV_WC_SUCCESS) return true;
  fail(std::string("completion: ") + ibv_wc_status_str(completion.status));
  return false;
}

void Rail::post_receive() {
  ibv_recv_wr wr{}, *bad = nullptr;
  if (works_ && ibv_post_recv(qp_, &wr, &bad) != 0) fail("ibv_post_recv");
}

void Rail::write(const uint8_t* from, uint32_t length, size_t remote_offset, uint64_t id,
                 const uint32_t* immediate) {
  if (!works_) return;
  ibv_sge sge{reinterpret_cast<uint64_t>(from), length, mr_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = immediate != nullptr ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (immediate != nullptr) wr.imm_data = *immediate;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = peer_.va + remote_offset;
  wr.wr.rdma.rkey = peer_.rkey;
  if (ibv_post_send(qp_, &wr, &bad) != 0) fail("ibv_post_send");
}

void Rail::close() {
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (context_ != nullptr) ibv_close_device(context_);
}

void open_rails(std::array<Rail, kRails>& rails, size_t first_device, std::span<uint8_t> memory,
                bool failover, int socket) {
  std::array<Address, kRails> mine, peers;
  for (size_t i = 0; i < kRails; ++i) {
    rails[i].open(first_device + i, memory, failover);
    mine[i] = rails[i].address();
  }
  if (send(socket, &mine, sizeof(mine), MSG_NOSIGNAL) != sizeof(mine) ||
      recv(socket, &peers, sizeof(peers), MSG_WAITALL) != sizeof(peers))
    end("the peer is gone");
  for (size_t i = 0; i < kRails; ++i) rails[i].connect(peers[i]);
  // Nobody sends before both sides are ready.
  char ready = 1;
  if (send(socket, &ready, 1, MSG_NOSIGNAL) != 1 || recv(socket, &ready, 1, MSG_WAITALL) != 1)
    end("the peer is gone");
}

void send_word(int socket, Word word) {
  if (send(socket, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) end("the peer is gone");
}

bool next_word(int socket, Word& word) {
  pollfd readable{socket, POLLIN, 0};
  if (poll(&readable, 1, 0) != 1) return false;
  if (recv(socket, &word, sizeof(word), MSG_WAITALL) != sizeof(word)) end("the peer is gone");
  return true;
}

}  // namespace hostnic::failover
