// SPDX-License-Identifier: BSD-3-Clause
// A queue of events that programs wait for on a file descriptor: completion channels and the async
// events of a device. Programs epoll the descriptor, set O_NONBLOCK on it and count on it being
// readable once per event: a semaphore eventfd counts the events, which wait in memory. It is the
// only descriptor, and never full.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace hostnic::abi {

class EventQueue {
 public:
  EventQueue() = default;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;
  ~EventQueue();

  // Returns 0 or an errno value.
  int open();
  // The descriptor, readable when an event waits.
  int fd() const { return fd_; }

  // Adds an event: for any thread, never blocks, loses nothing.
  void push(uint64_t record);
  // Takes an event; for any thread. Waits unless the program set O_NONBLOCK. Returns 0, or an errno
  // value (EAGAIN, EINTR; EIO once the queue is closed and empty). While it waits the thread may be
  // cancelled. The frames that are unwound then, this one's and its callers', must have nothing to
  // clean up: this library's unwinder is not the program's.
  int pop(uint64_t& record);
  // Removes events; for any thread. It drops the events that `unwanted` names, and keeps the others
  // in order. An event that another thread has just popped is out of reach: its receiver has to
  // look whether it still means anything.
  void remove_if(const std::function<bool(uint64_t)>& unwanted);
  // Closes the queue; for any thread. Nothing is waited for any more: the descriptor stays
  // readable, and who pops gets what there is and then EIO, as from a uverbs channel whose device
  // was removed.
  void close();

 private:
  enum class Taken { kRecord, kNothing, kClosed };
  [[gnu::noinline]] Taken take_first(uint64_t& record);

  std::mutex mutex_;
  // The records: as many as the eventfd says, and those being popped; when closed, the eventfd says
  // one more.
  std::deque<uint64_t> waiting_;
  bool closed_ = false;
  int fd_ = -1;
};

}  // namespace hostnic::abi
