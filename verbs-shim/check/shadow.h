// SPDX-License-Identifier: BSD-3-Clause
// The shadow: a program's objects, queues and what is posted to them, as its calls have told.
//
// Locks, in this order: a queue's post_lock (held while its device takes requests), its lock, the
// shadow's lock. No thread holds two queues'. Shadows of queues are used again, and never freed:
// somebody may be looking.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "verbs-shim/check/spin_lock.h"

namespace hostnic::check {

inline constexpr uint32_t kKeptSges = 4;  // of a request; further ones are looked at when posted

struct QpShadow;

struct CqShadow {
  const ibv_cq* cq = nullptr;
  std::atomic<int64_t> may_come{0};  // completions that are due, or wait
  std::atomic<int> entries{0};
  std::atomic<int64_t> unacknowledged{0};
  // The queue pair that completes here; null: several do.
  std::atomic<QpShadow*> only_qp{nullptr};
  std::atomic<uint32_t> qps{0};
};

// What a request or receive has of memory.
struct Pieces {
  uint32_t count = 0;  // kept
  ibv_sge sge[kKeptSges];
};

struct SendEntry {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool is_signalled = false;
  bool is_inline = false;
  bool is_readable = false;  // when posted
  bool is_compared = false;  // at its completion, by `digest`
  bool is_full = false;
  uint64_t bytes = 0;
  uint64_t digest = 0;
  uint64_t number = 0;   // of the queue's requests
  uint64_t order = 0;    // among all of the process, by when they were posted
  uint64_t inbound = 0;  // how many pieces of memory had been written by then
  uint64_t heard = 0;    // how many messages its queue pair had received by then
  uint64_t remote = 0;
  uint32_t rkey = 0;
  const void* posted_at = nullptr;
  Pieces pieces;
};

struct RecvEntry {
  uint64_t wr_id = 0;
  bool is_taken = false;  // of a shared queue: has completed out of turn
  const void* posted_at = nullptr;
  Pieces pieces;
};

// A queue that grows.
template <typename Entry>
class Ring {
 public:
  size_t size() const { return size_; }
  Entry& operator[](size_t i) { return entries_[(first_ + i) & (entries_.size() - 1)]; }
  void push(const Entry& entry) {
    if (size_ == entries_.size()) grow();
    (*this)[size_++] = entry;
  }
  void pop_front() {
    ++first_;
    --size_;
  }
  void pop_back() { --size_; }
  void clear() { first_ = size_ = 0; }

 private:
  void grow() {
    std::vector<Entry> larger(entries_.empty() ? 16 : 2 * entries_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    entries_.swap(larger);
    first_ = 0;
  }
  std::vector<Entry> entries_;
  size_t first_ = 0, size_ = 0;
};

struct Region {
  const ibv_mr* mr = nullptr;
  const ibv_context* context = nullptr;
  const ibv_pd* pd = nullptr;  // not a parent domain
  uint32_t lkey = 0;
  uint64_t base = 0, length = 0;  // as SGEs have it
  uint64_t to_memory = 0;         // what is added to an address of an SGE
  bool has_memory = false;        // that the program can read
  unsigned access = 0;
  const void* made_at = nullptr;
  const void* gone_at = nullptr;  // it was deregistered there
};

struct SrqShadow {
  SpinLock post_lock, lock;
  const ibv_srq* srq = nullptr;
  const ibv_pd* pd = nullptr;
  const ibv_context* context = nullptr;
  Ring<RecvEntry> receives;
};

struct QpShadow {
  SpinLock post_lock, receive_lock, lock;  // receive_lock is the post_lock of receives
  const ibv_qp* qp = nullptr;              // null: it is no more
  const ibv_context* context = nullptr;
  const ibv_pd* pd = nullptr;
  uint32_t qpn = 0;
  ibv_qp_type type = IBV_QPT_RC;
  bool is_infiniband = true;  // and not iWARP, whose states are others' business
  bool signals_all = false;
  ibv_qp_cap caps{};
  CqShadow* send_cq = nullptr;
  CqShadow* recv_cq = nullptr;
  SrqShadow* srq = nullptr;
  const void* made_at = nullptr;

