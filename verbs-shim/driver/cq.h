// SPDX-License-Identifier: BSD-3-Clause
// Completion queue: a bounded ring of completions with arming. The producer is the driver's
// progress (any thread that holds the driver lock); the consumer any thread that polls. One lock of
// its own covers both, and the arm check, so that a completion and an arming can't miss each other
// (docs/transport.md rule 34).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "verbs-shim/base/biased_mutex.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

class Driver;
class MessageLog;

class Cq {
 public:
  // Called with the CQ's lock held when an armed queue gets a completion that the arming asked for:
  // must not call back into the driver. The ABI layer writes one record to the completion channel's
  // socket.
  using EventFn = void (*)(void* argument);

  // Makes a queue that `entries` >= 1 completions fit into. Throws std::bad_alloc.
  Cq(uint32_t entries, EventFn event, void* argument);
  ~Cq();
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;

  // May be called by any thread. Moves up to `max` completions to `out`; returns how many. Frees
  // the send queue slots of polled requests (rule 35).
  int poll(Completion* out, int max);
  // May be called by any thread. One event is raised when there is a completion of the kind asked
  // for that came after the last event: at once if one waits to be polled, else when the next one
  // comes. What an event has told of raises no second one (an adapter compares with the index that
  // it last notified): programs that poll once for each event, and arm before they poll, count on
  // that.
  void arm(Arm arm);
  // May be called by any thread. Returns 0, EINVAL when more completions are queued than fit, or
  // ENOMEM.
  int resize(uint32_t entries);
  uint32_t entries() const;
  bool empty() const { return held() == 0; }
  uint32_t held() const {
    return count_.load(std::memory_order_acquire);
  }  // completions in the
     // queue

  // May be called by any thread. Completions that have been polled, modulo something; whether the
  // queue is armed for.
  uint32_t polled() const;
  Arm armed_for() const;

  // Called with the driver lock taken. Returns false on overflow; the queue is then dead and
  // nothing more is delivered (CQ_ERR). `slot_counter`, when not null, is the queue pair's count of
  // freed queue slots; `slots` is added when the completion is polled.
  bool push(const Completion& completion, bool solicited, std::atomic<uint32_t>* slot_counter,
            uint32_t slots);
  // Forgets completions of a queue pair, and its slot counter, before it is destroyed or reset
  // (ibv_destroy_qp removes them).
  void remove_qp(uint32_t qpn);
  bool overflowed() const { return overflowed_; }
  // The number of queue pairs that use the queue, for EBUSY.
  std::atomic<uint32_t> users{0};
  // The number of armed queues of the context; the NIC reads it to decide how urgently to wake the
  // service thread. Set by Driver.
  std::atomic<uint32_t>* armed_total = nullptr;
  // Where polls of sends are told of while that word is not 0. Set by Driver.
  const std::atomic<uint32_t>* message_events = &kNever;
  MessageLog* messages = nullptr;

 private:
  // Entries are not touched before a completion reaches them: programs ask for as many as could
  // ever wait, and untouched memory takes no pages.
  struct Entry {
    Completion completion;
    std::atomic<uint32_t>* slot_counter = nullptr;
    uint32_t slots = 0;
    bool solicited = false;
  };
  static constexpr std::atomic<uint32_t> kNever{0};

  void tell_polled(int max);
  void disarm();
  void raise();
  bool holds_untold(Arm asked_for) const;

  mutable BiasedMutex mutex_;
  struct Free {
    void operator()(Entry* ring) const { std::free(ring); }
  };
  using Ring = std::unique_ptr<Entry[], Free>;
  static Ring make_ring(uint32_t entries);

  Ring ring_;
  uint32_t capacity_;
  uint32_t head_ = 0;
  std::atomic<uint32_t> count_{0};
  uint32_t untold_ = 0;  // completions since the last event; of those that wait they are the newest
  Arm arm_ = Arm::kNone;
  bool overflowed_ = false;
  EventFn event_;
  void* argument_;
};

}  // namespace hostnic::driver
