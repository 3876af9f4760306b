// SPDX-License-Identifier: BSD-3-Clause
// What tests have the kernel do when it moves pages (UFFDIO_MOVE), and when it puts pages in;
// page_mover_test.cc leads the calls there.
#pragma once

#include <atomic>
#include <cstdint>

namespace hostnic::memory_testing {

struct KernelMoves {
  // The kernel loses count in so many moves of several pages: as in Linux 6.18 all pages move, and
  // told_bytes of them are told of.
  std::atomic<int> miscounts{0};
  std::atomic<uint64_t> told_bytes{0};
  // The kernel refuses so many moves.
  std::atomic<int> refusals{0};
  std::atomic<int> refusal{0};  // errno
  // As above, of UFFDIO_COPY and of UFFDIO_ZEROPAGE.
  std::atomic<int> copy_refusals{0}, copy_refusal{0};
  std::atomic<int> zero_refusals{0}, zero_refusal{0};
};
inline KernelMoves kernel_moves;

}  // namespace hostnic::memory_testing
