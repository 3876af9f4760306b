// SPDX-License-Identifier: BSD-3-Clause
// What queue pairs share: the rings, the counters, and the lists of who wants what. DriverCore is
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/message_log.h"
#include "verbs-shim/driver/ring_waiters.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::driver {

class QpHost {
 public:
  explicit QpHost(const DriverSettings& settings) : settings_(settings) {}
  virtual ~QpHost() = default;
  const DriverSettings& settings() const { return settings_; }
  // Notes that descriptors went into a ring: the lock's owner kicks before unlocking.
  void published() { must_kick = true; }
  // How many bytes of this QP may wait in the NIC. To be asked when the QP hands some over.
  uint64_t queued_bytes_limit(uint32_t status_index, TimeNs now_ns) {
    if (status_index != last_sender_) {
      last_sender_ = status_index;
      several_until_ns_ = now_ns + kSendingNs;
    }
    return now_ns < several_until_ns_ ? settings_.queued_bytes_limit
                                      : settings_.sole_queued_bytes_limit;
  }
  virtual void want_issue(
      class Qp& qp) = 0;  // something keeps the QP from issuing that no report will announce
  virtual void wait_for_ring_space(
      class Qp& qp) = 0;  // the send ring is full, or others wait for it
  // Whether others wait for room in the ring, so that the QP's new work goes behind theirs.
  bool others_wait_for_ring_space(const class Qp& qp) const {
    return !ring_waiters.empty() && in_turn != &qp;
  }
  virtual void want_timer(class Qp& qp) = 0;  // the QP's deadline may have become earlier
  virtual void raise(AsyncEvent event, class Qp* qp, Cq* cq) = 0;
  virtual void srq_taken(Srq& srq) = 0;  // the NIC took receives from the queue: the limit event
                                         // may be due
  // Sends the QP to ERR in the NIC without waiting; Qp::on_nic_error_state() follows.
  virtual void move_nic_to_error(class Qp& qp) = 0;
  // Hands a bind or an invalidation to the NIC; Qp::on_window_answer() follows. Returns false if
  // there is no room now.
  virtual bool send_window_command(class Qp& qp, Command& command) = 0;

  // Asks hostnicd why: NicLink::ask_why, owe_line.
  virtual std::optional<Why> ask_why(const ExplainRequest& request) = 0;
  virtual void owe_line(const OwedLine& line) = 0;
  // Says why something failed, with the cause that hostnicd knows: before the program does, which
  // may end by it. Later where a host is being asked, or hostnicd takes long to answer.
  void say_why(const ExplainRequest& request, std::string before, std::string fallback) {
    const std::optional<Why> why = ask_why(request);
    OwedLine line{request, std::move(before), std::move(fallback)};
    if (why) line.request.ticket = why->ticket;
    if (!why || why->ticket != 0) return owe_line(line);
    say(line, why->text);
  }

  // Not 0 while hostnicd wants to be told of messages.
  uint32_t message_events() const {
    return map.header().message_events.load(std::memory_order_relaxed);
  }

  // Where what is done with success counts; null: nowhere.
  TrafficCounts* traffic() const { return traffic_; }

  SegmentMap map;
  MessageLog messages{map};
  DriverCounters totals;
  QpStatusBits bits;  // where each QP in its turn copies its status's bitmaps to
  RingWaiters ring_waiters;
  const class Qp* in_turn = nullptr;  // the QP that was taken from that queue and may use the ring
                                      // now
  bool must_kick = false;

 private:
  // A QP counts as sending for so long after it last handed something over.
  static constexpr uint64_t kSendingNs = 10'000'000;

  const DriverSettings& settings_;
  TrafficCounts* const traffic_ = settings_.traffic;
  uint32_t last_sender_ = 0;     // status of the QP that last handed something over
  TimeNs several_until_ns_ = 0;  // until then several QPs count as sending
};

}  // namespace hostnic::driver
