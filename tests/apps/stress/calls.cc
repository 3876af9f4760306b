// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/stress/calls.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tests/apps/stress/common.h"

namespace hostnic::stress {
namespace {

constexpr int kSomeBytes = 4096;

// What a refused call must leave in errno, and return where it returns an error.
void refused(int error, int expected, const char* what) {
  if (error != expected)
    die(fmt::format("{}: {} ({}), not {} ({})", what, strerror(error), error, strerror(expected),
                    expected));
  count(tally().calls_refused);
}

void refused_object(const void* made, int expected, const char* what) {
  const int error = errno;
  if (made != nullptr) die(fmt::format("{} is not refused", what));
  refused(error, expected, what);
}

void region(Shared& shared, Rng& rng) {
  const Memory memory(kSomeBytes * rng.between(1, 64), rng);
  const Mr one(shared.pd(rng), memory), overlapping(shared.pd(rng), memory);
  memory.data()[rng.below(memory.size())] = std::byte{1};
}

void completion_queue(Shared& shared, Rng& rng) {
  const Cq cq(shared.device, static_cast<unsigned>(rng.between(1, 2000)), true, rng.percent(50));
  must(ibv_resize_cq(cq.cq(), static_cast<int>(rng.between(1, 4000))), "ibv_resize_cq");
  must(ibv_req_notify_cq(cq.cq(), 1), "ibv_req_notify_cq");
  ibv_wc wc{};
  if (ibv_poll_cq(cq.cq(), 1, &wc) != 0) die("a new completion queue has a completion");
}

void address_handle(Shared& shared, Rng& rng) {
  const auto pd = shared.pd(rng);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = shared.device.gid;
  ibv_ah* ah = must(ibv_create_ah(pd->pd, &attr), "ibv_create_ah");
  must(ibv_destroy_ah(ah), "ibv_destroy_ah");
  count(tally().ahs);
}

void queue_pair(Shared& shared, Rng& rng) {
  const auto pd = shared.pd(rng);
  const auto cq = shared.cq(rng);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq->cq();
  init.cap = {static_cast<uint32_t>(rng.between(1, 200)),
              static_cast<uint32_t>(rng.between(1, 200)), static_cast<uint32_t>(rng.between(1, 16)),
              static_cast<uint32_t>(rng.between(1, 16)), 0};
  init.qp_type = rng.percent(70) ? IBV_QPT_RC : rng.percent(50) ? IBV_QPT_UC : IBV_QPT_UD;
  ibv_qp* qp = must(ibv_create_qp(pd->pd, &init), "ibv_create_qp");
  count(tally().qps);
  ibv_qp_attr attr{};
  ibv_qp_init_attr told{};
  must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &told), "ibv_query_qp");
  if (attr.qp_state != IBV_QPS_RESET || told.send_cq != cq->cq())
    die("ibv_query_qp of a new queue pair");
  refused(ibv_dealloc_pd(pd->pd), EBUSY, "ibv_dealloc_pd of a queue pair's domain");
  refused(ibv_destroy_cq(cq->cq()), EBUSY, "ibv_destroy_cq of a queue pair's queue");
  must(ibv_destroy_qp(qp), "ibv_destroy_qp");
}

void window(Shared& shared, Rng& rng) {
  const auto pd = shared.pd(rng);
  ibv_mw* mw =
      must(ibv_alloc_mw(pd->pd, rng.percent(50) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2), "ibv_alloc_mw");
  count(tally().windows);
  refused(ibv_dealloc_pd(pd->pd), EBUSY, "ibv_dealloc_pd of a window's domain");
  must(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
}

void queries(Shared& shared, Rng& rng) {
  ibv_device_attr device{};
  ibv_port_attr port{};
  ibv_srq_attr srq{};
  must(ibv_query_device(shared.device.context, &device), "ibv_query_device");
  must(ibv_query_port(shared.device.context, 1, &port), "ibv_query_port");
  must(ibv_query_srq(shared.srq(rng)->srq(), &srq), "ibv_query_srq");
  if (port.state != IBV_PORT_ACTIVE || srq.max_wr != Srq::kSlots) die("a query's answer is wrong");
}

void wrong_queue_pair(Shared& shared, Rng& rng) {
  const auto pd = shared.pd(rng);
  const auto cq = shared.cq(rng);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq->cq();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RAW_PACKET;
  refused_object(ibv_create_qp(pd->pd, &init), EOPNOTSUPP, "ibv_create_qp of raw packets");
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_sge = 10'000;
  refused_object(ibv_create_qp(pd->pd, &init), EINVAL, "ibv_create_qp with 10,000 SGEs");
  init.cap.max_send_sge = 1;
  ibv_qp* qp = must(ibv_create_qp(pd->pd, &init), "ibv_create_qp");
  count(tally().qps);
  ibv_send_wr wr{};
  ibv_send_wr* bad_send = nullptr;
  wr.opcode = IBV_WR_SEND;
  refused(ibv_post_send(qp, &wr, &bad_send), EINVAL, "ibv_post_send in RESET");
  ibv_recv_wr recv{};
  ibv_recv_wr* bad_recv = nullptr;
  refused(ibv_post_recv(qp, &recv, &bad_recv), EINVAL, "ibv_post_recv in RESET");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  refused(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL, "ibv_modify_qp from RESET to RTS");
  attr.qp_state = IBV_QPS_INIT;
  refused(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL, "ibv_modify_qp without attributes");
  must(ibv_destroy_qp(qp), "ibv_destroy_qp");
}

void wrong_object(Shared& shared, Rng& rng) {
  const auto pd = shared.pd(rng);
  const Memory memory(kSomeBytes, rng);
  ibv_context* context = shared.device.context;
  refused_object(ibv_create_cq(context, 0, nullptr, nullptr, 0), EINVAL, "ibv_create_cq of none");
  refused_object(ibv_create_cq(context, 1, nullptr, nullptr, context->num_comp_vectors), EINVAL,
                 "ibv_create_cq, a vector too many");
  refused_object(ibv_reg_mr(pd->pd, memory.data(), memory.size(), 1 << 10), EINVAL,
                 "ibv_reg_mr with a flag that is none");
  refused_object(ibv_reg_mr(pd->pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE), EINVAL,
                 "ibv_reg_mr without LOCAL_WRITE");
  ibv_srq_init_attr srq{};
  refused_object(ibv_create_srq(pd->pd, &srq), EINVAL, "ibv_create_srq of none");
  ibv_ah_attr ah{};
  ah.port_num = 9;
  refused_object(ibv_create_ah(pd->pd, &ah), EINVAL, "ibv_create_ah at port 9");
  refused_object(ibv_alloc_null_mr(pd->pd), EOPNOTSUPP, "ibv_alloc_null_mr");
}

}  // namespace

void make_and_destroy(Shared& shared, Rng& rng) {
  constexpr void (*kAll[])(Shared&, Rng&) = {region,     completion_queue, address_handle,
                                             queue_pair, window,           queries};
  kAll[rng.below(std::size(kAll))](shared, rng);
}

void call_wrongly(Shared& shared, Rng& rng) {
  rng.percent(50) ? wrong_queue_pair(shared, rng) : wrong_object(shared, rng);
}

}  // namespace hostnic::stress
