// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/races/lane.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/support/verbs_pair.h"

namespace hostnic::races {
namespace {

// Numbers and not enumerators: ibv_reg_mr is a macro that mixes them with others.
constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

template <class Object>
Object* good(Object* object, const char* what) {
  if (object == nullptr) broken(what);
  return object;
}
void good(int result, const char* what) {
  if (result != 0) broken(what);
}

}  // namespace

void broken(const char* what) {
  perror(what);
  exit(kExitBroken);
}

void work_a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

uint8_t content(size_t message, size_t place) {
  return static_cast<uint8_t>((message * 193 + place * 2654435761u + 7) >> 5);
}

Lane::Lane(const Options& options, size_t device, std::span<uint8_t> source,
           std::span<uint8_t> target) {
  const std::string& name = options.devices[device];
  context_ =
      good(name.empty() ? verbs::open_device(device) : verbs::open_device(std::string_view(name)),
           "a device");
  pd_ = good(ibv_alloc_pd(context_), "ibv_alloc_pd");
  for (ibv_cq** cq : {&sent_, &received_})
    *cq = good(ibv_create_cq(context_, kReceives, nullptr, nullptr, 0), "ibv_create_cq");
  source_ = good(ibv_reg_mr(pd_, source.data(), source.size(), kLocal), "ibv_reg_mr");
  target_ = good(ibv_reg_mr(pd_, target.data(), target.size(), kRemote), "ibv_reg_mr");
  from_ = create_qp(sent_);
  to_ = create_qp(received_);
  connect(options.gid_index);
  for (uint32_t i = 0; i < kReceives; ++i) {
    ibv_recv_wr wr{}, *bad = nullptr;
    good(ibv_post_recv(to_, &wr, &bad), "ibv_post_recv");
  }
}

Lane::~Lane() {
  good(ibv_destroy_qp(from_), "ibv_destroy_qp");
  good(ibv_destroy_qp(to_), "ibv_destroy_qp");
  good(ibv_dereg_mr(source_), "ibv_dereg_mr");
  good(ibv_dereg_mr(target_), "ibv_dereg_mr");
  good(ibv_destroy_cq(sent_), "ibv_destroy_cq");
  good(ibv_destroy_cq(received_), "ibv_destroy_cq");
  good(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
  good(ibv_close_device(context_), "ibv_close_device");
}

ibv_qp* Lane::create_qp(ibv_cq* cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = kReceives;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  return good(ibv_create_qp(pd_, &attr), "ibv_create_qp");
}

void Lane::connect(uint8_t gid_index) {
  verbs::ConnectOptions how;
  how.gid_index = gid_index;
  verbs::QpAddress address{.psn = 100};
  good(ibv_query_gid(context_, 1, gid_index, &address.gid), "ibv_query_gid");
  for (const auto& [one, other] : {std::pair{from_, to_}, std::pair{to_, from_}}) {
    address.qpn = other->qp_num;
    good(verbs::to_init(one, how), "to INIT");
    good(verbs::to_rtr(one, how, address), "to RTR");
    good(verbs::to_rts(one, how, address.psn), "to RTS");
  }
}

void Lane::write(std::span<const uint8_t> bytes, size_t target_offset, uint64_t id,
                 std::optional<uint32_t> immediate) {
  ibv_sge sge{reinterpret_cast<uint64_t>(bytes.data()), static_cast<uint32_t>(bytes.size()),
              source_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  wr.imm_data = immediate.value_or(0);
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<uint64_t>(target_->addr) + target_offset, target_->rkey};
  good(ibv_post_send(from_, &wr, &bad), "ibv_post_send");
}

std::optional<uint64_t> Lane::next(ibv_cq* cq, bool is_receive) {
  ibv_wc wc{};
  const int count = ibv_poll_cq(cq, 1, &wc);
  if (count < 0) broken("ibv_poll_cq");
  if (count == 0) return std::nullopt;
  if (wc.status != IBV_WC_SUCCESS) broken(ibv_wc_status_str(wc.status));
  return is_receive ? wc.imm_data : wc.wr_id;
}

void Lane::wait_for(uint64_t id) {
  while (true) {
    const std::optional<uint64_t> done = written();
    if (done == id) return;
    if (!done) std::this_thread::yield();
  }
}

}  // namespace hostnic::races
