// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/check/digest.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hostnic::check {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSampleBytes = 128;
constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * kFactor;
  return sum ^ (sum >> 29);
}

// Reads what the program and hostnicd may be writing: a torn word is a change like any other.
uint64_t digest_readable(uint64_t sum, uint64_t address, uint64_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto* at = reinterpret_cast<const char*>(address);
  uint64_t other = sum ^ kFactor;
  for (; bytes >= 16; at += 16, bytes -= 16) {
    uint64_t words[2];
    memcpy(words, at, sizeof(words));
    sum = mix(sum, words[0]);
    other = mix(other, words[1]);
  }
  sum = mix(sum, other);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word = 0;
    memcpy(&word, at, sizeof(word));
    sum = mix(sum, word);
  }
  uint64_t rest = bytes;
  for (uint64_t i = 0; i < bytes; ++i) rest = rest << 8 | static_cast<unsigned char>(at[i]);
  return mix(sum, rest);
}

std::optional<uint64_t> digest_range(uint64_t sum, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return sum;
  for (uint64_t page = address & ~(kPageBytes - 1); page < address + bytes; page += kPageBytes)
    if (!is_readable(std::max(page, address))) return std::nullopt;
  return digest_readable(sum, address, bytes);
}

}  // namespace

// The kernel reads the new mask before it refuses what to do with it.
bool is_readable(uint64_t address) {
  const int saved_errno = errno;
  const long result = syscall(SYS_rt_sigprocmask, ~0L, address & ~uint64_t{7}, nullptr, 8L);
  const bool readable = result == 0 || errno != EFAULT;
  errno = saved_errno;
  return readable;
}

std::optional<uint64_t> digest(uint64_t before, uint64_t address, uint64_t bytes,
                               Thoroughness thoroughness, uint64_t choice) {
  const bool is_whole =
      thoroughness == Thoroughness::kFull ? bytes <= 2 * kFullBytes : bytes <= 4 * kSampleBytes;
  if (is_whole) return digest_range(before, address, bytes);
  const uint64_t piece = thoroughness == Thoroughness::kFull ? kFullBytes : kSampleBytes;
  // Both ends, and one place between them that is another one each time.
  auto sum = digest_range(before, address, piece);
  if (sum) sum = digest_range(*sum, address + bytes - piece, piece);
  const uint64_t between = bytes - 3 * piece;
  const uint64_t offset =
      between > 0 && bytes > 3 * piece ? piece + choice * kFactor % between : piece;
  if (sum && bytes >= 3 * piece) sum = digest_range(*sum, address + offset, piece);
  return sum;
}

}  // namespace hostnic::check
