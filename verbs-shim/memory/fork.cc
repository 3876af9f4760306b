// SPDX-License-Identifier: BSD-3-Clause
// Fork. A child must neither share migrated pages with its parent nor lose them: they are not
// inherited (MADV_DONTFORK), and the child's handler puts private memory in their place and fills
// it from the mirror while the parent's handler waits. A raw fork system call bypasses this; the
// child then finds nothing mapped there.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>

#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {
namespace {

// The limit for a child's copying: a child that was stopped before it finished must not stop its
// parent for ever.
constexpr int kCopyTimeoutMs = 10'000;

}  // namespace

void MemoryRegistrar::install_fork_handlers() {
  pthread_atfork([] { process().before_fork(); }, [] { process().after_fork_in_parent(); },
                 [] { process().after_fork_in_child(); });
}

void MemoryRegistrar::before_fork() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  mutex_.lock();
  fork_signals_ = before;
  fork_pipe_[0] = fork_pipe_[1] = -1;
  // Mappings whose end the kernel did not tell of yet must not come to life again in the child.
  if (!table_.empty()) try {
      lose_where_gone(lowest_.load(), highest_.load());
      // What nobody has registered is shared with the child as other memory is, and not copied.
      if (parked_ && may_stop_pages()) unpark(Unpark::kAll);
      late_.fill(lowest_.load(), highest_.load());
    } catch (...) {  // no memory for a list of the process's areas
    }
  const bool copies = counters_.in_mirror_bytes != 0 && (parked_ || !skip_copy_in_child_.load());
  // Cancellation is off for the handlers: fork() is no cancellation point.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &fork_cancel_state_);
  if (copies && pipe2(fork_pipe_, O_CLOEXEC) != 0) fork_pipe_[0] = fork_pipe_[1] = -1;
}

// The parent waits: the child writes a byte when it has copied; if it dies before, its end closes.
void MemoryRegistrar::after_fork_in_parent() {
  if (fork_pipe_[0] >= 0) {
    const int saved_errno = errno;
    close(fork_pipe_[1]);
    pollfd readable{fork_pipe_[0], POLLIN, 0};
    while (poll(&readable, 1, kCopyTimeoutMs) < 0 && errno == EINTR) continue;
    close(fork_pipe_[0]);
    errno = saved_errno;
  }
  const sigset_t before = fork_signals_;
  const int cancel_state = fork_cancel_state_;
  mutex_.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setcancelstate(cancel_state, nullptr);
}

void MemoryRegistrar::after_fork_in_child() {
  const int saved_errno = errno;
  for (const auto& [start, range] : table_) {
    if (range.place != PagePlace::kMirror) continue;
    // What a device kept from getting into the mirror must not be looked for there.
    const bool skipped = (skip_copy_in_child_.load() && range.registrations != 0) ||
                         late_.any_aside(start, range.end);
    if (skipped || !migrator_.restore_in_child(start, range.end, range.stash_delta, range.prot))
      raw_munmap(pointer(start + range.stash_delta), range.end - start);
  }
  if (fork_pipe_[0] >= 0) {
    close(fork_pipe_[0]);
    [[maybe_unused]] const ssize_t told = write(fork_pipe_[1], "", 1);
    close(fork_pipe_[1]);
  }
  forget_parent();
  const sigset_t before = fork_signals_;
  const int cancel_state = fork_cancel_state_;
  mutex_.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setcancelstate(cancel_state, nullptr);
  errno = saved_errno;
}

// Forgets the descriptors, because they lead to the parent's memory. A device opened in the child
// begins anew.
void MemoryRegistrar::forget_parent() {
  table_.clear();
  userfault_.close();
  watch_.forget_parent();
  revoker_.forget_parent();
  late_.forget_parent();
  own_threads_.clear();
  new (&threads_mutex_) std::mutex;
  parked_ = wants_home_ = false;
  for (std::atomic<int>* fd : {&mem_fd_, &mirror_fd_}) {
    const int old = fd->exchange(-1);
    if (old >= 0) close(old);
  }
  if (pagemap_fd_ >= 0) close(pagemap_fd_);
  pagemap_fd_ = -1;
  mirror_inode_ = 0;
  environment_read_ = false;
  reason_[0] = '\0';
  counters_ = {};
  update_bounds();
}

}  // namespace hostnic::memory
