// How many packets refer to memory that work requests of one QP name (TRANSPORT.md rule 32).
// Packets are freed on any lcore, some after their QP or its NIC: the count lives until nobody
// needs it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace hostnic {

class QpPackets {
 public:
  // The lower bits count packets, the upper ones holders.
  using Count = std::atomic<uint32_t>;

  QpPackets() : count_(new Count(kHolder)) {}
  QpPackets(const QpPackets& other) : count_(other.count_) {
    count_->fetch_add(kHolder, std::memory_order_relaxed);
  }
  QpPackets& operator=(const QpPackets& other) {
    QpPackets copy(other);
    std::swap(count_, copy.count_);
    return *this;
  }
  ~QpPackets() { drop(count_, kHolder); }

  // The QP's lcore: that many packets will refer to the memory, until packets_gone() on any lcore.
  Count* add_packets(uint32_t packets) {
    count_->fetch_add(packets, std::memory_order_relaxed);
    return count_;
  }
  // Any lcore, while one refers to it.
  static void packets_added(Count* count, uint32_t packets) {
    count->fetch_add(packets, std::memory_order_relaxed);
  }
  static void packets_gone(Count* count, uint32_t packets) { drop(count, packets); }
  Count* count() const { return count_; }
  bool any_out() const { return count_->load(std::memory_order_acquire) % kHolder != 0; }

 private:
  static constexpr uint32_t kHolder = 1u << 20;  // more packets than any pool has
  static void drop(Count* count, uint32_t share) {
    if (count->fetch_sub(share, std::memory_order_acq_rel) == share) delete count;
  }
  Count* count_;
};

}  // namespace hostnic
