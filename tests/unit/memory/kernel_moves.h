// SPDX-License-Identifier: BSD-3-Clause
// What tests have the kernel do when it moves pages (UFFDIO_MOVE); page_mover_test.cc leads the
// calls there.
#pragma once

#include <atomic>
#include <cstdint>

namespace hostnic::memory_testing {

struct KernelMoves {
  // So many moves of several pages lose count: as in Linux 6.18 all pages move, and so many of them
  // are told of.
  std::atomic<int> miscounts{0};
  std::atomic<uint64_t> told_bytes{0};
  // So many moves are refused.
  std::atomic<int> refusals{0};
  std::atomic<int> refusal{0};  // errno
};
inline KernelMoves kernel_moves;

}  // namespace hostnic::memory_testing
