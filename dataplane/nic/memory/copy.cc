// SPDX-License-Identifier: BSD-3-Clause
// Which instructions move the middle of a copy is decided when the program starts.
#include "dataplane/nic/memory/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hostnic::copy_detail {
namespace {

size_t leave_to_caller(std::byte*, const std::byte*, size_t) { return 0; }

#if defined(__x86_64__)

using Widest = long long __attribute__((vector_size(32), may_alias));

// Copies as long as kLongBytes come out of the L3 cache or from memory, as a rule, where older
// processors' own prefetching stops at each page: both sides are prefetched kAheadBytes ahead.
constexpr size_t kLongBytes = 128 * 1024, kAheadBytes = 1024, kLineBytes = 64;

// The watched side is volatile, as in copy.h; the other may lie anywhere, which memcpy says. All is
// loaded before anything is stored: the loads of a block then overlap.
template <bool kPrefetch>
__attribute__((target("avx2,tune=haswell"))) void store_blocks_avx2(std::byte* to,
                                                                    const std::byte* from,
                                                                    const std::byte* end) {
  const std::byte* const blocks_end = end - static_cast<size_t>(end - from) % kBlock;
  for (; from != blocks_end; from += kBlock, to += kBlock) {
    if constexpr (kPrefetch) {
      // The prefetches stand in the loop itself: g++ 12 drops calls of a function that only
      // prefetches.
      for (size_t line = kAheadBytes; line < kAheadBytes + kBlock; line += kLineBytes) {
        __builtin_prefetch(from + line);
        __builtin_prefetch(to + line);
      }
    }
    auto* out = reinterpret_cast<volatile Widest*>(to);
    Widest a, b, c, d;
    std::memcpy(&a, from, sizeof(Widest));
    std::memcpy(&b, from + sizeof(Widest), sizeof(Widest));
    std::memcpy(&c, from + 2 * sizeof(Widest), sizeof(Widest));
    std::memcpy(&d, from + 3 * sizeof(Widest), sizeof(Widest));
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
  }
  for (; from != end; from += sizeof(Widest), to += sizeof(Widest)) {
    Widest a;
    std::memcpy(&a, from, sizeof(Widest));
    *reinterpret_cast<volatile Widest*>(to) = a;
  }
}

template <bool kPrefetchesLong>
size_t store_avx2(std::byte* to, const std::byte* from, size_t length_bytes) {
  const size_t moved = length_bytes & ~(sizeof(Widest) - 1);
  if (kPrefetchesLong && length_bytes >= kLongBytes) {
    store_blocks_avx2<true>(to, from, from + moved);
  } else {
    store_blocks_avx2<false>(to, from, from + moved);
  }
  return moved;
}

__attribute__((target("avx2,tune=haswell"))) size_t load_avx2(std::byte* to, const std::byte* from,
                                                              size_t length_bytes) {
  const size_t moved = length_bytes & ~(kBlock - 1);
  for (const std::byte* end = from + moved; from != end; from += kBlock, to += kBlock) {
    auto* in = reinterpret_cast<const volatile Widest*>(from);
    const Widest a = in[0], b = in[1], c = in[2], d = in[3];
    std::memcpy(to, &a, sizeof(Widest));
    std::memcpy(to + sizeof(Widest), &b, sizeof(Widest));
    std::memcpy(to + 2 * sizeof(Widest), &c, sizeof(Widest));
    std::memcpy(to + 3 * sizeof(Widest), &d, sizeof(Widest));
  }
  return moved;
}

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}

// Zen 3 copies 1 MiB 4 % faster when both sides are prefetched, Zen 4 a fifth slower (38 GB/s of
// 48). AVX-512 tells Zen 4 from Zen 3, and is taken to tell Intel's younger processors from the
// older ones, which have not been measured.
bool profits_from_prefetching() { return __builtin_cpu_supports("avx512f") == 0; }

// Copies as long as kStringBytes do not stay in the L1 cache. A string instruction then fills whole
// cache lines without reading them first, where the processor is made for it. A string
// instruction's elements are units, each a store (and a load) of its own; that their order is free
// does not matter in the middle of a copy, and what is stored after the instruction is seen after
// it.
constexpr size_t kStringBytes = 32 * 1024;

size_t store_string(std::byte* to, const std::byte* from, size_t length_bytes) {
  if (length_bytes < kStringBytes) return store_avx2<false>(to, from, length_bytes);
  // The copy goes to the last unit: the rest of a block by itself would cost as much as a kilobyte
  // here.
  const size_t moved = length_bytes & ~(sizeof(Unit) - 1);
  size_t units = moved / sizeof(Unit);
  asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(units) : : "memory");
  return moved;
}

// AMD's processors since Zen 5 (family 1Ah) copy strings at 125 GB/s within the L2 cache, where
// loads and stores of any width reach 95. On Zen 3 and 4 strings are no faster than AVX2; others
// have not been measured.
bool has_fast_strings() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_AMD_ebx) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kFastShortStrings = 1u << 4;
  if ((edx & kFastShortStrings) == 0 || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned base_family = eax >> 8 & 0xf, extended_family = eax >> 20 & 0xff;
  return base_family == 0xf && base_family + extended_family >= 0x1a;
}

MoveBlocks fastest_store() {
  if (!has_avx2()) return leave_to_caller;
  if (has_fast_strings()) return store_string;
  return profits_from_prefetching() ? store_avx2<true> : store_avx2<false>;
}

}  // namespace

const MoveBlocks store_blocks = fastest_store();
const MoveBlocks load_blocks = has_avx2() ? load_avx2 : leave_to_caller;

#else

}  // namespace

const MoveBlocks store_blocks = leave_to_caller, load_blocks = leave_to_caller;

#endif

}  // namespace hostnic::copy_detail
