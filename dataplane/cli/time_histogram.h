// SPDX-License-Identifier: BSD-3-Clause
// Times of a report, so many that they are counted and not kept. Pure. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hostnic::cli {

// A histogram of times: four steps to each doubling, from 64 ns on.
class TimeHistogram {
 public:
  static constexpr size_t kSteps = 4 * 32;
  void add(uint64_t ns);
  uint64_t count() const { return count_; }
  uint64_t max_ns() const { return max_ns_; }
  // The lower end of the step in which the `permille`-th of the times is.
  uint64_t at_permille(uint32_t permille) const;
  uint64_t in_step(size_t step) const { return steps_[step]; }
  static uint64_t lower_ns(size_t step);

 private:
  std::array<uint64_t, kSteps> steps_{};
  uint64_t count_ = 0, max_ns_ = 0;
};

}  // namespace hostnic::cli
