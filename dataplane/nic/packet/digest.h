// SPDX-License-Identifier: BSD-3-Clause
// 64-bit digests of packets' payloads, keyed with secret random numbers. They never leave the host,
// so which function makes them is each processor's own business (digest.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hostnic {

// What digests are made with. Nobody can guess it, so nobody can make other bytes with the same
// digest.
struct DigestSecret {
  static constexpr size_t kMostBytes = 4096;  // the largest path MTU
  explicit DigestSecret(uint64_t seed);
  alignas(64) std::array<uint64_t, kMostBytes / sizeof(uint64_t)> by_place;
  std::array<uint64_t, 8> words;
};

// Returns 64 bits in which every bit of the bytes counts; never 0.
uint64_t digest_of(std::span<const std::byte> bytes, const DigestSecret& secret);

// Copies a payload out of memory that programs write (copy.h), and returns the digest of the copy:
// where the processor can, in one pass.
uint64_t copy_and_digest(std::byte* to, std::span<const std::byte> memory,
                         const DigestSecret& secret);

// The functions that a processor may have; for tests.
using DigestFunction = uint64_t (*)(std::span<const std::byte> bytes, const DigestSecret& secret);
std::span<const DigestFunction> digest_functions();

}  // namespace hostnic
