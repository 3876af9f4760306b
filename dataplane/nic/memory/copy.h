// SPDX-License-Identifier: BSD-3-Clause
// Copies between packets and application memory that programs may watch (docs/transport.md rule
// 11): a naturally aligned 8-byte unit of that memory is written by a single store, and read by a
// single load. memcpy promises neither; on the hot path it would be about as fast.
//
// Pairs of units are moved by 16-byte instructions at 16-byte aligned addresses, and long runs by
// 32-byte ones where the processor has AVX2. x86 processors with AVX access such an address in one
// piece, or in pieces of 16 bytes; on others, and on those of arm64 (Arm ARM, B2.2.1), the halves,
// which is all the rule asks for, are whole.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace hostnic {
namespace copy_detail {

using Unit = uint64_t __attribute__((may_alias));
#if defined(__x86_64__) || defined(__aarch64__)
using Wide = long long __attribute__((vector_size(16), may_alias));
#else
using Wide = Unit;
#endif

// store_blocks and load_blocks do the middle of a copy by the widest instructions of this
// processor: blocks of 128 bytes, and as much of the last one as they move, from where the watched
// side is aligned to 32 bytes. They return the bytes moved, and are chosen in copy.cc.
inline constexpr size_t kBlock = 128, kBlockAlign = 32;
using MoveBlocks = size_t (*)(std::byte* to, const std::byte* from, size_t length_bytes);
extern const MoveBlocks store_blocks, load_blocks;

inline uintptr_t address_of(const void* at) { return reinterpret_cast<uintptr_t>(at); }

// Whether a message is small: nothing but units, and few of them.
inline bool in_few_units(const void* watched, size_t length_bytes) {
  return length_bytes <= 64 && (address_of(watched) | length_bytes) % sizeof(Unit) == 0;
}

// Moves `count` units, at most 8, in ascending order: each count has its own instructions, so that
// no loop counts. A move is told how many units before the end its unit lies.
template <size_t Before>
using UnitsBefore = std::integral_constant<size_t, Before>;
template <class Move>
[[gnu::always_inline]] inline void few_units(size_t count, Move move) {
  switch (count) {
    case 8:
      move(UnitsBefore<8>());
      [[fallthrough]];
    case 7:
      move(UnitsBefore<7>());
      [[fallthrough]];
    case 6:
      move(UnitsBefore<6>());
      [[fallthrough]];
    case 5:
      move(UnitsBefore<5>());
      [[fallthrough]];
    case 4:
      move(UnitsBefore<4>());
      [[fallthrough]];
    case 3:
      move(UnitsBefore<3>());
      [[fallthrough]];
    case 2:
      move(UnitsBefore<2>());
      [[fallthrough]];
    case 1:
      move(UnitsBefore<1>());
      [[fallthrough]];
    default:
      break;
  }
}

// Stores the units in ascending order, the last one with release order.
[[gnu::always_inline]] inline void store_few_units(std::byte* to, const std::byte* from,
                                                   size_t count) {
  from += count * sizeof(Unit);
  to += count * sizeof(Unit);
  few_units(count, [=](auto before_end) {
    Unit unit;
    std::memcpy(&unit, from - before_end * sizeof(Unit), sizeof(Unit));
    if (before_end == 1) std::atomic_thread_fence(std::memory_order_release);
    *reinterpret_cast<volatile Unit*>(to - before_end * sizeof(Unit)) = unit;
  });
}

// Whether a copy is whole blocks only, or begins with some.
inline bool starts_in_blocks(const void* watched, size_t length_bytes) {
  return length_bytes >= 2 * kBlock && address_of(watched) % kBlockAlign == 0;
}

// Stores one piece, volatile on the watched side: the compiler neither splits nor merges the
// access, and does not take the loop for a memcpy.
template <class Piece>
void store(std::byte*& to, const std::byte*& from, size_t& length_bytes) {
  Piece piece;
  std::memcpy(&piece, from, sizeof(Piece));
  *reinterpret_cast<volatile Piece*>(to) = piece;
  to += sizeof(Piece);
  from += sizeof(Piece);
  length_bytes -= sizeof(Piece);
}
template <class Piece>
void load(std::byte*& to, const std::byte*& from, size_t& length_bytes) {
  const Piece piece = *reinterpret_cast<const volatile Piece*>(from);
  std::memcpy(to, &piece, sizeof(Piece));
  to += sizeof(Piece);
  from += sizeof(Piece);
  length_bytes -= sizeof(Piece);
}

// The movers are called where `watched`, which they advance, is aligned for them.
template <class Watched, class MoveByte, class MoveUnit, class MoveWide, class MoveMiddle>
void in_units(Watched*& watched, size_t& length_bytes, MoveByte byte, MoveUnit unit, MoveWide wide,
              MoveMiddle middle) {
  while (length_bytes != 0 && address_of(watched) % sizeof(Unit) != 0) byte();
  if (length_bytes >= sizeof(Unit) && address_of(watched) % sizeof(Wide) != 0) unit();
  if (length_bytes >= 2 * kBlock) {
    if (address_of(watched) % kBlockAlign != 0) wide();
    middle();
  }
  while (length_bytes >= 4 * sizeof(Wide)) {
    wide();
    wide();
    wide();
    wide();
  }
  while (length_bytes >= sizeof(Wide)) wide();
  if (length_bytes >= sizeof(Unit)) unit();
  while (length_bytes != 0) byte();
}

inline void move_blocks(MoveBlocks move, std::byte*& to, const std::byte*& from,
                        size_t& length_bytes) {
  const size_t moved = move(to, from, length_bytes);
  to += moved;
  from += moved;
  length_bytes -= moved;
}

}  // namespace copy_detail

