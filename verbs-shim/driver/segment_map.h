// SPDX-License-Identifier: BSD-3-Clause
// The driver's end of a client segment: header, rings, statuses, and the arena's allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/object_board.h"
#include "protocol/hostif/ring.h"
#include "protocol/hostif/segment_memory.h"
#include "protocol/transport/receive_window.h"

namespace hostnic::driver {

class SegmentMap {
 public:
  // Checks the header against this build (magic, ABI version, sizes). Returns 0, or EPROTO if the
  // segment is not of this build. `memory` must outlive the map.
  int use(SegmentMemory& memory);

  SegmentHeader& header() { return *header_; }
  const SegmentHeader& header() const { return *header_; }
  QpStatus& qp_status(uint32_t index) { return statuses_[index]; }
  // Where people see what there is of objects.
  ObjectBoard& object_board() {
    return *reinterpret_cast<ObjectBoard*>(memory_->base() + header_->object_board_offset);
  }
  uint32_t max_qps() const { return max_qps_; }
  std::byte* at(uint64_t offset) { return memory_->at(offset); }

  RingEnd commands, responses, sends, urgent, metas, events;

  // Allocates a zeroed block of the arena, 64-byte aligned; returns its segment offset, 0 when the
  // arena is used up. First fit over coalesced free blocks: queue pairs come and go, but not on the
  // hot path. Memory that was never used is not touched, and pages that are free again are given
  // back.
  uint64_t allocate(uint64_t bytes);
  // Has each page of a part of the segment or the arena made, in this program's name, where the NIC
  // will write or look before this program does: the NIC makes none for clients that it does not
  // trust. Leaves the bytes as they are.
  void make_pages(uint64_t offset, uint64_t bytes);
  // The same for the status of a queue pair that is to be made.
  void make_status_pages(uint32_t index) {
    make_pages(header_->statuses_offset + uint64_t{index} * sizeof(QpStatus), sizeof(QpStatus));
  }
  void release(uint64_t offset, uint64_t bytes);

 private:
  void make_zero(uint64_t offset, uint64_t bytes, uint64_t free_begin, uint64_t free_end);

  SegmentMemory* memory_ = nullptr;
  SegmentHeader* header_ = nullptr;
  QpStatus* statuses_ = nullptr;
  uint32_t max_qps_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; holds zeros
};

// The values that a status had at one moment.
struct QpStatusSnapshot {
  uint32_t una_psn, highest_acceptable_psn, recv_sn_limit, has_credit;
  uint32_t nak, nak_psn, nak_sn, nak_count;
  uint32_t ack_count, rtt_ns, rtt_count, mark_count, spurious_count;
  uint32_t echo_psn, echo_attempt, rtt_psn, echo_count;
  uint32_t response_una_psn, local_error, local_error_psn, response_error, response_error_read;
  uint32_t events, response_epoch, response_refused, sack_end_psn, responses_ahead,
      response_mark_count;

  // What stands in the place of has_credit and of responses_ahead by MRC.
  uint32_t mrc_window_psns() const { return has_credit; }
  uint32_t mrc_losses_reported() const { return responses_ahead; }
};

// A status's bitmaps, each with whether it has a bit; a bitmap without one is not copied and means
// nothing.
struct QpStatusBits {
  PsnBits sack, responses;
  bool has_sack = false, has_responses = false;
};

// Makes a consistent copy of the status's NIC part (seqlock reader). Returns false when the NIC
// kept writing; the report is then looked at again later.
bool read_status(const QpStatus& status, QpStatusSnapshot& snapshot, QpStatusBits& bits);

}  // namespace hostnic::driver
