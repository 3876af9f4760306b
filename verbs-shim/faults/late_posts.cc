// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/late_posts.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/queue_pairs.h"
#include "verbs-shim/faults/quiet_thread.h"

namespace hostnic::faults {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// A device whose send queue is full is asked again after this time.
constexpr uint64_t kAgainNs = 200'000;

// A request with all that it points to, which the program may have used again.
struct LatePost {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_data;
  uint64_t due_ns = 0;
};

struct LateQueuePair {
  ibv_qp* qp = nullptr;
  std::deque<LatePost> posts;
};

// What threads share. Never destroyed, since programs post while they end; a forked child has
// another one, because the thread that had the mutex may be no more.
struct Shared {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed;
  bool has_thread = false;
  std::unordered_map<const ibv_qp*, LateQueuePair> queue_pairs;

  Shared() {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
  }
};
std::atomic<Shared*> the_shared{nullptr};
Shared& shared() { return *the_shared.load(std::memory_order_acquire); }
void renew() { the_shared.store(new Shared, std::memory_order_release); }
[[gnu::constructor]] void prepare() {
  renew();
  pthread_atfork(nullptr, nullptr, renew);
}

class Lock {
 public:
  explicit Lock(Shared& of) : of_(of) { pthread_mutex_lock(&of_.mutex); }
  ~Lock() { pthread_mutex_unlock(&of_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Shared& of_;
};

PostSend post_to_device = nullptr;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

int post_one(ibv_qp* qp, ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  return post_to_device(qp, &wr, &bad);
}

LatePost copy_of(const ibv_send_wr& wr) {
  LatePost post;
  post.wr = wr;
  post.wr.next = nullptr;
  if (wr.sg_list == nullptr || wr.num_sge <= 0) return post;
  post.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return post;
  for (const ibv_sge& sge : post.sges) {
    const auto* from = reinterpret_cast<const std::byte*>(sge.addr);  // NOLINT
    post.inline_data.insert(post.inline_data.end(), from, from + sge.length);
  }
  return post;
}

// Points at the copies, wherever they are by now.
int post(ibv_qp* qp, LatePost& late) {
  late.wr.sg_list = late.sges.empty() ? nullptr : late.sges.data();
  uint64_t offset = 0;
  for (ibv_sge& sge : late.sges) {
    if (late.inline_data.empty()) break;
    sge.addr = reinterpret_cast<uint64_t>(late.inline_data.data()) + offset;
    offset += sge.length;
  }
  return post_one(qp, late.wr);
}

// A refusal that the program should have got from its call, and can't get any more.
void say_refused(const ibv_qp& qp, const LatePost& late, int error) {
  char line[200];
  const int size = snprintf(line, sizeof(line),
                            "hostnic fault[%d]: a late request (wr_id 0x%lx, QP 0x%x) is refused "
                            "by its device: %s\n",
                            static_cast<int>(getpid()), static_cast<unsigned long>(late.wr.wr_id),
                            qp.qp_num, strerrordesc_np(error == -1 ? errno : error));
  if (size > 0) syscall(SYS_write, STDERR_FILENO, line, static_cast<size_t>(size));
}

// Posts what is due by then. Returns when the next one is; UINT64_MAX: there is none.
uint64_t post_due(LateQueuePair& late, uint64_t now) {
  while (!late.posts.empty() && late.posts.front().due_ns <= now) {
    const int result = post(late.qp, late.posts.front());
    if (result == ENOMEM) return now_ns() + kAgainNs;
    if (result != 0) say_refused(*late.qp, late.posts.front(), result);
    late.posts.pop_front();
  }
  return late.posts.empty() ? UINT64_MAX : late.posts.front().due_ns;
}

void* run(void*) {
  Shared& of = shared();
  const Lock lock(of);
  while (true) {
    uint64_t next_ns = UINT64_MAX;
    const uint64_t now = now_ns();
    for (auto& [qp, late] : of.queue_pairs) next_ns = std::min(next_ns, post_due(late, now));
    if (next_ns == UINT64_MAX) {
      pthread_cond_wait(&of.changed, &of.mutex);
    } else {
      const timespec until{static_cast<time_t>(next_ns / kSecondNs),
                           static_cast<long>(next_ns % kSecondNs)};
      pthread_cond_timedwait(&of.changed, &of.mutex, &until);
    }
  }
  return nullptr;
}

// Starts the thread if this process has none. False: it can't be.
bool start_thread(Shared& of) {
  if (of.has_thread) return true;
  pthread_t thread{};
  of.has_thread = start_quiet_thread(thread, run, nullptr);
  if (of.has_thread) pthread_detach(thread);
  return of.has_thread;
}

// The opcode that its completion will have; -1: another one.
int completed_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return IBV_WC_SEND;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return -1;
  }
}

uint64_t delay_of(const ibv_qp& qp, const KnownQp& known, const ibv_send_wr& wr) {
  FaultOccasion occasion;
  occasion.subject = Subject::kPost;
  occasion.device = qp.context->device->name;
  occasion.qpn = qp.qp_num;
  occasion.qp_ordinal = known.ordinal;
  occasion.opcode = completed_opcode(wr.opcode);
  for (int i = 0; wr.sg_list != nullptr && i < wr.num_sge; ++i)
    occasion.size += wr.sg_list[i].length;
  return decide(occasion).delay_ns;
}

}  // namespace

void set_post(PostSend post) { post_to_device = post; }

bool holds_posts() { return has_rules_of(Subject::kPost); }

int post_late(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const KnownQp known = find_qp(qp->context->device, qp->qp_num);
  // An address handle may be destroyed as soon as the call has returned.
  if (qp->qp_type == IBV_QPT_UD || known.qp == nullptr) return post_to_device(qp, first, bad);
  Shared& of = shared();
  const Lock lock(of);
  LateQueuePair& late = of.queue_pairs[qp];
  late.qp = qp;
  for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
    const uint64_t delay_ns = delay_of(*qp, known, *wr);
    int result = 0;
    if ((delay_ns == 0 && late.posts.empty()) || !start_thread(of)) {
      ibv_send_wr alone = *wr;
      alone.next = nullptr;
      result = post_one(qp, alone);
    } else if (late.posts.size() >= known.max_send_wr) {
      result = ENOMEM;
    } else {
      late.posts.push_back(copy_of(*wr));
      late.posts.back().due_ns = now_ns() + delay_ns;
      pthread_cond_signal(&of.changed);
    }
    if (result == 0) continue;
    if (bad != nullptr) *bad = wr;
    return result;
  }
  return 0;
}

void hand_over(ibv_qp* qp) {
  Shared& of = shared();
  const Lock lock(of);
  const auto found = of.queue_pairs.find(qp);
  if (found != of.queue_pairs.end()) post_due(found->second, UINT64_MAX);
}

void drop_posts(const ibv_qp* qp) {
  Shared& of = shared();
  const Lock lock(of);
  of.queue_pairs.erase(qp);
}

}  // namespace hostnic::faults