// Copies into memory that programs watch.
inline void copy_to_memory(std::byte* to, const std::byte* from, size_t length_bytes) {
  namespace d = copy_detail;
  if (d::in_few_units(to, length_bytes)) {
    d::store_few_units(to, from, length_bytes / sizeof(d::Unit));
    return;
  }
  if (d::starts_in_blocks(to, length_bytes)) {
    d::move_blocks(d::store_blocks, to, from, length_bytes);
    if (length_bytes == 0) return;
  }
  d::in_units(
      to, length_bytes, [&] { d::store<std::byte>(to, from, length_bytes); },
      [&] { d::store<d::Unit>(to, from, length_bytes); },
      [&] { d::store<d::Wide>(to, from, length_bytes); },
      [&] { d::move_blocks(d::store_blocks, to, from, length_bytes); });
}

namespace copy_detail {
// The functions of this namespace are the rest of those of the same names below: not inlined, so
// that only small messages are copied inline.
[[gnu::noinline]] inline void copy_from_memory(std::byte* to, const std::byte* from,
                                               size_t length_bytes) {
  if (starts_in_blocks(from, length_bytes)) {
    move_blocks(load_blocks, to, from, length_bytes);
    if (length_bytes == 0) return;
  }
  in_units(
      from, length_bytes, [&] { load<std::byte>(to, from, length_bytes); },
      [&] { load<Unit>(to, from, length_bytes); }, [&] { load<Wide>(to, from, length_bytes); },
      [&] { move_blocks(load_blocks, to, from, length_bytes); });
}

[[gnu::noinline]] inline void copy_tail_to_memory(std::byte* to, const std::byte* from,
                                                  size_t length_bytes) {
  const uintptr_t start = address_of(to);
  // For whole pages and the like all that is before the last units is moved in one go, to the end.
  if (length_bytes >= 2 * kBlock && (start + length_bytes) % kBlockAlign == 0) {
    const size_t before = length_bytes - kBlockAlign;
    copy_to_memory(to, from, before);
    store_few_units(to + before, from + before, kBlockAlign / sizeof(Unit));
    return;
  }
  const uintptr_t last_unit = (start + length_bytes - 1) & ~uintptr_t{7};
  const size_t head = last_unit > start ? last_unit - start : 0;
  copy_to_memory(to, from, head);
  std::atomic_thread_fence(std::memory_order_release);
  copy_to_memory(to + head, from + head, length_bytes - head);
}
}  // namespace copy_detail

// Copies out of memory that programs write.
[[gnu::always_inline]] inline void copy_from_memory(std::byte* to, const std::byte* from,
                                                    size_t length_bytes) {
  namespace d = copy_detail;
  if (!d::in_few_units(from, length_bytes)) {
    d::copy_from_memory(to, from, length_bytes);
    return;
  }
  from += length_bytes;
  to += length_bytes;
  d::few_units(length_bytes / sizeof(d::Unit), [=](auto before_end) {
    const size_t back = before_end * sizeof(d::Unit);
    const d::Unit unit = *reinterpret_cast<const volatile d::Unit*>(from - back);
    std::memcpy(to - back, &unit, sizeof(unit));
  });
}

// Copies the last bytes of a message: the final word (the 8-byte unit of memory that the last byte
// lies in) is stored last, with release order. Programs poll that word.
[[gnu::always_inline]] inline void copy_tail_to_memory(std::byte* to, const std::byte* from,
                                                       size_t length_bytes) {
  if (length_bytes == 0) return;
  if (copy_detail::in_few_units(to, length_bytes)) {
    copy_detail::store_few_units(to, from, length_bytes / sizeof(copy_detail::Unit));
  } else {
    copy_detail::copy_tail_to_memory(to, from, length_bytes);
  }
}

// Copies from memory that programs write into memory that programs watch. Where both lie alike
// towards kBlockAlign one move does; else units would be whole on one side only, and the bytes go
// by a buffer. `tail` asks for the order of copy_tail_to_memory().
inline void copy_between_memories(std::byte* to, const std::byte* from, size_t length_bytes,
                                  bool tail) {
  namespace d = copy_detail;
  const auto place = [&](const std::byte* bytes, size_t part) {
    if (tail && part == length_bytes) {
      copy_tail_to_memory(to, bytes, part);
    } else {
      copy_to_memory(to, bytes, part);
    }
    to += part;
  };
  if ((d::address_of(to) - d::address_of(from)) % d::kBlockAlign == 0) {
    place(from, length_bytes);
    return;
  }
  alignas(d::kBlockAlign) std::byte buffer[4096];
  while (length_bytes != 0) {
    const size_t part = std::min(length_bytes, sizeof(buffer));
    copy_from_memory(buffer, from, part);
    place(buffer, part);
    from += part;
    length_bytes -= part;
  }
}

}  // namespace hostnic
