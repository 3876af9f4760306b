// SPDX-License-Identifier: BSD-3-Clause
// UFFDIO_MOVE (Linux 6.8): private pages change place by their page tables.
#pragma once

#include <cstdint>

namespace hostnic::memory {

// Whether an entry of /proc/self/pagemap says that the page has content: bit 63 page present, bit
// 62 swapped out, or being moved by the kernel.
constexpr bool has_content(uint64_t pagemap_entry) { return pagemap_entry >> 62 != 0; }

class PageMover {
 public:
  // `userfault` is the one to which the places belong that pages move to; `pagemap` is
  // /proc/self/pagemap.
  PageMover(int userfault, int pagemap) : userfault_(userfault), pagemap_(pagemap) {}

  // Moves the private pages of [from, from + length_bytes), as far as there are any, to a place
  // where nobody else makes pages. Returns 0 and how far it has got, which is more than nothing;
  // or an errno value, and nothing has moved: EBUSY when the first page is in the hands of a
  // device, or of a forked child; EAGAIN when it is to be tried again.
  int move_some(uint64_t to, uint64_t from, uint64_t length_bytes, uint64_t& moved_bytes) const;

 private:
  uint64_t first_content(uint64_t start, uint64_t end) const;

  int userfault_, pagemap_;
};

}  // namespace hostnic::memory
