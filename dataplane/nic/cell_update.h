#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/hostif/segment.h"

namespace hostnic {

// Consistent update of a cell's NIC part (seqlock writer; the lcore is the only one).
class CellUpdate {
 public:
  explicit CellUpdate(QpCell& cell)
      : cell_(cell), sequence_(cell.sequence.load(std::memory_order_relaxed)) {
    cell_.sequence.store(sequence_ + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~CellUpdate() { cell_.sequence.store(sequence_ + 2, std::memory_order_release); }
  CellUpdate(const CellUpdate&) = delete;
  CellUpdate& operator=(const CellUpdate&) = delete;

 private:
  QpCell& cell_;
  uint32_t sequence_;
};

}  // namespace hostnic
