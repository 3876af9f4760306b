// SPDX-License-Identifier: BSD-3-Clause
// The C library's functions that close descriptors, so that a program which closes all that it
// knows nothing of leaves this library's alone (base/own_descriptors.h). dup2() and dup3() are in
// cm/hooks.cc. Compiled without sanitizers: sanitizer runtimes call these before they are ready.
#include <limits.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/elf/next_function.h"

namespace {

using hostnic::elf::next_function;

constexpr int kCloseOnExec = 1 << 2;  // CLOSE_RANGE_CLOEXEC, which older headers don't have

int close_range_of_kernel(int first, int last, int flags) {
  return static_cast<int>(syscall(SYS_close_range, static_cast<unsigned>(first),
                                  last == INT_MAX ? ~0u : static_cast<unsigned>(last), flags));
}

// Linux before 5.9 closes one descriptor at a time.
void close_each(int first, int last) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  for (int fd = first; fd <= last && fd < end; ++fd) syscall(SYS_close, fd);
}

// Closes the descriptors of a range that are not the library's. Returns 0 or -1, as close_range()
// does.
int close_others(int first, int last, int flags, bool one_by_one) {
  for (int from = first;;) {
    const int kept = hostnic::next_kept(from);
    const int to = kept > last ? last : kept - 1;
    if (from <= to) {
      hostnic::note_closed(from, to);
      if (close_range_of_kernel(from, to, flags) != 0) {
        if (errno != ENOSYS || !one_by_one) return -1;
        close_each(from, to);
      }
    }
    if (kept >= last || kept == INT_MAX) return 0;
    from = kept + 1;
  }
}

int as_int(unsigned number) { return static_cast<int>(std::min(number, unsigned{INT_MAX})); }

}  // namespace

// The name in C++ differs, so that libc's declaration need not be repeated.
#define HOSTNIC_HOOK(result, name, parameters)                                                    \
  extern "C" [[gnu::visibility("default")]] result hostnic_hook_##name parameters __asm__(#name); \
  result hostnic_hook_##name parameters

static std::atomic<int (*)(int)> next_close;

HOSTNIC_HOOK(int, close, (int fd)) {
  if (__builtin_expect(hostnic::still_ours(fd), 0) && !hostnic::has_own_table()) {
    if (hostnic::is_kept(fd)) {
      errno = EBADF;
      return -1;
    }
    hostnic::note_closed(fd, fd);
  }
  return next_function(next_close, "close")(fd);
}

HOSTNIC_HOOK(int, close_range, (unsigned first, unsigned last, int flags)) {
  if (first > last || (flags & kCloseOnExec) != 0)
    return static_cast<int>(syscall(SYS_close_range, first, last, flags));
  return close_others(as_int(first), as_int(last), flags, /*one_by_one=*/false);
}

HOSTNIC_HOOK(void, closefrom, (int first)) {
  const int saved_errno = errno;
  close_others(std::max(first, 0), INT_MAX, 0, /*one_by_one=*/true);
  errno = saved_errno;
}
