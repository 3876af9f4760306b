// SPDX-License-Identifier: BSD-3-Clause
// What the library must refuse by itself: queues that are full, arguments out of range, objects in
// use, and QP state changes that the verbs don't allow.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tests/apps/verify/error_bench.h"

namespace hostnic::verify {
namespace {

constexpr uint32_t kBeyond = 3;  // posted beyond what the queue holds

ErrorCase send_queue_case() {
  ErrorCase c;
  c.name = "SQ overflow: ENOMEM, bad_wr at max_send_wr";
  c.act = [](ErrorBench& b) {
    const uint32_t size = b.caps.max_send_wr;
    std::vector<ibv_send_wr> list(size + kBeyond);
    for (int turn = 0; turn < 3; ++turn) {
      for (uint32_t i = 0; i < list.size(); ++i) {
        list[i] = b.request(i, IBV_WR_RDMA_WRITE, nullptr);
        if (i > 0) list[i - 1].next = &list[i];
      }
      ibv_send_wr* bad = nullptr;
      expect_equal("ibv_post_send of too many", ENOMEM,
                   ibv_post_send(b.qp.get(), list.data(), &bad));
      expect_equal("index of bad_wr", size, bad - list.data());
      // No slot is free before its completion was polled.
      ibv_send_wr one = b.request(999, IBV_WR_RDMA_WRITE, nullptr);
      expect_equal("ibv_post_send on a full queue", ENOMEM, ibv_post_send(b.qp.get(), &one, &bad));
      expect_equal("bad_wr is the request", 0, bad - &one);
      for (uint32_t i = 0; i < size; ++i) b.expect(i, IBV_WC_SUCCESS);
    }
  };
  return c;
}

ErrorCase receive_queue_case() {
  ErrorCase c;
  c.name = "RQ overflow: ENOMEM, bad_wr at max_recv_wr";
  c.act = [](ErrorBench& b) {
    const uint32_t size = b.caps.max_recv_wr;
    std::vector<ibv_recv_wr> list(size + kBeyond);
    for (uint32_t i = 0; i < list.size(); ++i)
      list[i] = {i, i + 1 < list.size() ? &list[i + 1] : nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    expect_equal("ibv_post_recv of too many", ENOMEM, ibv_post_recv(b.qp.get(), list.data(), &bad));
    expect_equal("index of bad_wr", size, bad - list.data());
  };
  return c;
}

ErrorCase sge_case() {
  ErrorCase c;
  c.name = "too many SGEs: EINVAL, those before are posted";
  c.act = [](ErrorBench& b) {
    std::vector<ibv_sge> sges(b.caps.max_send_sge + b.caps.max_recv_sge + 1, b.sge(1));
    ibv_send_wr good = b.request(1, IBV_WR_RDMA_WRITE, sges.data());
    ibv_send_wr wide = b.request(2, IBV_WR_RDMA_WRITE, sges.data());
    wide.num_sge = static_cast<int>(b.caps.max_send_sge) + 1;
    good.next = &wide;
    ibv_send_wr* bad = nullptr;
    expect_equal("ibv_post_send", EINVAL, ibv_post_send(b.qp.get(), &good, &bad));
    expect_equal("bad_wr is the second", 1, bad == &wide);
    b.expect(1, IBV_WC_SUCCESS);
    ibv_recv_wr receive{1, nullptr, sges.data(), static_cast<int>(b.caps.max_recv_sge) + 1};
    ibv_recv_wr* bad_receive = nullptr;
    expect_equal("ibv_post_recv", EINVAL, ibv_post_recv(b.qp.get(), &receive, &bad_receive));
    b.expect_nothing();
  };
  return c;
}

ErrorCase in_use_case() {
  ErrorCase c;
  c.name = "objects in use can't be destroyed (EBUSY)";
  c.act = [](ErrorBench& b) {
    expect_equal("ibv_destroy_cq", EBUSY, ibv_destroy_cq(b.cq.get()));
    expect_equal("ibv_dealloc_pd", EBUSY, ibv_dealloc_pd(b.device.pd()));
    ibv_sge sge = b.sge(64);  // both still work
    b.post(b.request(1, IBV_WR_RDMA_WRITE, &sge));
    b.expect(1, IBV_WC_SUCCESS);
  };
  return c;
}

ErrorCase arguments_case() {
  ErrorCase c;
  c.name = "arguments out of range (EINVAL)";
  c.act = [](ErrorBench& b) {
    ibv_context* context = b.device.context();
    const ibv_device_attr& limits = b.device.attributes();
    for (int entries : {0, -1, limits.max_cqe + 1}) {
      errno = 0;
      Owned<ibv_cq> cq(ibv_create_cq(context, entries, nullptr, nullptr, 0));
      expect_equal(fmt::format("ibv_create_cq of {} entries fails", entries), 1, cq == nullptr);
      expect_equal("errno", EINVAL, errno);
    }
    Owned<ibv_cq> cq(ibv_create_cq(context, 8, nullptr, nullptr, context->num_comp_vectors));
    expect_equal("ibv_create_cq with a bad vector fails", 1, cq == nullptr);
    for (int access : {int{IBV_ACCESS_REMOTE_WRITE}, int{IBV_ACCESS_REMOTE_ATOMIC}}) {
      errno = 0;
      Owned<ibv_mr> mr(ibv_reg_mr(b.device.pd(), b.buffer(), 4096, access));
      expect_equal(fmt::format("ibv_reg_mr with access {:#x} alone fails", access), 1,
                   mr == nullptr);
      expect_equal("errno", EINVAL, errno);
    }
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = b.cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {static_cast<uint32_t>(limits.max_qp_wr) + 1, 1, 1, 1, 0};
    errno = 0;
    Owned<ibv_qp> qp(ibv_create_qp(b.device.pd(), &init));
    expect_equal("ibv_create_qp with max_qp_wr + 1 fails", 1, qp == nullptr);
    expect_equal("errno", EINVAL, errno);
  };
  return c;
}

int step(ErrorBench& b, ibv_qp_attr attributes, int mask) {
  return ibv_modify_qp(b.qp.get(), &attributes, mask);
}
int step(ErrorBench& b, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return step(b, attributes, IBV_QP_STATE);
}

// The QP connected to itself, as far as `to`.
void bring_to(ErrorBench& b, ibv_qp_state to) {
  ConnectAttributes how = b.which.how;
  how.rd_atomic = b.device.rd_atomic();
  const QpAddress self = b.device.address_of(b.qp.get(), 77);
  expect_equal("to RESET", 0, step(b, IBV_QPS_RESET));
  if (to == IBV_QPS_RESET) return;
  expect_equal("to INIT", 0, step(b, b.device.init_attributes(how), Device::kInitMask));
  if (to == IBV_QPS_INIT) return;
  expect_equal("to RTR", 0, step(b, b.device.rtr_attributes(how, self), Device::kRtrMask));
  if (to == IBV_QPS_RTR) return;
  expect_equal("to RTS", 0, step(b, b.device.rts_attributes(how, 77), Device::kRtsMask));
}

// Every pair of states with all the attributes that the step takes.
ErrorCase transitions_case() {
  ErrorCase c;
  c.name = "QP states: legal and illegal steps";
  c.connected = false;
  c.act = [](ErrorBench& b) {
    const QpAddress self = b.device.address_of(b.qp.get(), 77);
    ConnectAttributes how = b.which.how;
    how.rd_atomic = b.device.rd_atomic();
    const ibv_qp_attr init = b.device.init_attributes(how);
    const ibv_qp_attr rtr = b.device.rtr_attributes(how, self);
    const ibv_qp_attr rts = b.device.rts_attributes(how, 77);
    struct Target {
      const char* name;
      ibv_qp_attr attributes;
      int mask;
      bool from[4];  // RESET, INIT, RTR, RTS
    };
    const Target targets[] = {
        {"INIT", init, Device::kInitMask, {true, true, false, false}},
        {"RTR", rtr, Device::kRtrMask, {false, true, false, false}},
        {"RTS", rts, Device::kRtsMask, {false, false, true, false}},
    };
    for (ibv_qp_state from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      for (const Target& to : targets) {
        bring_to(b, from);
        const std::string what =
            fmt::format("from state {} to {}", static_cast<int>(from), to.name);
        const bool legal = to.from[from];
        expect_equal(what, legal ? 0 : EINVAL, step(b, to.attributes, to.mask));
        expect_equal(what + ", the state after it", legal ? to.attributes.qp_state : from,
                     state_of(b.qp.get()));
      }
      bring_to(b, from);
      expect_equal("to ERR", 0, step(b, IBV_QPS_ERR));
      b.expect_state(IBV_QPS_ERR);
      expect_equal("ERR to INIT", EINVAL, step(b, init, Device::kInitMask));
      expect_equal("ERR to RTR", EINVAL, step(b, rtr, Device::kRtrMask));
      expect_equal("ERR to RTS", EINVAL, step(b, rts, Device::kRtsMask));
    }
  };
  return c;
}

// Each attribute that a step requires, left out; and one that it does not take.
ErrorCase attributes_case() {
  ErrorCase c;
  c.name = "QP states: attributes missing or in excess";
  c.connected = false;
  c.act = [](ErrorBench& b) {
    ConnectAttributes how = b.which.how;
    const QpAddress self = b.device.address_of(b.qp.get(), 77);
    struct Step {
      ibv_qp_state from;
      ibv_qp_attr attributes;
      int mask, excess;
    };
    const Step steps[] = {
        {IBV_QPS_RESET, b.device.init_attributes(how), Device::kInitMask, IBV_QP_DEST_QPN},
        {IBV_QPS_INIT, b.device.rtr_attributes(how, self), Device::kRtrMask, IBV_QP_SQ_PSN},
        {IBV_QPS_RTR, b.device.rts_attributes(how, 77), Device::kRtsMask, IBV_QP_DEST_QPN},
    };
    for (const Step& s : steps) {
      bring_to(b, s.from);
      for (int bit = 1; bit <= s.mask; bit <<= 1) {
        if ((s.mask & bit) == 0 || bit == IBV_QP_STATE) continue;
        expect_equal(
            fmt::format("from state {} without attribute {:#x}", static_cast<int>(s.from), bit),
            EINVAL, step(b, s.attributes, s.mask & ~bit));
      }
      expect_equal(
          fmt::format("from state {} with attribute {:#x}", static_cast<int>(s.from), s.excess),
          EINVAL, step(b, s.attributes, s.mask | s.excess));
      expect_equal("the state after refusals", s.from, state_of(b.qp.get()));
      expect_equal("the step itself", 0, step(b, s.attributes, s.mask));
    }
  };
  return c;
}

// Posting before RTS is refused; a connection works again after RESET.
ErrorCase posting_case() {
  ErrorCase c;
  c.name = "posting in each state, and a QP connected anew after RESET";
  c.connected = false;
  c.act = [](ErrorBench& b) {
    ibv_sge from = b.sge(64);
    ibv_sge to = b.sge(64, 4096);
    for (ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
      bring_to(b, state);
      ibv_send_wr wr = b.request(1, IBV_WR_SEND, &from);
      ibv_send_wr* bad = nullptr;
      expect_equal(fmt::format("ibv_post_send in state {}", static_cast<int>(state)), EINVAL,
                   ibv_post_send(b.qp.get(), &wr, &bad));
      expect_equal("bad_wr", 1, bad == &wr);
    }
    for (int turn = 0; turn < 3; ++turn) {
      bring_to(b, IBV_QPS_RTS);
      b.post_receive(10, &to);
      std::memset(b.buffer(), 0x40 + turn, 64);
      b.post(b.request(11, IBV_WR_SEND, &from));
      uint64_t seen = 0;  // the two completions may come in either order
      for (int i = 0; i < 2; ++i) {
        ibv_wc wc{};
        while (ibv_poll_cq(b.cq.get(), 1, &wc) == 0) {
        }
        expect_equal("status", IBV_WC_SUCCESS, wc.status);
        seen += wc.wr_id;
      }
      expect_equal("sum of wr_ids", 21, static_cast<int64_t>(seen));
      expect_equal("bytes sent to itself", 0, std::memcmp(b.buffer(), b.buffer() + 4096, 64));
      b.post_receive(12, &to);  // dropped by RESET without a completion
    }
    bring_to(b, IBV_QPS_RESET);
    b.expect_nothing();
  };
  return c;
}

}  // namespace

std::vector<ErrorCase> queue_cases() {
  std::vector<ErrorCase> cases;
  cases.push_back(send_queue_case());
  cases.push_back(receive_queue_case());
  cases.push_back(sge_case());
  cases.push_back(in_use_case());
  cases.push_back(arguments_case());
  return cases;
}

std::vector<ErrorCase> state_cases() {
  std::vector<ErrorCase> cases;
  cases.push_back(transitions_case());
  cases.push_back(attributes_case());
  cases.push_back(posting_case());
  return cases;
}

}  // namespace hostnic::verify
