// SPDX-License-Identifier: BSD-3-Clause
// Long mappings are populated and unmapped in steps. The kernel holds a lock of the whole process
// for as long as such a call takes, a tenth of a second for a gigabyte: all that maps or unmaps
// memory meanwhile, for whatever client, would wait for it. Between two steps those go first who
// map little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hostnic {

// A step takes about half a millisecond.
inline constexpr uint64_t kMappingStepBytes = uint64_t{4} << 20;

// Exists while somebody maps, populates or unmaps what takes a step at most. [any thread]
class ShortMapping {
 public:
  ShortMapping();
  ~ShortMapping();
  ShortMapping(const ShortMapping&) = delete;
  ShortMapping& operator=(const ShortMapping&) = delete;
};

// Waits while there is a ShortMapping, but a few milliseconds at most: long ones go on, too.
void let_short_mappings_pass();

// Calls step(start, length_bytes) for consecutive parts of a mapping of whole pages until one
// returns false; returns whether all returned true. A part is a page where pages are larger than
// kMappingStepBytes; both are powers of two.
template <typename Step>
bool in_steps(std::byte* start, uint64_t length_bytes, uint64_t page_bytes, Step step) {
  const uint64_t most = std::max(kMappingStepBytes, page_bytes);
  for (uint64_t done = 0; done < length_bytes; done += most) {
    if (done != 0) let_short_mappings_pass();
    if (!step(start + done, std::min(most, length_bytes - done))) return false;
  }
  return true;
}

}  // namespace hostnic
