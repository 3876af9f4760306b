// SPDX-License-Identifier: BSD-3-Clause
// Which requests wait for READs and atomics before them. Adapters execute requests in the order of
// their queue, and programs rely on it, whatever InfiniBand leaves open without a fence. Here
// answers are read, and read again where they are lost, long after the peer has seen the request:
// so what may change them begins when they have come (docs/transport.md rule 18).
#pragma once

#include <array>
#include <cstdint>

#include "protocol/hostif/descriptors.h"
#include "verbs-shim/driver/send_queue.h"

namespace hostnic::driver {

// Whether the answer to `earlier`, a READ or an atomic, might differ if `later`, which was posted
// behind it, executed first. The receiver of a message may change any memory because of it. Memory
// may have several keys, and addresses of its own under each: those of one key are comparable, and
// those of keys that say so.
inline bool may_change_answer(const Wqe& later, const Wqe& earlier) {
  // Atomics execute once, in order, as READs do behind them.
  if (later.op == SendOp::kRead) return false;
  if (is_atomic(later.op) && is_atomic(earlier.op)) return false;
  if (consumes_receive(later.op)) return true;
  if (later.length_bytes == 0) return false;
  const bool comparable = later.rkey == earlier.rkey ||
                          (has_sole_addresses(later.rkey) && has_sole_addresses(earlier.rkey));
  if (!comparable) return true;
  return later.remote_va - earlier.remote_va < earlier.length_bytes ||
         earlier.remote_va - later.remote_va < later.length_bytes;
}

// The places in the send queue of the READs and atomics that have begun and are not complete, by
// their numbers. Not for several threads.
class OutstandingReads {
 public:
  void begin(uint32_t read_number, uint32_t index) {
    indices_[read_number % kReadDestinationEntries] = index;
  }
  // Whether `later`, which has not begun, must wait for one of the `count` READs and atomics with
  // numbers before `next_number`. `answered` says whether one that reads something is, and so all
  // before it; `counts`, whether what executes before one could change its answer at all.
  template <class Answered, class Counts>
  bool hold_back(const SendQueue& queue, const Wqe& later, uint32_t next_number, uint32_t count,
                 const Answered& answered, const Counts& counts) const {
    for (uint32_t i = 1; i <= count; ++i) {
      const Wqe& earlier = queue.wqe(indices_[(next_number - i) % kReadDestinationEntries]);
      if (earlier.length_bytes == 0)
        continue;  // acknowledged, perhaps, and those before it not read
      if (answered(earlier)) return false;
      if (counts(earlier) && may_change_answer(later, earlier)) return true;
    }
    return false;
  }

 private:
  std::array<uint32_t, kReadDestinationEntries> indices_{};
};

}  // namespace hostnic::driver
