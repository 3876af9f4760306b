// SPDX-License-Identifier: BSD-3-Clause
// One connection that many threads use at once, without a lock around what they post: each has a
// lane of its own, with its own slots and order.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "tests/apps/stress/objects.h"

namespace hostnic::stress {

class Crowd {
 public:
  static constexpr unsigned kLanes = 16;

  Crowd(uint16_t number, Shared& near, Shared& far, Rng& rng);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Any thread. Posts some requests in the lane, or takes completions.
  void work(unsigned lane, Rng& rng);
  // Any thread. Waits until all is complete, checks the counter, and makes new queue pairs.
  void replace(Rng& rng);

  // Of one of the crowds. [dispatch]
  static void on_completion(Id id, const ibv_wc& wc, bool ordered);
  static std::vector<Crowd*>& all();

 private:
  static constexpr uint32_t kSlots = 8, kSlotBytes = 1024;

  struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    bool signalled = true, done = true;
    uint32_t length = 0;
    uint64_t stream = 0;
  };
  struct Lane {
    std::mutex mutex;
    std::array<Request, kSlots> requests;
    uint32_t head = 0, tail = 0, since_signalled = 0;
  };

  void make(Rng& rng);
  void drain_and_unmake(Rng& rng);
  void connect();
  void post(unsigned lane, Rng& rng);
  void complete(unsigned lane, uint32_t number, const ibv_wc& wc, bool ordered);
  void verify(unsigned lane, uint32_t number, const Request& request);
  std::byte* slot(const Memory& memory, unsigned lane, uint32_t number) const;
  std::byte* counter() const { return far_memory_->data() + size_t{kLanes} * kSlots * kSlotBytes; }

  const uint16_t number_;
  Shared& near_;
  Shared& far_;
  // Shared: to post and to be completed. Exclusive: to replace the queue pairs.
  std::mutex gate_;
  std::shared_mutex alive_;
  uint16_t life_ = 0;
  std::shared_ptr<Pd> near_pd_, far_pd_;
  std::unique_ptr<Memory> near_memory_, far_memory_;
  std::unique_ptr<Mr> near_mr_, far_mr_;
  std::unique_ptr<Cq> near_cq_, far_cq_;
  ibv_qp* near_qp_ = nullptr;
  ibv_qp* far_qp_ = nullptr;
  std::array<Lane, kLanes> lanes_;
  // Fetch-and-adds of one by all lanes: each gets another value.
  std::atomic<uint64_t> added_{0};
  std::mutex seen_mutex_;
  std::vector<bool> seen_;
};

}  // namespace hostnic::stress
