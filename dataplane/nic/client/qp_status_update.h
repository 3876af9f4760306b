// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/hostif/segment.h"

namespace hostnic {

// Updates the NIC's part of a status consistently (seqlock writer; the lcore is the only one).
class QpStatusUpdate {
 public:
  explicit QpStatusUpdate(QpStatus& status)
      : status_(status), sequence_(status.sequence.load(std::memory_order_relaxed)) {
    status_.sequence.store(sequence_ + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~QpStatusUpdate() { status_.sequence.store(sequence_ + 2, std::memory_order_release); }
  QpStatusUpdate(const QpStatusUpdate&) = delete;
  QpStatusUpdate& operator=(const QpStatusUpdate&) = delete;

 private:
  QpStatus& status_;
  uint32_t sequence_;
};

}  // namespace hostnic
