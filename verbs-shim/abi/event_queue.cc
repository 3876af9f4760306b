#include "verbs-shim/abi/event_queue.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/driver/cancellation.h"

namespace hostnic::abi {

EventQueue::~EventQueue() {
  if (read_fd_ >= 0) close(read_fd_);
  if (write_fd_ >= 0) close(write_fd_);
}

int EventQueue::open() {
  int ends[2];
  // SEQPACKET and not DGRAM: the latter holds only net.unix.max_dgram_qlen (10) messages.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return errno;
  read_fd_ = ends[0];
  write_fd_ = ends[1];
  return 0;
}

void EventQueue::push(uint64_t record) {
  const CancellationOff cancellation_off;
  std::lock_guard lock(mutex_);
  waiting_.push_back(record);
  refill();
}

void EventQueue::refill() {
  size_t sent = 0;
  while (sent < waiting_.size() && send(write_fd_, &waiting_[sent], sizeof(uint64_t),
                                        MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(uint64_t)) {
    ++sent;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(sent));
}

int EventQueue::pop(uint64_t& record) {
  const ssize_t received = recv(read_fd_, &record, sizeof record, 0);
  if (received < 0) return errno;
  if (received != sizeof record) return EIO;
  make_room();
  return 0;
}

void EventQueue::make_room() {
  const CancellationOff cancellation_off;
  std::lock_guard lock(mutex_);
  if (!waiting_.empty()) refill();
}

void EventQueue::remove_if(const std::function<bool(uint64_t)>& unwanted) {
  const CancellationOff cancellation_off;
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> all;
  uint64_t record;
  while (recv(read_fd_, &record, sizeof record, MSG_DONTWAIT) == sizeof record) {
    all.push_back(record);
  }
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  std::erase_if(all, unwanted);
  waiting_ = std::move(all);
  refill();
}

}  // namespace hostnic::abi