  std::atomic<int> state{IBV_QPS_RESET};
  int max_rd_atomic = -1, max_dest_rd_atomic = -1;  // -1: not known
  uint32_t dest_qpn = 0;
  ibv_ah_attr path{};
  bool has_path = false;

  Ring<SendEntry> sends;
  Ring<RecvEntry> receives;
  uint64_t sent = 0, received = 0;  // posted since it was made
  uint64_t reads = 0, most_reads = 0;
  std::atomic<uint64_t> heard{0};  // messages received, as was polled
  uint64_t last_completed = 0;     // the order of the request whose completion was polled last
  bool has_lost_track = false;     // its queues were not as its completions said
  bool has_failed = false;         // a completion with error was polled
  const void* failed_at = nullptr;
  uint32_t sent_after_failure = 0;

  // A thread is between ibv_wr_start and ibv_wr_complete.
  std::atomic<int> builder{0};  // its tid
  const void* built_at = nullptr;
  std::vector<SendEntry> building;

  // The region that was looked for last.
  Region last_region;
  uint64_t last_region_age = 0;
};

// What can be destroyed too early.
enum class ObjectKind : uint8_t { kContext, kPd, kChannel, kCq, kSrq, kQp, kAh, kMr };
struct Object {
  ObjectKind kind = ObjectKind::kContext;
  const ibv_context* context = nullptr;
  const void* made_at = nullptr;
  uint32_t users = 0;
  std::vector<const void*> uses;
  uint32_t events = 0;  // asynchronous ones that are not acknowledged
};

struct DomainShadow {
  const ibv_pd* of = nullptr;  // of a parent domain
  bool peers_write = false;    // some queue pair lets its peer write
};

struct KeyPair {
  const void* context = nullptr;
  uint32_t number = 0;
  bool operator==(const KeyPair&) const = default;
};
struct KeyHash {
  size_t operator()(const KeyPair& key) const {
    return (reinterpret_cast<uintptr_t>(key.context) ^ key.number) * 0x9e3779b97f4a7c15 >> 16;
  }
};

struct Shadow {
  SpinLock lock;
  std::atomic<uint64_t> age{1};  // goes up when objects come or go
  std::unordered_map<const void*, Object> objects;
  std::unordered_map<const ibv_pd*, DomainShadow> domains;
  std::unordered_map<KeyPair, Region, KeyHash> regions;
  std::unordered_map<KeyPair, QpShadow*, KeyHash> qps;
  std::unordered_map<const ibv_cq*, CqShadow*> cqs;
  std::unordered_map<const ibv_srq*, SrqShadow*> srqs;
  std::vector<QpShadow*> free_qps;
  std::vector<SrqShadow*> free_srqs;
  std::vector<CqShadow*> free_cqs;  // threads that poll may still look at one that is gone
  uint64_t live_regions = 0;
  std::atomic<uint64_t> posted{0};  // requests of all queue pairs
  bool forks_are_safe = false;
};
Shadow& shadow();

// These take the shadow's lock.
QpShadow* find_qp(const ibv_context* context, uint32_t qpn);
CqShadow* find_cq(const ibv_cq* cq);
SrqShadow* find_srq(const ibv_srq* srq);
std::vector<QpShadow*> all_qps();
bool peers_write(const ibv_pd* pd);
// The domain itself, of one that may be a parent domain. Under the lock.
const ibv_pd* plain_domain(const ibv_pd* pd);

// Forgets what is posted to a queue pair, under its lock.
void forget_posted(QpShadow& qp);

const char* name_of(ObjectKind kind);
const char* name_of(ibv_qp_state state);
const char* name_of(ibv_wr_opcode opcode);

}  // namespace hostnic::check
