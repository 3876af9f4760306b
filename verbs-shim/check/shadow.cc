// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/check/shadow.h"

#include <pthread.h>
#include <stdlib.h>

#include <cstddef>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/memory.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {
namespace {

// Neither is ever destroyed, because programs call verbs while the process ends.
Shadow* the_shadow = nullptr;

// The queue pair that a thread has looked for last.
struct LastQp {
  const ibv_context* context = nullptr;
  uint32_t qpn = 0;
  uint64_t age = 0;
  QpShadow* qp = nullptr;
};
[[gnu::tls_model("initial-exec")]] thread_local LastQp last_qp;

// Objects of the parent are none of the child's, and locks may be held by threads that are no more:
// the old shadow is left as it is.
void begin_in_child() {
  if (!is_on()) return;
  const bool safe = the_shadow != nullptr && the_shadow->forks_are_safe;
  the_shadow = new Shadow;
  the_shadow->forks_are_safe = safe;
  last_qp = {};
  forget_tid();
  begin_memory_in_child();
  begin_reports_in_child();
}

void before_fork() {
  if (!is_on()) return;
  Shadow& all = shadow();
  const void* registered_at = nullptr;
  bool is_mistake = false;
  {
    const SpinGuard guard(all.lock);
    is_mistake = all.live_regions > 0 && !all.forks_are_safe;
    for (const auto& [key, region] : all.regions)
      if (region.gone_at == nullptr) registered_at = region.made_at;
  }
  if (!is_mistake) return;
  enters("fork", nullptr);
  report(CheckKind::kFork, {"registered", registered_at},
         "fork with memory registered and without ibv_fork_init: before Linux 5.12 the parent's "
         "next write to such a page goes where the device does not look");
}

[[gnu::constructor]] void watch_forks() {
  if (getenv(kCheckBoardVariable) == nullptr) return;
  the_shadow = new Shadow;
  the_shadow->forks_are_safe =
      getenv("RDMAV_FORK_SAFE") != nullptr || getenv("IBV_FORK_SAFE") != nullptr;
  pthread_atfork(before_fork, nullptr, begin_in_child);
}

}  // namespace

Shadow& shadow() { return *the_shadow; }

QpShadow* find_qp(const ibv_context* context, uint32_t qpn) {
  Shadow& all = shadow();
  const uint64_t age = all.age.load(std::memory_order_acquire);
  if (last_qp.age == age && last_qp.qpn == qpn && last_qp.context == context) return last_qp.qp;
  const SpinGuard guard(all.lock);
  const auto found = all.qps.find({context, qpn});
  if (found == all.qps.end()) return nullptr;
  last_qp = {context, qpn, age, found->second};
  return found->second;
}

CqShadow* find_cq(const ibv_cq* cq) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  const auto found = all.cqs.find(cq);
  return found == all.cqs.end() ? nullptr : found->second;
}

SrqShadow* find_srq(const ibv_srq* srq) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  const auto found = all.srqs.find(srq);
  return found == all.srqs.end() ? nullptr : found->second;
}

std::vector<QpShadow*> all_qps() {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  std::vector<QpShadow*> found;
  found.reserve(all.qps.size());
  for (const auto& [key, qp] : all.qps) found.push_back(qp);
  return found;
}

bool peers_write(const ibv_pd* pd) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  const auto found = all.domains.find(pd);
  return found == all.domains.end() || found->second.peers_write;
}

const ibv_pd* plain_domain(const ibv_pd* pd) {
  const auto found = shadow().domains.find(pd);
  return found != shadow().domains.end() && found->second.of != nullptr ? found->second.of : pd;
}

void forget_posted(QpShadow& qp) {
  int64_t signalled = 0;
  for (size_t i = 0; i < qp.sends.size(); ++i) signalled += qp.sends[i].is_signalled ? 1 : 0;
  if (qp.send_cq != nullptr) qp.send_cq->may_come.fetch_sub(signalled);
  if (qp.recv_cq != nullptr)
    qp.recv_cq->may_come.fetch_sub(static_cast<int64_t>(qp.receives.size()));
  qp.sends.clear();
  qp.receives.clear();
  qp.reads = 0;
}

const char* name_of(ObjectKind kind) {
  constexpr const char* kNames[] = {
      "device",           "protection domain",    "completion channel",
      "completion queue", "shared receive queue", "queue pair",
      "address handle",   "memory region"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state >= IBV_QPS_RESET && state <= IBV_QPS_ERR ? kNames[state] : "an unknown state";
}

const char* name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WRITE_WITH_IMM";
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "SEND_WITH_IMM";
    case IBV_WR_SEND_WITH_INV:
      return "SEND_WITH_INV";
    case IBV_WR_RDMA_READ:
      return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "COMPARE_AND_SWAP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FETCH_AND_ADD";
    default:
      return "request";
  }
}

}  // namespace hostnic::check
