// SPDX-License-Identifier: BSD-3-Clause
// Management datagrams on their way from a NIC's lcore to the control thread: a bounded queue of
// one producer and one consumer. The lcore never waits: what finds no room is dropped, and its
// sender repeats it.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <utility>

#include "protocol/cm/mad.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

struct ManagementDatagram {
  Ipv4Address from{}, to{};
  cm::MadBytes bytes{};
};

class ManagementQueue {
 public:
  static constexpr uint32_t kCapacity = 1024;

  ManagementQueue() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Called by the lcore. Returns false if there is no room.
  bool push(Ipv4Address from, Ipv4Address to, std::span<const std::byte, cm::kMadBytes> bytes) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kCapacity) return false;
    ManagementDatagram& slot = slots_[tail % kCapacity];
    slot.from = from;
    slot.to = to;
    std::copy(bytes.begin(), bytes.end(), slot.bytes.begin());
    tail_.store(tail + 1, std::memory_order_seq_cst);
    // The consumer is woken by one system call for all that comes before it looks.
    if (listening_.exchange(false, std::memory_order_seq_cst)) eventfd_write(event_fd_.get(), 1);
    return true;
  }

  // The consumer's file: readable when there may be something. After it has become readable the
  // consumer calls listen(), then pop() until there is nothing.
  int event_fd() const { return event_fd_.get(); }
  void listen() {
    eventfd_t count = 0;
    eventfd_read(event_fd_.get(), &count);
    listening_.store(true, std::memory_order_seq_cst);
  }
  bool pop(ManagementDatagram& out) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_seq_cst)) return false;
    out = slots_[head % kCapacity];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

 private:
  UniqueFd event_fd_;
  std::array<ManagementDatagram, kCapacity> slots_;
  std::atomic<uint32_t> head_{0}, tail_{0};
  std::atomic<bool> listening_{true};
};

}  // namespace hostnic
