// SPDX-License-Identifier: BSD-3-Clause
// Which pages a file of tmpfs has, those that are in swap included.
#pragma once

#include <cstdint>

namespace hostnic {

// The end of the pages that `fd` has without a hole from `start` on, the first byte of one of 4
// KiB: at most `end`, and `start` if there is no page or the file can't be asked. It costs time by
// the pages in the range where it has all of them (cachestat, Linux 6.5), else by those up to the
// first hole, wherever that is. hugetlbfs reports no holes. [any thread; no memory is allocated]
uint64_t end_of_pages(int fd, uint64_t start, uint64_t end);

}  // namespace hostnic
