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

// `directory`: the kernel's, for tests.
HugePageCounts count_huge_pages(
    const std::string& directory = "/sys/kernel/mm/hugepages/hugepages-2048kB");

// Why a client that needs so many gets none, and what to do about it: one line.
std::string too_few_huge_pages(uint64_t needed, const HugePageCounts& counts);

}  // namespace hostnic
