// SPDX-License-Identifier: BSD-3-Clause
// Survival of SIGBUS on client memory. A client may truncate a file that hostnicd maps, or punch a
// hole into it, for which no page is left (huge pages, a full tmpfs) or none is made
// (hole_guard.h); the next access by an lcore then raises SIGBUS. The guard puts anonymous memory
// there, sets the range's mark and lets the lcore go on. A SIGBUS anywhere else is our own bug and
// aborts.
//
// What the lcore has copied then is not what the client registered, and must not count: until
// forget_fault(), which ends its NIC's turn, it neither takes nor sends what it copies. Both come
// again, and by then whoever looks at the mark has put the keys out of use, or dropped the client.
// So it is with bytes that it copies from or to where such memory was met before, by this thread or
// another: packets under way may refer to it, and a packet that was held has found its key already.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hostnic {

// Installs the process-wide handler. Called once, before lcores start. Returns false with errno on
// failure.
bool install_sigbus_guard();

// Declares [start, start + length_bytes) to be client memory in pages of `page_bytes`. `mark`,
// which is set when memory is put there, must stay valid until the range is removed. Returns false
// if the table is full, which has room for kClientMappings of registered memory and for the
// segments of 4,096 clients. [any thread]
inline constexpr size_t kClientMappings = 16384;
inline constexpr size_t kSegmentRanges = 3 * 4096;
inline constexpr size_t kSigbusRanges = kClientMappings + kSegmentRanges;
bool add_sigbus_range(std::byte* start, uint64_t length_bytes, uint64_t page_bytes,
                      std::atomic<bool>* mark);
// Removes a range that nobody accesses any more, before it is unmapped. [any thread]
void remove_sigbus_range(std::byte* start);

// Whether anything of the client's may have been replaced in [start, start + length_bytes): parts
// that lie between two such count as well. [any thread]
bool is_replaced(const std::byte* start, uint64_t length_bytes);

// Counts what has been put anywhere; whoever sees a number sees the marks as well. [any thread]
inline constinit std::atomic<uint64_t> replacements{0};

namespace sigbus_detail {
inline constinit thread_local std::atomic<bool> has_faulted{false};
// All that was put anywhere lies in between; `highest` is 0 where nothing was.
inline constinit std::atomic<uintptr_t> lowest{UINTPTR_MAX}, highest{0};
[[gnu::cold, gnu::noinline]] void look_at_copy(const std::byte* at, uint64_t length_bytes);
}  // namespace sigbus_detail
// Whether this thread has met such memory since forget_fault().
inline bool has_faulted() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return sigbus_detail::has_faulted.load(std::memory_order_relaxed);
}
inline void forget_fault() { sigbus_detail::has_faulted.store(false, std::memory_order_relaxed); }
// Looks whether a copy from, or to, [at, at + length_bytes) counts: has_faulted() says so then.
inline void look_at_copy(const std::byte* at, uint64_t length_bytes) {
  if (sigbus_detail::highest.load(std::memory_order_relaxed) != 0) [[unlikely]]
    sigbus_detail::look_at_copy(at, length_bytes);
}
// Called when something was copied from [at, at + length_bytes). Returns whether it counts for
// nothing, with all else that this thread copies until forget_fault().
inline bool copy_is_void(const std::byte* at, uint64_t length_bytes) {
  look_at_copy(at, length_bytes);
  return has_faulted();
}
// Does it for a copy from client memory, or what may be such, to client memory.
inline bool copy_is_void(const std::byte* from, const std::byte* to, uint64_t length_bytes) {
  if (sigbus_detail::highest.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    sigbus_detail::look_at_copy(from, length_bytes);
    sigbus_detail::look_at_copy(to, length_bytes);
  }
  return has_faulted();
}

}  // namespace hostnic
