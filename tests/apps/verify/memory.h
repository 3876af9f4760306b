// SPDX-License-Identifier: BSD-3-Clause
// Memory of the kinds that verbs programs register, each with guard bytes around it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/apps/verify/options.h"

namespace hostnic::verify {

// Bytes before and after each block that belong to the same mapping but to no MR.
inline constexpr size_t kGuardBytes = 4096;
inline constexpr std::byte kGuardValue{0xa5};

// A block and its guards; unmapped with the last owner.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  std::span<std::byte> guard_before() const { return {bytes_.data() - kGuardBytes, kGuardBytes}; }
  std::span<std::byte> guard_after() const { return {bytes_.data() + bytes_.size(), kGuardBytes}; }

 protected:
  std::span<std::byte> bytes_;
};

// Stack for `stack-unaligned`, carved from the front.
struct StackArena {
  std::span<std::byte> free;
};
// What a block of `length` takes from it.
constexpr size_t stack_bytes_for(size_t length) { return length + 2 * kGuardBytes + 64; }

// Throws Failure with the reason. The guards hold kGuardValue; the block itself is untouched.
// `aligned`: the block starts on 8 bytes whatever the kind (stack blocks otherwise start odd).
std::unique_ptr<Memory> allocate(MemoryKind kind, size_t length, bool aligned, StackArena& stack);

// Runs `body` in a thread whose stack holds `bytes` for the arena besides its own needs.
void run_with_stack(size_t bytes, const std::function<void(StackArena&)>& body);

// Whether `huge` had to do with transparent huge pages because none are reserved.
bool used_transparent_huge_pages();

}  // namespace hostnic::verify
