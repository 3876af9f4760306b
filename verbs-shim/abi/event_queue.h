// SPDX-License-Identifier: BSD-3-Clause
// A queue of events that programs wait for on a file descriptor: completion channels and the async
// events of a device. Programs epoll the descriptor, set O_NONBLOCK on it and count on it being
// readable once per event: a semaphore eventfd counts the events, which wait in memory, and is
// never full. The queue has a descriptor of its own for it: a program may close the one that it
// knows.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "verbs-shim/base/own_descriptors.h"

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
  // Waits for an event at a queue's descriptor, unless the program set O_NONBLOCK; for any thread.
  // Returns 0, and the caller has to take() it, or an errno value (EAGAIN, EINTR). The queue may be
  // destroyed meanwhile: only the descriptor is used. While it waits the thread may be cancelled.
  // The frames that are unwound then, this one's and its callers', must have nothing to clean up:
  // this library's unwinder is not the program's.
  static int wait(int fd);
  enum class Taken { kRecord, kNothing, kClosed };
  // Takes the event that was waited for; for any thread. kNothing: it has been removed since, and
  // there may be others. kClosed: the queue is closed and empty.
  Taken take(uint64_t& record);
  // Removes events; for any thread. It drops the events that `unwanted` names, and keeps the others
  // in order. An event that another thread has just taken is out of reach: its receiver has to
  // look whether it still means anything.
  void remove_if(const std::function<bool(uint64_t)>& unwanted);
  // Closes the queue; for any thread. Nothing is waited for any more: the descriptor stays
  // readable, and who takes gets what there is and then kClosed, which is EIO from a uverbs channel
  // whose device was removed.
  void close();

 private:
  std::mutex mutex_;
  // The records: as many as the eventfd says, and those being taken; when closed, the eventfd says
  // one more.
  std::deque<uint64_t> waiting_;
  bool closed_ = false;
  int fd_ = -1;  // lent
};

}  // namespace hostnic::abi
