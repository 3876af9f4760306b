// SPDX-License-Identifier: BSD-3-Clause
// Moves whole pages of private anonymous memory into the mirror and back, in place, while other
// threads use them.
//
// There: the private pages wait in a "stash", an area of the same length elsewhere that keeps their
// identity (anon_vma and offset), emptied of memory. Where the kernel can, the pages are taken out
// before they are copied: a page that a device or io_uring writes into can't be, and stays. Back:
// the stash is filled and moved to where it came from, so that the kernel merges it with its old
// neighbours; a new mapping never merges, and after enough registrations the process would run out
// of areas (vm.max_map_count).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "protocol/hostif/memory_region.h"
#include "verbs-shim/memory/userfault.h"

namespace hostnic::memory {

// A slice is a huge page: writers wait for one at a time (less than a millisecond on an idle
// machine).
// Used under the registrar's mutex, with all signals blocked: a handler that touched a stopped page
// on this thread would wait for itself. Nothing here allocates or touches the pages it stopped.
class Migrator {
 public:
  struct Descriptors {
    int mirror = -1;
    int mem = -1;      // /proc/self/mem
    int pagemap = -1;  // /proc/self/pagemap
    Userfault* userfault = nullptr;
  };
  void use(const Descriptors& descriptors) { fds_ = descriptors; }
  // Reserves the addresses that slices pass through; before anything moves. Returns 0 or an errno
  // value.
  int reserve();

  struct Result {
    uint64_t end = 0;          // end of what was moved: [start, end); the rest is as it was
    uint64_t stash_delta = 0;  // add to an address of the range to get its place in the stash
    int error = 0;             // errno value of what ended the move early
  };
  // Moves [start, end), page-aligned, inside one private anonymous area with protection `prot`
  // (readable), into the mirror.
  Result move_to_mirror(uint64_t start, uint64_t end, int prot);
  // Moves a part of one slice in the same way, with a stash that has been reserved.
  int move_slice(uint64_t start, uint64_t end, uint64_t stash_delta, int prot);
  // Writes to an area that pages from `start` on leave: one that was never written has no anon_vma
  // yet. Its parts would each get their own on separate ways, and never merge again.
  static void prepare(uint64_t start, int prot);
  // Frees the pages of a part of a stash, which is not needed before pages come home.
  static void empty_stash(uint64_t stash, uint64_t length);
  // Reserves a stash for [start, end). Returns its delta, or 0 when there is no address space.
  static uint64_t reserve_stash(uint64_t start, uint64_t end);

  // Moves [start, end), which lies in the mirror with protection `prot` now, back into private
  // memory. Returns where it stopped: `end` unless the system ran out of memory or areas; what lies
  // behind stays in the mirror. The mirror's pages are left: packets under way may read them.
  uint64_t move_back(uint64_t start, uint64_t end, uint64_t stash_delta, int prot);

  // Copies [start, end) from the mirror to its stash, which gets the protection `prot`. Returns 0
  // or an errno value; then the stash is empty.
  int copy_to_stash(uint64_t start, uint64_t end, uint64_t stash_delta, int prot);
  // Copies a part of the mirror to private memory of its own, or returns null.
  void* copy_elsewhere(uint64_t offset, uint64_t length, int prot);

  // Makes zeros of the mirror's pages of the range, as far as there are any. Returns false if that
  // is not possible: some may be as they were.
  static bool clear(int mirror, uint64_t start, uint64_t end);
  // Whether the mirror is mapped at an address only because pages are being copied there. Such
  // views come and go: who looks at others believes what it sees if view_changes() has not changed
  // meanwhile. For any thread.
  bool is_own_view(uint64_t va) const {
    return va - window_.load(std::memory_order_acquire) < kSliceBytes ||
           (va >= view_start_.load(std::memory_order_acquire) &&
            va < view_end_.load(std::memory_order_acquire));
  }
  uint32_t view_changes() const { return view_changes_.load(std::memory_order_acquire); }
  // The first page that the mirror has from `start` on; kMirrorBytes: it has none.
  static uint64_t next_page(int mirror, uint64_t start);
  // Whether the mirror has any page of the range.
  static bool has_pages(int mirror, uint64_t start, uint64_t end);
  // Copies a part of the mirror to writable memory of zeros. Returns 0 or an errno value.
  static int read_mirror(int mirror, uint64_t offset, uint64_t length, void* to);
  // Frees the mirror's pages of the range, which nobody needs any more.
  static void punch(int mirror, uint64_t start, uint64_t end);
  void punch(uint64_t start, uint64_t end) { punch(fds_.mirror, start, end); }

 private:
  int move_slice_back(uint64_t start, uint64_t end, uint64_t delta, int prot);
  void* map_incoming(uint64_t start, uint64_t length) const;
  void* map_transit(uint64_t start, uint64_t length) const;
  int copy_pages(uint64_t start, uint64_t end, void* transit, unsigned char* to);
  static int put_in_place(uint64_t start, uint64_t length, void* stash, void* incoming);
  void copy_present_pages(uint64_t from, uint64_t start, uint64_t end, unsigned char* to);
  int copy_out(uint64_t offset, uint64_t length, void* to, int prot);
  void* open_view(uint64_t offset, uint64_t length);
  void close_view(void* at, uint64_t length);

  Descriptors fds_;
  // Two slices of addresses that nothing else is mapped at: what goes to the mirror is filled in
  // the first, pages leave by the second. 0: not reserved.
  std::atomic<uint64_t> window_{0};
  // Where copy_out() sees the mirror.
  std::atomic<uint64_t> view_start_{0}, view_end_{0};
  std::atomic<uint32_t> view_changes_{0};
};

}  // namespace hostnic::memory
