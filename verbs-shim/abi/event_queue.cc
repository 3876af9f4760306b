#include "verbs-shim/abi/event_queue.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hostnic::abi {
namespace {

// One event less for whoever waits, without waiting. False: none is left, whoever pops it has
// taken it.
bool take_back(int fd) {
  uint64_t one = 0;
  iovec into{&one, sizeof one};
  // A system call of its own, for what preadv2() does besides being a cancellation point.
  return syscall(SYS_preadv2, fd, &into, 1UL, -1L, -1L, RWF_NOWAIT) == sizeof one;
}

}  // namespace

EventQueue::~EventQueue() {
  if (fd_ >= 0) close(fd_);
}

int EventQueue::open() {
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return fd_ >= 0 ? 0 : errno;
}

void EventQueue::push(uint64_t record) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(record);
  const uint64_t one = 1;
  // Not write(): threads that post and poll are not cancelled here.
  [[maybe_unused]] const auto written = syscall(SYS_write, fd_, &one, sizeof one);
}

int EventQueue::pop(uint64_t& record) {
  do {
    uint64_t one = 0;
    const ssize_t taken = read(fd_, &one, sizeof one);
    if (taken < 0) return errno;
    if (taken != sizeof one) return EIO;
  } while (!take_first(record));
  return 0;
}

// False: all have been removed meanwhile.
bool EventQueue::take_first(uint64_t& record) {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  record = waiting_.front();
  waiting_.pop_front();
  return true;
}

void EventQueue::remove_if(const std::function<bool(uint64_t)>& unwanted) {
  std::lock_guard lock(mutex_);
  for (size_t removed = std::erase_if(waiting_, unwanted); removed != 0 && take_back(fd_);)
    --removed;
}

}  // namespace hostnic::abi
