// SPDX-License-Identifier: BSD-3-Clause
// How late filling brings the pages of a slice to their place: out of the stash, through two slices
// of addresses of its own, and into the mirror. No page is dropped: it gets there, goes back, or is
// known to be lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/aside_table.h"

namespace hostnic::memory {

// Gives way while mappings change, longer from some number of tries on.
void let_others_run(int tries);

// Used by the thread of late filling only, but for is_own_view().
class PagePassage {
 public:
  // Called when pages that lay aside are nowhere any more: the program has unmapped their addresses
  // there. Its own accesses raise SIGBUS; who has a key is to be refused.
  using Lost = void (*)(uint64_t start, uint64_t end);
  // Reads the events of the userfaultfd, for which the kernel may keep requests waiting.
  struct Reader {
    void (*read)(void* self) = nullptr;
    void* self = nullptr;
  };
  // These are in the thread's own table: its full userfaultfd, the mirror, /proc/self/pagemap.
  struct Descriptors {
    int userfault = -1, mirror = -1, pagemap = -1;
  };

  // Reserves the addresses that pages pass through, once. Returns 0 or an errno value.
  int reserve();
  void open(const Descriptors& own, const Reader& reader, Lost lost) {
    own_ = own;
    reader_ = reader;
    lost_ = lost;
  }
  // Whether the mirror is mapped at an address only because the thread copies there. For any
  // thread.
  bool is_own_view(uint64_t va) const {
    return va - window_.load(std::memory_order_acquire) < 2 * kSliceBytes;
  }

  // Brings a slice to its place, which the kernel does only as long as the place is what we put
  // there: what the program maps there otherwise is not touched. With `takes_out`, pages are taken
  // out of the stash before: a device may have one in its hands since before it moved, and still
  // write to it. Returns 0, or an errno value: then a part of the slice is still aside.
  int bring(uint64_t start, uint64_t stash_delta, bool takes_out);
  // Makes zeros of what is on its way in [start, end).
  void drop(uint64_t start, uint64_t end);

 private:
  int bring_pages(uint64_t start, uint64_t stash_delta, bool takes_out);
  bool map_transit() const;
  void unmap_transit() const;
  int take_out(uint64_t to, uint64_t from, uint64_t& length) const;
  int put_in(uint64_t at, uint64_t source, uint64_t length, uint64_t& done) const;
  int copy_into_file(uint64_t page, uint64_t source) const;
  void put_back(uint64_t stash, uint64_t transit, uint64_t length) const;
  bool is_lost(uint64_t page, uint64_t source) const;
  void lose(uint64_t page) const;

  Descriptors own_;
  Reader reader_;
  Lost lost_ = nullptr;
  uint64_t copying_ = 0;  // the slice whose pages may have left the stash; 0: none
  std::atomic<uint64_t> window_{0};
};

}  // namespace hostnic::memory
