// SPDX-License-Identifier: BSD-3-Clause
// The registrar's side of late filling.
#include "verbs-shim/memory/late_fill.h"

#include <fcntl.h>
#include <linux/futex.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/background_thread.h"

namespace hostnic::memory {

int LateFill::start(const Descriptors& descriptors, Tell tell, SettleCall* settle, Lost lost) {
  if (runs()) return 0;
  if (state_.load(std::memory_order_acquire) == State::kFailed) return start_error_;
  given_ = descriptors;
  tell_ = tell;
  settle_ = settle;
  lost_ = lost;
  int error = asides_.make_map();
  if (error == 0)
    error = start_background_thread(
        "hostnic-fill", [](void* self) { static_cast<LateFill*>(self)->run(); }, this);
  if (error != 0) return error;
  while (state_.load(std::memory_order_acquire) == State::kNotStarted)
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, State::kNotStarted, nullptr, nullptr, 0);
  return runs() ? 0 : start_error_;
}

// Rings until the order has been carried out: a signal or a debugger can end a thread's waiting.
int LateFill::order(Command command, uint64_t start, uint64_t end, uint64_t argument) {
  command_ = command;
  command_start_ = start;
  command_end_ = end;
  command_argument_ = argument;
  const uint64_t number = ordered_.load(std::memory_order_relaxed) + 1;
  ordered_.store(number, std::memory_order_seq_cst);
  while (done_.load(std::memory_order_acquire) != number) {
    *static_cast<volatile char*>(pointer(bell_)) = 1;
    raw_munlock(pointer(bell_), kPageBytes);  // by mlockall(): it would stay
    raw_madvise(pointer(bell_), kPageBytes, MADV_DONTNEED);
  }
  return result_;
}

void LateFill::stop() {
  if (!runs()) return;
  order(Command::kStop, 0, 0, 0);
  raw_munmap(pointer(bell_), kPageBytes);
  bell_ = 0;
  state_.store(State::kNotStarted);
}

int LateFill::fill(uint64_t start, uint64_t end) {
  return asides_.any_aside(start, end) ? order(Command::kFill, start, end, 0) : 0;
}

// 1. The mirror's empty mapping is made elsewhere, with first touches stopped, so that nobody ever
//    meets it without that. It has no access before, so that mlockall can't put pages there.
// 2. First touches stop at the place as well: by another userfaultfd, of which our thread hears
//    nothing. It could otherwise fill what is about to go.
// 3. The private pages leave, whole page tables at a time. From here on everybody waits.
// 4. The mapping takes their place, and brings its userfaultfd along (UFFD_FEATURE_EVENT_REMAP).
int LateFill::move_aside(uint64_t start, uint64_t end, uint64_t stash_delta, int mirror_fd,
                         int prot, Userfault& stops) {
  const uint64_t length = end - start;
  void* incoming = raw_mmap(nullptr, length, PROT_NONE, MAP_SHARED | MAP_NORESERVE, mirror_fd,
                            static_cast<off_t>(start));
  if (incoming == MAP_FAILED) return errno;
  raw_munlock(incoming, length);  // by mlockall(MCL_FUTURE): what it takes the place of is not
  raw_madvise(incoming, length, MADV_DONTFORK);
  const uint64_t at = address(incoming);
  int error = order(Command::kPrepare, at, at + length, 0);
  if (error == 0 && mprotect(incoming, length, prot) != 0) error = errno;
  if (error == 0) {
    // Only what is written to can be taken out, and only what can be written to needs to be.
    const bool takes_out = prot == (PROT_READ | PROT_WRITE);
    // What is in the mirror stays: nothing may be, such as a rest of a huge page.
    fallocate(mirror_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
              static_cast<off_t>(length));
    error = order(Command::kAdd, start, end, stash_delta | (takes_out ? kTakesOut : 0));
    if (error == 0) {
      error = swap(start, length, pointer(start + stash_delta), incoming, stops);
      order(error == 0 ? Command::kAdded : Command::kLeave, start, end, 0);
    }
  }
  if (error != 0) raw_munmap(incoming, length);
  return error;
}

int LateFill::swap(uint64_t start, uint64_t length, void* stash, void* incoming, Userfault& stops) {
  int error = stops.stop_first_touches(start, length);
  if (error != 0) return error;
  if (raw_mremap(pointer(start), length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                 stash) == MAP_FAILED) {
    error = errno;
    stops.release(start, length);
    return error;
  }
  if (raw_mremap(incoming, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(start)) ==
      MAP_FAILED) {
    error = errno;
    // The (empty) stash stays mapped: its addresses are reserved.
    raw_mremap(stash, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
               pointer(start));
  }
  stops.wake(start, length);
  return error;
}

// The next run of slices that were taken, from `from` on, in one piece of memory.
bool LateFill::next_taken(uint64_t& from, uint64_t end, uint64_t& to) const {
  const auto taken = [this](const AsideTable::Aside* aside, uint64_t at) {
    return aside != nullptr && asides_.slice(*aside, at) == AsideTable::kMoving;
  };
  const AsideTable::Aside* aside = nullptr;
  while (from < end && !taken(aside = asides_.find(from), from)) from += kSliceBytes;
  for (to = from; to < end && asides_.find(to) == aside && taken(aside, to);) to += kSliceBytes;
  return from < end;
}

int LateFill::put_home(uint64_t from, uint64_t to, int prot) {
  const uint64_t length = to - from;
  void* stash = pointer(from + asides_.find(from)->stash_delta);
  if (mprotect(stash, length, prot) != 0) return errno;
  if (raw_mremap(stash, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(from)) == MAP_FAILED)
    return errno;
  return order(Command::kLeave, from, to, 0);
}

// The map, the bell and the window are not inherited.
void LateFill::forget_parent() {
  asides_.forget_parent();
  new (this) LateFill;
}

}  // namespace hostnic::memory
