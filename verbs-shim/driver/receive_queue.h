// SPDX-License-Identifier: BSD-3-Clause
// The receive side of a queue pair: receives that were posted to it, or that the NIC took for it
// from a shared queue, and their completions, in order. With the driver lock held.
#pragma once

#include <cstdint>
#include <utility>

#include "verbs-shim/driver/send_queue.h"
#include "verbs-shim/driver/srq.h"

namespace hostnic::driver {

class ReceiveQueue {
 public:
  // `queue` is the queue pair's other half, and outlives this.
  explicit ReceiveQueue(const SendQueue& queue);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // The number of slots of the receive queue and its completion ring; with a shared queue, of the
  // ring alone.
  static uint32_t entries_for(const QpInit& init);
  // The bytes in the arena for the receives' completions, or names.
  static uint64_t completion_bytes(const QpInit& init);

  // Takes a receive, in any state but RESET. Returns 0 or an errno value.
  int post(const RecvRequest& request);
  // Forgets all: the queue pair is in RESET.
  void reset();
  // How many have come back to the program, ever, and whether any is with the NIC.
  uint32_t taken() const { return taken_; }
  bool any_posted() const { return posted_ != taken_; }
  // Whether the NIC may have more to tell than at the last look: `completed` are done now.
  // Receives of a shared queue may be taken and not completed yet, so they are always looked at.
  bool may_have_news(uint32_t completed) const {
    return completed != taken_ || queue_.init.srq != nullptr;
  }
  // Gives the completions of receives up to the NIC's `completed` to `push(completion, solicited)`,
  // in order. Returns false if one of them failed.
  template <class Push>
  bool take(uint32_t completed, Push&& push) {
    if (entries_ == 0 || serial_distance(completed, posted_) < 0) return true;
    bool good = true;
    while (serial_distance(taken_, completed) > 0) {
      bool solicited = false;
      const Completion completion = take_one(solicited);
      good &= completion.status == WcStatus::kSuccess;
      push(completion, solicited);
    }
    if (queue_.init.srq != nullptr) {
      move_ring_end();
      queue_.host.srq_taken(*queue_.init.srq);
    }
    return good;
  }
  // Gives the work request numbers of receives that will not end now to `push(wr_id)`, in order.
  // Receives of a shared queue that nobody took stay there, for the other queue pairs (rule 13,
  // receives bind in order).
  template <class Push>
  void flush(Push&& push) {
    Srq* const srq = queue_.init.srq;
    if (srq == nullptr) {
      for (; taken_ != posted_; ++taken_) push(wr_ids_[taken_ & (entries_ - 1)]);
      return;
    }
    for (const uint32_t bound = bound_receives(); taken_ != bound; ++taken_) {
      const uint32_t index = name_of(taken_);
      push(srq->wr_id(index));
      srq->release(index);
    }
    queue_.host.srq_taken(*srq);
  }
  // Gives what the NIC took of the shared receive queue back to that queue: the NIC has let go of
  // the queue pair, which will be forgotten.
  void release();

 private:
  Completion take_one(bool& solicited);
  void move_ring_end();
  uint32_t bound_receives() const;
  const RecvCompletion& completion_of(uint32_t name) const;
  uint32_t name_of(uint32_t sn) const;
  void explain_failure(const Completion& completion, uint32_t name) const;

  const SendQueue& queue_;
  uint32_t entries_ = 0;
  uint32_t posted_ = 0, taken_ = 0;  // shared queue: posted_ is the ring's end
  ZeroedArray<uint64_t> wr_ids_;
};

}  // namespace hostnic::driver
