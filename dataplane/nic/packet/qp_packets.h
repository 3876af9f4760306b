// SPDX-License-Identifier: BSD-3-Clause
// How many packets refer to memory that work requests of one QP name (docs/transport.md rule 32).
// Packets are freed on any lcore, some after their QP or its NIC: the count lives until nobody
// needs it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace hostnic {

// PacketCount counts the packets of one QP that refer to memory. Nearly all packets are acquired
// and released by the lcore that the QP lives on, with thousands of QPs each to another count: so
// that lcore has a part of its own, which needs no locked instructions, and the sum says how many
// there are. Counts lie side by side in memory that is never freed, and are used again when nothing
// is out.
class PacketCount {
 public:
  // May be called by any thread; add() by others than the owner while the owner knows of a packet.
  void add(uint32_t packets) { change<std::memory_order_relaxed>(packets); }
  void remove(uint32_t packets) { change<std::memory_order_release>(0 - packets); }
  // Whether any packet is counted: exact on the owner's thread; on others while nothing is added.
  bool any() const {
    return owners_.load(std::memory_order_acquire) + others_.load(std::memory_order_acquire) != 0;
  }
  // Whether the calling thread is the owner, which counts without locked instructions.
  bool is_own() const { return owner_.load(std::memory_order_relaxed) == this_thread(); }

 private:
  friend class QpPackets;
  // Returns a count that the calling thread owns. Throws std::bad_alloc.
  static PacketCount* acquire();
  // Gives a count back: no more packets will be added. Packets that are out may stay for any time.
  static void release(PacketCount* count);

  static uint32_t this_thread() {
    static constinit thread_local uint32_t number = 0;
    if (number == 0) number = next_thread_.fetch_add(1, std::memory_order_relaxed);
    return number;
  }
  // The order is no parameter: where the compiler does not know it, a store is a locked
  // instruction.
  template <std::memory_order kOrder>
  void change(uint32_t by) {
    if (is_own()) {
      owners_.store(owners_.load(std::memory_order_relaxed) + by, kOrder);
    } else {
      others_.fetch_add(by, kOrder);
    }
  }

  inline static constinit std::atomic<uint32_t> next_thread_{1};
  std::atomic<uint32_t> owner_{0};
  std::atomic<uint32_t> owners_{0}, others_{0};  // modulo 2^32, as is their sum
  uint32_t holders_ = 0;
};

// A QP's reference to its count; copies refer to the same one. Used by one thread at a time.
class QpPackets {
 public:
  QpPackets() : count_(PacketCount::acquire()) {}
  QpPackets(const QpPackets& other) : count_(other.count_) { ++count_->holders_; }
  QpPackets& operator=(const QpPackets& other) {
    QpPackets copy(other);
    std::swap(count_, copy.count_);
    return *this;
  }
  ~QpPackets() {
    if (--count_->holders_ == 0) PacketCount::release(count_);
  }
  PacketCount* count() const { return count_; }
  bool any_out() const { return count_->any(); }

 private:
  PacketCount* count_;
};

}  // namespace hostnic
