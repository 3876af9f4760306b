// SPDX-License-Identifier: BSD-3-Clause
// How many huge pages of 2 MB the machine has.
#pragma once

#include <cstdint>
#include <string>

namespace hostnic {

struct HugePageCounts {
  uint64_t total = 0;
  uint64_t available = 0;  // neither used nor promised to somebody
};

// Counts huge pages; `directory` is the kernel's, or a test's.
HugePageCounts count_huge_pages(
    const std::string& directory = "/sys/kernel/mm/hugepages/hugepages-2048kB");

// Says in one line why a client that needs so many huge pages gets none, and what to do about it.
std::string too_few_huge_pages(uint64_t needed, const HugePageCounts& counts);

}  // namespace hostnic
