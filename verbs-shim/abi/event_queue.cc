// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/event_queue.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hostnic::abi {
namespace {

// Takes one event from the descriptor without waiting. Returns false if none is left: whoever has
// waited for it will find that out.
bool take_back(int fd) {
  if (!still_ours(fd)) return false;
  uint64_t one = 0;
  iovec into{&one, sizeof one};
  // The system call is made directly, because preadv2() is a cancellation point besides.
  return syscall(SYS_preadv2, fd, &into, 1UL, -1L, -1L, RWF_NOWAIT) == sizeof one;
}

// Adds one event to the descriptor. It is not write(), so that threads that post and poll are not
// cancelled here.
void give(int fd) {
  // The program may have closed it, and the number may be a file of its own by now.
  if (!still_ours(fd)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = syscall(SYS_write, fd, &one, sizeof one);
}

}  // namespace

EventQueue::~EventQueue() { close_ours(fd_); }

int EventQueue::open() {
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (fd_ < 0) return errno;
  lend(fd_);
  return 0;
}

void EventQueue::push(uint64_t record) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(record);
  give(fd_);
}

void EventQueue::close() {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  give(fd_);
}

int EventQueue::wait(int fd) {
  uint64_t one = 0;
  const ssize_t had = read(fd, &one, sizeof one);
  if (had < 0) return errno;
  return had == sizeof one ? 0 : EIO;
}

EventQueue::Taken EventQueue::take(uint64_t& record) {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    if (!closed_) return Taken::kNothing;
    give(fd_);  // for the next thread that waits
    return Taken::kClosed;
  }
  record = waiting_.front();
  waiting_.pop_front();
  return Taken::kRecord;
}

void EventQueue::remove_if(const std::function<bool(uint64_t)>& unwanted) {
  std::lock_guard lock(mutex_);
  for (size_t removed = std::erase_if(waiting_, unwanted); removed != 0 && take_back(fd_);)
    --removed;
}

}  // namespace hostnic::abi
