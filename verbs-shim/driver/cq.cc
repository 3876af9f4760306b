// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/cq.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <type_traits>
#include <utility>

#include "protocol/store_forwarding.h"
#include "verbs-shim/driver/message_log.h"

namespace hostnic::driver {

Cq::Cq(uint32_t entries, EventFn event, void* argument)
    : ring_(make_ring(entries)), capacity_(entries), event_(event), argument_(argument) {
  if (ring_ == nullptr) throw std::bad_alloc();
}

// Returns null if there is no memory.
Cq::Ring Cq::make_ring(uint32_t entries) {
  static_assert(std::is_trivially_copyable_v<Entry>);
  return Ring(static_cast<Entry*>(std::calloc(entries, sizeof(Entry))));
}

int Cq::poll(Completion* out, int max) {
  if (empty()) return 0;
  std::lock_guard lock(mutex_);
  if (message_events->load(std::memory_order_relaxed) != 0) [[unlikely]]
    tell_polled(max);
  int taken = 0;
  uint32_t count = count_.load(std::memory_order_relaxed);
  for (; taken < max && count != 0; --count) {
    const Entry& entry = ring_[head_];
    out[taken++] = entry.completion;
    if (entry.slot_counter != nullptr) {
      // A plain addition does, because nobody else adds: each queue pair's counter belongs to one
      // queue, whose lock is taken.
      const uint32_t freed = entry.slot_counter->load(std::memory_order_relaxed);
      entry.slot_counter->store(freed + entry.slots, std::memory_order_release);
    }
    if (++head_ == capacity_) head_ = 0;
  }
  count_.store(count, std::memory_order_release);
  return taken;
}

// Tells of the completions of sends that are about to be polled, up to `max`.
void Cq::tell_polled(int max) {
  const uint32_t session = message_events->load(std::memory_order_relaxed);
  const uint32_t count =
      std::min(count_.load(std::memory_order_relaxed), static_cast<uint32_t>(std::max(max, 0)));
  // The number of a request is what its slot counter will say, which counts slots of requests.
  const std::atomic<uint32_t>* counter = nullptr;
  uint32_t number = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Entry& entry = ring_[(head_ + i) % capacity_];
    if (entry.slot_counter == nullptr) continue;
    if (entry.slot_counter != counter) {
      counter = entry.slot_counter;
      number = counter->load(std::memory_order_relaxed);
      for (uint32_t before = 0; before < i; ++before) {
        const Entry& earlier = ring_[(head_ + before) % capacity_];
        if (earlier.slot_counter == counter) number += earlier.slots;
      }
    }
    number += entry.slots;
    messages->add({.kind = MessageEventKind::kPolled,
                   .op = SendOp{},
                   .signalled = 1,
                   .reserved = 0,
                   .qpn = entry.completion.qpn,
                   .ticks = MessageLog::ticks(),
                   .wr_id = entry.completion.wr_id,
                   .number = number,
                   .sequence = 0,
                   .session = 0,
                   .status = static_cast<uint32_t>(entry.completion.status),
                   .first_psn = 0,
                   .psns = 0,
                   .first_answer = 0,
                   .answers = 0,
                   .length_bytes = 0,
                   .reserved_word = 0},
                  session);
  }
}

void Cq::arm(Arm arm) {
  std::lock_guard lock(mutex_);
  // "Any" is not narrowed by a later "solicited only" (InfiniBand 11.4.2.2).
  const Arm asked_for = arm_ == Arm::kAny ? Arm::kAny : arm;
  if (holds_untold(asked_for)) {
    disarm();
    raise();
    return;
  }
  if (arm_ == Arm::kNone && armed_total != nullptr)
    armed_total->fetch_add(1, std::memory_order_seq_cst);
  arm_ = asked_for;
}

// Whether a completion waits to be polled that such an arming asks for, and that came after the
// last event. Programs that arm for solicited completions only have few others in the queue.
bool Cq::holds_untold(Arm asked_for) const {
  const uint32_t count = count_.load(std::memory_order_relaxed);
  const uint32_t untold = std::min(untold_, count);
  if (asked_for == Arm::kAny) return untold != 0;
  for (uint32_t i = count - untold; i < count; ++i) {
    const Entry& entry = ring_[(head_ + i) % capacity_];
    if (entry.solicited || entry.completion.status != WcStatus::kSuccess) return true;
  }
  return false;
}

void Cq::raise() {
  untold_ = 0;
  if (event_ != nullptr) event_(argument_);
}

void Cq::disarm() {
  if (arm_ != Arm::kNone && armed_total != nullptr)
    armed_total->fetch_sub(1, std::memory_order_relaxed);
  arm_ = Arm::kNone;
}

int Cq::resize(uint32_t entries) {
  std::lock_guard lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (entries == 0 || entries < count) return EINVAL;
  Ring ring = make_ring(entries);
  if (ring == nullptr) return ENOMEM;
  for (uint32_t i = 0; i < count; ++i) ring[i] = ring_[(head_ + i) % capacity_];
  ring_ = std::move(ring);
  capacity_ = entries;
  head_ = 0;
  return 0;
}

uint32_t Cq::polled() const {
  std::lock_guard lock(mutex_);
  return head_;
}

Arm Cq::armed_for() const {
  std::lock_guard lock(mutex_);
  return arm_;
}

uint32_t Cq::entries() const {
  std::lock_guard lock(mutex_);
  return capacity_;
}

bool Cq::push(const Completion& completion, bool solicited, std::atomic<uint32_t>* slot_counter,
              uint32_t slots) {
  std::lock_guard lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (overflowed_ || count == capacity_) {
    overflowed_ = true;
    return false;
  }
  uint32_t tail = head_ + count;
  if (tail >= capacity_) tail -= capacity_;
  // The completion is copied by fields, as the caller has just written it.
  Entry& entry = ring_[tail];
  Completion& to = entry.completion;
  to.wr_id = field(completion.wr_id);
  to.status = field(completion.status);
  to.opcode = field(completion.opcode);
  to.byte_len = field(completion.byte_len);
  to.imm_data = field(completion.imm_data);
  to.flags = field(completion.flags);
  to.qpn = field(completion.qpn);
  to.src_qpn = field(completion.src_qpn);
  to.vendor = field(completion.vendor);
  entry.slot_counter = slot_counter;
  entry.slots = slots;
  entry.solicited = solicited;
  count_.store(count + 1, std::memory_order_release);
  ++untold_;
  // An error counts as solicited (InfiniBand 11.4.2.2).
  if (arm_ == Arm::kAny ||
      (arm_ == Arm::kSolicited && (solicited || completion.status != WcStatus::kSuccess))) {
    disarm();
    raise();
  }
  return true;
}

void Cq::remove_qp(uint32_t qpn) {
  std::lock_guard lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  const uint32_t told = count - std::min(untold_, count);
  uint32_t kept = 0;
  untold_ = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Entry& entry = ring_[(head_ + i) % capacity_];
    if (entry.completion.qpn == qpn) continue;
    if (i >= told) ++untold_;
    if (kept != i) ring_[(head_ + kept) % capacity_] = entry;
    ++kept;
  }
  count_.store(kept, std::memory_order_release);
}

Cq::~Cq() { disarm(); }

}  // namespace hostnic::driver
