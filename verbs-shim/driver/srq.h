// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queue, the driver's half: a table of receives and the queue of those that no
// message has taken. The NIC takes them, queue pairs give them back as messages complete or are
// flushed (docs/transport.md rule 13). All members want the driver lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocol/expected.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::driver {

class Srq {
 public:
  // Returns EINVAL for sizes beyond the limits, ENOMEM when the arena is used up.
  static Expected<std::unique_ptr<Srq>, int> create(SegmentMap& segment, const SrqInit& init);
  ~Srq();
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  uint32_t entries() const { return static_cast<uint32_t>(wr_ids_.size()); }

  // Returns 0, EINVAL (too many SGEs), ENOMEM (full).
  int post(const RecvRequest& request);
  uint64_t wr_id(uint32_t index) const { return wr_ids_[index & (entries() - 1)]; }
  // Frees the slot of a receive that the NIC took.
  void release(uint32_t index);

  // Arms the limit event; 0 disarms. limit_reached() says whether the event is due at once.
  void arm(uint32_t limit);
  uint32_t limit() const { return limit_; }
  // Whether fewer receives wait than the limit says: true once per arming.
  bool limit_reached();

  const SrqInit init;
  const uint64_t slots_offset, queue_offset;
  // The offset of its slots' completions.
  uint64_t completions_offset() const { return queue_offset + srq_completions_offset(entries()); }
  // The number of queue pairs that use it, for EBUSY.
  uint32_t users = 0;

 private:
  Srq(SegmentMap& segment, const SrqInit& init, uint64_t slots, uint64_t queue);
  SrqHeader& header() { return *reinterpret_cast<SrqHeader*>(segment_.at(queue_offset)); }

  SegmentMap& segment_;
  std::vector<uint64_t> wr_ids_;  // indexed by slot
  std::vector<uint32_t> free_;    // slots that hold no receive
  uint32_t posted_ = 0;
  uint32_t limit_ = 0;
};

}  // namespace hostnic::driver
