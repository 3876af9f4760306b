// A queue of events that programs wait for on a file descriptor: completion channels and the async
// events of a device. A message socket carries one 8-byte record per event, because programs epoll
// the descriptor, set O_NONBLOCK on it and count on one readable message per event; an eventfd
// would merge them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace hostnic::abi {

class EventQueue {
 public:
  EventQueue() = default;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;
  ~EventQueue();

  // 0 or an errno value.
  int open();
  // The program's end: readable when an event waits.
  int fd() const { return read_fd_; }

  // Any thread, never blocks, loses nothing: what the socket can't take waits in memory and moves
  // up when pop() makes room.
  void push(uint64_t record);
  // Any thread. Waits unless the program set O_NONBLOCK. 0, or an errno value (EAGAIN, EINTR).
  // While it waits the thread may be cancelled. The frames that are unwound then, this one's and
  // its callers', must have nothing to clean up: this library's unwinder is not the program's.
  int pop(uint64_t& record);
  // Any thread. Drops the events that `unwanted` names, keeps the others in order. An event that
  // another thread has just popped is out of reach: its receiver has to look whether it still
  // means anything.
  void remove_if(const std::function<bool(uint64_t)>& unwanted);

 private:
  [[gnu::noinline]] void make_room();
  void refill();  // mutex_ held

  std::mutex mutex_;
  std::vector<uint64_t> waiting_;  // in order, all younger than what is in the socket
  int read_fd_ = -1;
  int write_fd_ = -1;
};

}  // namespace hostnic::abi
