// SPDX-License-Identifier: BSD-3-Clause
// What a context does all the time: posts, and the turn that handles reports and timers.
#include <algorithm>
#include <array>

#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/driver_core.h"
#include "verbs-shim/driver/qp_prefetch.h"

namespace hostnic::driver {
namespace {

constexpr uint32_t kMetaBurst = 64;
// The number of queue pairs that are prefetched ahead: with thousands of them each report, timer
// and post finds another one's state in no cache near, and so many are enough to hide a memory
// access.
constexpr uint32_t kQpsAhead = 3;

}  // namespace

int Driver::post_send(Qp* qp, const SendRequest& request, TimeNs now_ns) {
  std::lock_guard lock(mutex_);
  last_now_ns_ = std::max(last_now_ns_, now_ns);
  core_->note_post(*qp);
  // The clock was read outside the lock, perhaps before a turn that took place since: for queue
  // pairs time does not go back.
  const int error = qp->post_send(request, last_now_ns_);
  core_->kick_if_needed();
  return error;
}

int Driver::post_recv(Qp* qp, const RecvRequest& request) {
  std::lock_guard lock(mutex_);
  const int error = qp->post_recv(request);
  core_->kick_if_needed();
  return error;
}

uint32_t Driver::free_send_slots(Qp* qp) {
  std::lock_guard lock(mutex_);
  return qp->free_send_slots();
}

void Driver::progress(TimeNs now_ns) {
  DriverCore& d = *core_;
  last_now_ns_ = std::max(last_now_ns_, now_ns);
  d.take_responses();
  d.take_reports(now_ns);
  if (turn_wanted()) {
    turn_wanted_.store(false, std::memory_order_relaxed);
    d.run_ready(now_ns);
    d.serve_ring_waiters(now_ns);
  }
  // Timers run after reports have been drained: what is still silent is silent (rule 25, silence is
  // not waiting).
  if (now_ns >= next_deadline_ns_.load(std::memory_order_relaxed)) {
    d.run_timers(now_ns);
    if (!d.late_reports.empty()) d.take_late_reports(now_ns);
  }
  d.kick_if_needed();
}

bool Driver::try_progress(TimeNs now_ns) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  progress(now_ns);
  return true;
}

// Programs tend to visit their connections in the same order again: what followed this queue pair
// when it was last posted to is likely to follow now.
void DriverCore::note_post(Qp& qp) {
  if (qp.status_index == last_posted) return;
  if (Qp* const before = qp_at(last_posted)) before->posted_next = qp.status_index;
  last_posted = qp.status_index;
  Qp* const next = qp_at(qp.posted_next);
  if (next == nullptr) return;
  QpPrefetch::slots(*next);
  if (const Qp* const second = qp_at(next->posted_next)) QpPrefetch::post(*second);
}

void DriverCore::clear_dirty(std::span<const MetaReport> reports) {
  for (const MetaReport& report : reports) {
    if (report.status_index < qps.size())
      map.qp_status(report.status_index).dirty.store(0, std::memory_order_relaxed);
  }
}

void DriverCore::take_reports(TimeNs now_ns) {
  std::array<MetaReport, kMetaBurst> metas;
  for (;;) {
    const int count = map.metas.dequeue_burst(metas.data(), kMetaBurst);
    if (count <= 0) return;
    const std::span reports(metas.data(), static_cast<size_t>(count));
    if (const uint32_t traced = message_events(); traced != 0) [[unlikely]]
      tell_posted(reports, traced);
    // The flag is cleared before the status is read: what the NIC writes afterwards makes a new
    // report. There is one fence for all, because each waits until every store before it has found
    // its cache line.
    clear_dirty(reports);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (settings().adversary_seed != 0) [[unlikely]]
      put_off_reports(reports, now_ns);
    for (size_t i = 0; i < reports.size(); ++i) {
      if (i + kQpsAhead < reports.size()) {
        if (Qp* const ahead = qp_at(reports[i + kQpsAhead].status_index))
          QpPrefetch::report(*ahead);
      }
      Qp* const qp = qp_at(reports[i].status_index);
      if (qp != nullptr && qp->qpn == reports[i].qpn) qp->on_report(now_ns);
    }
    if (count < static_cast<int>(kMetaBurst)) return;
  }
}

// Makes reports that are for later those of no queue pair.
void DriverCore::put_off_reports(std::span<MetaReport> reports, TimeNs now_ns) {
  for (MetaReport& report : reports) {
    Qp* const qp = qp_at(report.status_index);
    if (qp != nullptr && qp->qpn == report.qpn &&
        late_reports.put_off(*qp, report.qpn, settings().adversary_seed, now_ns))
      report.status_index = UINT32_MAX;
  }
  lower_deadline(late_reports.due_ns());
}

void DriverCore::take_late_reports(TimeNs now_ns) {
  late_reports.look_at_due(now_ns, [now_ns](Qp& qp) { qp.on_report(now_ns); });
  lower_deadline(late_reports.due_ns());
}

// Tells of messages before what is reported completes them.
void DriverCore::tell_posted(std::span<const MetaReport> reports, uint32_t session) {
  for (const MetaReport& report : reports)
    if (Qp* const qp = qp_at(report.status_index)) qp->tell_posted(session);
}

// Runs the QPs that have to look again.
void DriverCore::run_ready(TimeNs now_ns) {
  ready_next.swap(ready);
  for (Qp* qp : ready_next) qp->on_ready_list = false;
  for (Qp* qp : ready_next) {
    if (qp->state == QpState::kErr) {
      if (std::erase(unsent_error_moves, qp) != 0) move_nic_to_error(*qp);
    } else {
      if (const uint32_t traced = message_events(); traced != 0) [[unlikely]]
        qp->tell_posted(traced);
      qp->on_report(now_ns);
    }
  }
  ready_next.clear();
}

// Gives QPs that wait for room in the send ring their turns (rule 4, bounded queues).
void DriverCore::serve_ring_waiters(TimeNs now_ns) {
  for (uint32_t n = ring_waiters.size(); n != 0 && map.sends.has_room(1 + kMaxExtraElements); --n) {
    if (ring_waiters.size() > 2) QpPrefetch::issue(*ring_waiters.at(2));
    if (ring_waiters.size() > 1) QpPrefetch::waiting(*ring_waiters.at(1));
    Qp& qp = ring_waiters.pop();
    qp.waits_for_ring_space = false;
    in_turn = &qp;
    qp.issue(now_ns);
    in_turn = nullptr;
  }
  if (!ring_waiters.empty()) owner.turn_wanted_.store(true, std::memory_order_relaxed);
}

void DriverCore::run_timers(TimeNs now_ns) {
  owner.next_deadline_ns_.store(UINT64_MAX, std::memory_order_release);
  timers_due.swap(timers);
  for (size_t i = 0; i < timers_due.size(); ++i) {
    if (i + kQpsAhead < timers_due.size()) QpPrefetch::timer(*timers_due[i + kQpsAhead]);
    Qp* const qp = timers_due[i];
    qp->on_timer_list = false;
    if (qp->deadline_ns() <= now_ns) {
      qp->on_timer(now_ns);
    } else if (qp->deadline_ns() != UINT64_MAX) {
      want_timer(*qp);
    }
  }
  timers_due.clear();
}

bool Driver::reports_waiting() const {
  return !core_->map.metas.empty() || !core_->map.responses.empty();
}

}  // namespace hostnic::driver
