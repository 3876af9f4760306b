// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/own_descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>

namespace hostnic {
namespace {

constexpr int kWordBits = 64, kDescriptors = 1 << 20, kWords = kDescriptors / kWordBits;
// Kept descriptors have numbers from here on, or in the upper half of what a process may have.
constexpr rlim_t kHighNumber = 512;

// A bit for each descriptor.
class Set {
 public:
  bool has(int fd) const {
    return in_range(fd) && (word_of(fd).load(std::memory_order_acquire) & bit_of(fd)) != 0;
  }
  void add(int fd) {
    if (!in_range(fd)) return;
    word_of(fd).fetch_or(bit_of(fd), std::memory_order_acq_rel);
    const int words = fd / kWordBits + 1;
    for (int seen = words_.load(); seen < words && !words_.compare_exchange_weak(seen, words);)
      continue;
  }
  // Returns whether it was there: of several threads one removes it.
  bool remove(int fd) {
    if (!has(fd)) return false;
    return (word_of(fd).fetch_and(~bit_of(fd), std::memory_order_acq_rel) & bit_of(fd)) != 0;
  }
  int next(int from) const {
    if (from < 0) from = 0;
    const int words = words_.load(std::memory_order_acquire);
    for (int at = from / kWordBits; at < words; ++at) {
      uint64_t bits = words_of_bits_[at].load(std::memory_order_acquire);
      if (at == from / kWordBits) bits &= ~uint64_t{0} << (from % kWordBits);
      if (bits != 0) return at * kWordBits + std::countr_zero(bits);
    }
    return INT_MAX;
  }

 private:
  static bool in_range(int fd) { return fd >= 0 && fd < kDescriptors; }
  static uint64_t bit_of(int fd) { return uint64_t{1} << (fd % kWordBits); }
  std::atomic<uint64_t>& word_of(int fd) { return words_of_bits_[fd / kWordBits]; }
  const std::atomic<uint64_t>& word_of(int fd) const { return words_of_bits_[fd / kWordBits]; }

  std::atomic<uint64_t> words_of_bits_[kWords]{};
  std::atomic<int> words_{0};  // those that have ever had a bit
};

constinit Set kept, lent;
// The process that the sets are about. A child of vfork() has another number, and closes
// descriptors of its own while it still uses this memory.
std::atomic<pid_t> owner{0};
// A signal handler may ask before its thread has made other thread-local variables.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool own_table = false;

}  // namespace

int keep_copy(int fd) noexcept {
  if (fd < 0) return -1;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto high = static_cast<int>(std::min(limit.rlim_cur / 2, kHighNumber));
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, std::max(high, 3));
  if (copy < 0) copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) kept.add(copy);
  return copy;
}

void lend(int fd) noexcept {
  owner.store(getpid(), std::memory_order_relaxed);
  lent.add(fd);
}
bool is_kept(int fd) noexcept { return kept.has(fd); }
bool still_ours(int fd) noexcept { return kept.has(fd) || lent.has(fd); }

void close_ours(int fd) noexcept {
  if (fd < 0 || (!kept.remove(fd) && !lent.remove(fd))) return;
  const int saved_errno = errno;
  // Neither the library's own close(), which would ask whose it is, nor a cancellation point.
  syscall(SYS_close, fd);
  errno = saved_errno;
}

int next_kept(int from) noexcept { return kept.next(from); }

void note_closed(int first, int last) noexcept {
  if (lent.next(first) > last || own_table || owner.load(std::memory_order_relaxed) != getpid())
    return;
  for (int fd = lent.next(first); fd <= last && fd != INT_MAX; fd = lent.next(fd + 1))
    lent.remove(fd);
}

void note_own_table() noexcept { own_table = true; }
bool has_own_table() noexcept { return own_table; }

void lend_kept_in_child() noexcept {
  owner.store(getpid(), std::memory_order_relaxed);
  for (int fd = kept.next(0); fd != INT_MAX; fd = kept.next(fd + 1)) {
    lent.add(fd);
    kept.remove(fd);
  }
}

}  // namespace hostnic
