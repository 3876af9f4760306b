// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/queue_pairs.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <unordered_map>

namespace hostnic::faults {
namespace {

// Held for a moment, with no call that waits; a forked child has only the thread that forked.
std::atomic_flag locked = ATOMIC_FLAG_INIT;
class Lock {
 public:
  Lock() {
    while (locked.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { locked.clear(std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

struct Table {
  std::unordered_map<const ibv_qp*, KnownQp> known;
  uint32_t created = 0;
  std::unordered_map<const ibv_srq*, uint32_t> srqs;  // their ordinals
  uint32_t created_srqs = 0;
};
// It is never destroyed, because programs destroy queue pairs while the process ends.
Table& table() {
  static auto* const made = new Table;
  return *made;
}

void unlock_in_child() { locked.clear(); }
[[gnu::constructor]] void watch_forks() { pthread_atfork(nullptr, nullptr, unlock_in_child); }

}  // namespace

void note_created(ibv_qp* qp, uint32_t max_send_wr) {
  const Lock lock;
  Table& qps = table();
  const auto [entry, added] = qps.known.try_emplace(qp);
  if (added) entry->second = {qp, ++qps.created, max_send_wr, false};
}

KnownQp forget(const ibv_qp* qp) {
  const Lock lock;
  auto& known = table().known;
  const auto found = known.find(qp);
  if (found == known.end()) return {};
  const KnownQp forgotten = found->second;
  known.erase(found);
  return forgotten;
}

void remember(const KnownQp& known) {
  const Lock lock;
  table().known[known.qp] = known;
}

KnownQp find_qp(const ibv_device* device, uint32_t qpn) {
  const Lock lock;
  for (const auto& [qp, known] : table().known)
    if (qp->qp_num == qpn && qp->context->device == device) return known;
  return {};
}

KnownQp find_qp(uint32_t ordinal) {
  const Lock lock;
  for (const auto& [qp, known] : table().known)
    if (known.ordinal == ordinal) return known;
  return {};
}

void set_failed(const ibv_qp* qp, bool failed) {
  const Lock lock;
  const auto found = table().known.find(qp);
  if (found != table().known.end()) found->second.failed = failed;
}

void note_created(const ibv_srq* srq) {
  const Lock lock;
  Table& all = table();
  const auto [entry, added] = all.srqs.try_emplace(srq);
  if (added) entry->second = ++all.created_srqs;
}

uint32_t forget(const ibv_srq* srq) {
  const Lock lock;
  const auto found = table().srqs.find(srq);
  if (found == table().srqs.end()) return 0;
  const uint32_t ordinal = found->second;
  table().srqs.erase(found);
  return ordinal;
}

void remember(const ibv_srq* srq, uint32_t ordinal) {
  const Lock lock;
  table().srqs[srq] = ordinal;
}

uint32_t srq_ordinal(const ibv_srq* srq) {
  const Lock lock;
  const auto found = table().srqs.find(srq);
  return found == table().srqs.end() ? 0 : found->second;
}

const ibv_srq* find_srq(uint32_t ordinal) {
  const Lock lock;
  for (const auto& [srq, of] : table().srqs)
    if (of == ordinal) return srq;
  return nullptr;
}

}  // namespace hostnic::faults
