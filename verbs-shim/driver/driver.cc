// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs, queues and events of one context: what is made, changed and ended.
#include "verbs-shim/driver/driver.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "verbs-shim/base/log.h"
#include "verbs-shim/base/refusal.h"
#include "verbs-shim/driver/driver_core.h"
#include "verbs-shim/driver/qp_prefetch.h"
#include "verbs-shim/driver/qp_state.h"

namespace hostnic::driver {
namespace {

// The smallest send queue that is granted. Programs with a queue of one (perftest's latency tests
// with events) post again as soon as the peer has answered, which under loss is before its
// acknowledgement has come.
constexpr uint32_t kMinSendWr = 16;
constexpr uint32_t kMinCqEntries = 64;

uint64_t own_receives_bytes(const QpInit& init) {
  return uint64_t{ReceiveQueue::entries_for(init)} * recv_slot_bytes(init.caps.max_recv_sge);
}

// Whether the program may end the queue pair only when what it posted has been handed over: some
// has not, and may soon.
bool may_hand_over_more(const Qp& qp) {
  const uint32_t next = qp.next_to_issue();
  return next != qp.tail() && !qp.failed() && (qp.state == QpState::kRts || qp.wqe(next).started) &&
         qp.requester().may_issue();
}

// Whether the peer may still acknowledge what was handed over.
bool waits_for_acks(const Qp& qp) { return qp.is_reliable() && qp.requester().in_flight() != 0; }

// Whether something of what was posted may still have to be handed over, first or again.
bool has_to_leave(const Qp& qp) {
  return may_hand_over_more(qp) ||
         (qp.is_sending() && waits_for_acks(qp) && qp.requester().may_issue());
}

}  // namespace

Driver::Driver(NicLink& link, SegmentMemory& memory, const DriverSettings& settings)
    : settings_(settings), core_(std::make_unique<DriverCore>(*this, link)) {
  error_ = core_->map.use(memory);
  if (error_ == 0) objects_.use(core_->map.object_board());
  settings_.max_qps = std::min(settings_.max_qps, error_ == 0 ? core_->map.max_qps() : 0);
  core_->ring_waiters.set_capacity(settings_.max_qps);
}
Driver::~Driver() = default;

void Driver::set_async_handler(AsyncFn fn, void* argument) {
  std::lock_guard lock(mutex_);
  core_->async = fn;
  core_->async_argument = argument;
}

std::unique_ptr<Cq> Driver::create_cq(uint32_t entries, Cq::EventFn event, void* argument) {
  // More entries are granted than were asked for, as by adapters: a program that counts on exactly
  // one entry is off by one under loss (kMinSendWr).
  auto cq = std::make_unique<Cq>(std::max(entries, kMinCqEntries), event, argument);
  cq->armed_total = &core_->map.header().armed_cqs;
  cq->message_events = &core_->map.header().message_events;
  cq->messages = &core_->messages;
  return cq;
}

uint32_t Driver::outstanding_sends(const Cq& cq) {
  std::lock_guard lock(mutex_);
  uint32_t requests = 0;
  for (const auto& qp : core_->qps) {
    if (qp != nullptr && qp->init.send_cq == &cq) requests += qp->outstanding_sends();
  }
  return requests;
}

// ---- queue pairs

Expected<Qp*, int> DriverCore::make_qp(const QpInit& wanted) {
  QpInit init = wanted;
  init.caps.max_send_wr = std::max(init.caps.max_send_wr, kMinSendWr);
  if (init.srq != nullptr) init.caps.max_recv_wr = init.caps.max_recv_sge = 0;
  const QpCaps& caps = init.caps;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return Unexpected(EINVAL);
  if (caps.max_send_wr > kMaxWr || caps.max_recv_wr > kMaxWr || caps.max_send_sge > kMaxSge ||
      caps.max_recv_sge > kMaxSge || caps.max_inline_bytes > kMaxInlineBytes) {
    return Unexpected(EINVAL);
  }
  uint32_t status_index;
  if (!free_statuses.empty()) {
    status_index = free_statuses.back();
    free_statuses.pop_back();
  } else if (next_status < settings().max_qps) {
    status_index = next_status++;
  } else {
    return Unexpected(ENOMEM);
  }
  const uint32_t entries = ReceiveQueue::entries_for(init);
  const uint64_t recv =
      init.srq != nullptr ? init.srq->slots_offset : map.allocate(own_receives_bytes(init));
  const uint64_t completions = map.allocate(ReceiveQueue::completion_bytes(init));
  const uint64_t read_destinations =
      map.allocate(kReadDestinationEntries * sizeof(ReadDestination));
  auto qp = std::make_unique<Qp>(*this, init, status_index, recv, completions, read_destinations);
  int error = recv == 0 || completions == 0 || read_destinations == 0 ? ENOMEM : 0;
  CommandResponse response{};
  if (error == 0) {
    map.make_status_pages(status_index);
    map.make_pages(completions, ReceiveQueue::completion_bytes(init));
    map.make_pages(read_destinations, kReadDestinationEntries * sizeof(ReadDestination));
    Command command{};
    command.kind = CommandKind::kCreateQp;
    command.create_qp = {.status_index = status_index,
                         .pd = init.pd,
                         .recv_queue_offset = recv,
                         .recv_completion_offset = completions,
                         .read_destination_offset = read_destinations,
                         .srq_offset = init.srq != nullptr ? init.srq->queue_offset : 0,
                         .recv_entries = entries,
                         .recv_max_sge = static_cast<uint16_t>(
                             init.srq != nullptr ? init.srq->init.max_sge : caps.max_recv_sge),
                         .read_destination_entries = kReadDestinationEntries,
                         .type = init.type,
                         .recv_pd = init.srq != nullptr ? init.srq->init.pd : init.pd};
    error = execute(command, response);
  }
  if (error != 0) {
    forget(*qp);
    return Unexpected(error);
  }
  qp->qpn = response.qpn;
  init.send_cq->users.fetch_add(1);
  init.recv_cq->users.fetch_add(1);
  if (init.srq != nullptr) ++init.srq->users;
  Qp* made = qp.get();
  // The table grows by need, because most contexts have few queue pairs.
  if (status_index >= qps.size()) qps.resize(std::min(2 * status_index + 16, settings().max_qps));
  qps[status_index] = std::move(qp);
  return made;
}

// Gives back a queue pair's segment memory and status.
void DriverCore::forget(Qp& qp) {
  if (qp.init.srq == nullptr) map.release(qp.recv_offset, own_receives_bytes(qp.init));
  map.release(qp.recv_completion_offset, ReceiveQueue::completion_bytes(qp.init));
  map.release(qp.read_destination_offset, kReadDestinationEntries * sizeof(ReadDestination));
  free_statuses.push_back(qp.status_index);
  std::erase(ready, &qp);
  std::erase(ready_next, &qp);
  if (qp.waits_for_ring_space) ring_waiters.erase(qp);
  std::erase(timers, &qp);
  late_reports.forget(qp);
  const auto its_own = [&qp](const auto& asked) { return asked.second == &qp; };
  std::erase_if(error_moves, its_own);
  std::erase(unsent_error_moves, &qp);
  std::erase_if(window_commands, its_own);
}

Expected<Qp*, int> Driver::create_qp(const QpInit& init) {
  std::lock_guard lock(mutex_);
  Expected<Qp*, int> qp = core_->make_qp(init);
  if (qp && core_->traffic() != nullptr) ++core_->traffic()->queue_pairs;
  return qp;
}

// Hands over what was posted before a queue pair ends, as far as it goes: who has rung an adapter
// has practically sent (rule 28). What may be lost, or be put off by the peer, is waited for as
// well: nobody repeats it afterwards. Given up when nothing moves though the NIC has had turns.
void Driver::let_posted_leave(Qp* qp) {
  constexpr uint32_t kFirstPauseNs = 20'000, kLongestPauseNs = 1'000'000;
  // Pauses in which the NIC had a turn; and all, where it gets no processor or is stopped.
  constexpr uint64_t kAllPausesNs = 100'000'000, kWithoutTurnsNs = 1'000'000'000;
  // A probe and a timeout or two, where acknowledgements are missing. A peer that waits for a
  // processor takes longer: the first silent one is waited for as long as may be, and not those
  // behind it, which may be a thousand of a host that has died.
  constexpr uint64_t kUnmovedNs = 2'000'000, kUnansweredNs = 20'000'000;
  uint64_t waited_ns = 0, unmoved_ns = 0, paused_ns = 0;
  const auto& nic_turn_ns = core_->map.header().nic_turn_ns;
  TimeNs seen_turn_ns = nic_turn_ns.load(std::memory_order_relaxed);
  uint64_t patience_ns = kUnmovedNs;
  uint32_t pause_ns = kFirstPauseNs, in_flight = 0;
  Psn next;
  while (waited_ns < kAllPausesNs && unmoved_ns < patience_ns && paused_ns < kWithoutTurnsNs) {
    {
      std::lock_guard lock(mutex_);
      if (core_->dead.load(std::memory_order_acquire) || !has_to_leave(*qp)) return;
      progress(last_now_ns_);
      qp->issue(last_now_ns_);
      core_->published();  // a NIC that sleeps is woken: a turn of its tells that nothing moves
      core_->kick_if_needed();
      if (!has_to_leave(*qp)) {
        core_->peers_are_silent = false;
        return;
      }
      // Unreliable packets are in flight until the NIC has sent them, some in each turn.
      patience_ns = qp->requester().in_flight() == 0                ? kUnmovedNs
                    : !qp->is_reliable() || core_->peers_are_silent ? kUnansweredNs
                                                                    : kAllPausesNs;
      if (next != qp->requester().next() || in_flight != qp->requester().in_flight())
        unmoved_ns = 0;
      next = qp->requester().next();
      in_flight = qp->requester().in_flight();
    }
    core_->link.pause(pause_ns);
    paused_ns += pause_ns;
    const TimeNs turn_ns = nic_turn_ns.load(std::memory_order_relaxed);
    if (std::exchange(seen_turn_ns, turn_ns) != turn_ns) {
      waited_ns += pause_ns;
      unmoved_ns += pause_ns;
    }
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
  std::lock_guard lock(mutex_);
  core_->peers_are_silent = waits_for_acks(*qp);
}

// Unreliable ones say what has been transmitted, which is as good as an acknowledgement here.
void Driver::let_all_leave() {
  constexpr uint32_t kPauseNs = 100'000;
  constexpr uint64_t kAllPausesNs = 100'000'000;
  for (uint64_t waited_ns = 0; waited_ns < kAllPausesNs; waited_ns += kPauseNs) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
      if (core_->dead.load(std::memory_order_acquire)) return;
      progress(last_now_ns_);
      bool any = false;
      for (const auto& qp : core_->qps) {
        if (qp == nullptr) continue;
        if (!has_to_leave(*qp) && (!qp->is_sending() || qp->requester().in_flight() == 0)) continue;
        any = true;
        qp->issue(last_now_ns_);
      }
      if (!any) return;
      core_->published();
      core_->kick_if_needed();
    }
    core_->link.pause(kPauseNs);
  }
}

int Driver::destroy_qp(Qp* qp) {
  let_posted_leave(qp);
  std::lock_guard lock(mutex_);
  Command command{};
  command.kind = CommandKind::kDestroyQp;
  command.destroy_qp = {.qpn = qp->qpn,
                        .sends_until_psn = qp->requester().next().value(),
                        .sends_first = qp->is_sending() ? uint8_t{1} : uint8_t{0},
                        .reserved = {}};
  CommandResponse response{};
  const int error = core_->execute(command, response);
  if (error != 0 && error != EIO) return error;
  qp->init.send_cq->remove_qp(qp->qpn);
  qp->init.recv_cq->remove_qp(qp->qpn);
  qp->init.send_cq->users.fetch_sub(1);
  qp->init.recv_cq->users.fetch_sub(1);
  qp->release_receives();
  if (qp->init.srq != nullptr) --qp->init.srq->users;
  core_->forget(*qp);
  core_->qps[qp->status_index].reset();
  return 0;
}

// Takes receives back on the way to RESET, where the status forgets them: in ERR the NIC takes no
// more from the shared queue, and the status still says what it took.
void DriverCore::take_back_receives(Qp& qp) {
  Command command{};
  command.kind = CommandKind::kModifyQp;
  command.modify_qp = command_for(qp, QpState::kErr);
  send_first(qp, command.modify_qp);
  CommandResponse response{};
  execute(command, response);
  qp.release_receives();
}

// Has the NIC send what it was handed before it takes the queue pair to ERR or RESET.
void DriverCore::send_first(const Qp& qp, ModifyQpCommand& command) {
  if (!qp.is_sending()) return;
  command.sends_first = 1;
  command.sq_psn = qp.requester().next().value();
}

// EAGAIN: the NIC does not know yet what the peer speaks, or where it is; nothing has changed.
int DriverCore::modify(Qp& qp, const QpAttr& wanted, uint32_t mask) {
  if (const int error = check_transition(qp.init.type, qp.state, wanted, mask); error != 0)
    return error;
  const DeviceLimits limits{.mtu_bytes = settings().mtu_bytes,
                            .max_rd_atomic = settings().max_rd_atomic};
  if ((mask & kQpMaxQpRdAtomic) != 0 && wanted.max_rd_atomic > limits.max_rd_atomic)
    return refuse({Reason::kMaxRdAtomic, wanted.max_rd_atomic, limits.max_rd_atomic});
  if ((mask & kQpMaxDestRdAtomic) != 0 && wanted.max_dest_rd_atomic > limits.max_rd_atomic)
    return refuse({.reason = Reason::kMaxRdAtomic,
                   .given = wanted.max_dest_rd_atomic,
                   .limit = limits.max_rd_atomic,
                   .text = "max_dest_rd_atomic"});
  if (const char* what = refused_attribute(wanted, mask, limits)) {
    return refuse({.reason = Reason::kAttribute, .text = what});
  }
  const QpAttr before = qp.attr;
  apply_attributes(qp.attr, wanted, mask);
  const QpState to = (mask & kQpState) != 0 ? wanted.state : qp.state;
  if (to == QpState::kErr && qp.state == QpState::kErr) return 0;
  if (to == QpState::kReset && qp.init.srq != nullptr) take_back_receives(qp);
  Command command{};
  command.kind = CommandKind::kModifyQp;
  command.modify_qp = command_for(qp, to);
  if (qp.state == QpState::kSqe && to == QpState::kRts) {
    command.modify_qp.restart_sends = 1;
    command.modify_qp.sq_psn = qp.requester().next().value();
  }
  if (to == QpState::kErr || to == QpState::kReset) send_first(qp, command.modify_qp);
  CommandResponse response{};
  if (const int error = execute(command, response); error != 0) {
    thread_local std::array<char, 64> peer;
    if (error == EHOSTUNREACH) {
      snprintf(peer.data(), peer.size(), "%s", to_string(qp.attr.dest_gid).c_str());
      refuse({.reason = Reason::kNobody, .text = peer.data()});
    }
    qp.attr = before;
    return error;
  }
  if (to == QpState::kRtr) qp.set_transport(response.transport);
  if (to == QpState::kSqd)
    qp.notify_drained = (mask & kQpEnSqdAsyncNotify) != 0 && wanted.en_sqd_async_notify;
  if (to == QpState::kReset) {
    qp.init.send_cq->remove_qp(qp.qpn);
    qp.init.recv_cq->remove_qp(qp.qpn);
  }
  if (to == QpState::kErr) qp.take_last_acks(owner.last_now_ns_);
  // Answers next to the one awaited may have moved queue pairs meanwhile, this one too; the time is
  // only a lower bound here.
  if (to != qp.state) qp.enter_state(to, owner.last_now_ns_);
  kick_if_needed();
  return 0;
}

// Asks the NIC, with the lock, until it says something else than EAGAIN.
template <typename Ask>
int Driver::ask_until_known(const Ask& ask) {
  // Short at first: mostly the answer takes a round trip. All together is longer than the NIC gives
  // a host, or several clients' hosts one after the other.
  constexpr uint32_t kFirstPauseNs = 20'000, kLongestPauseNs = 2'000'000;
  constexpr uint64_t kAllPausesNs = 10'000'000'000;
  uint32_t pause_ns = kFirstPauseNs;
  for (uint64_t waited_ns = 0;;) {
    {
      std::lock_guard lock(mutex_);
      const int error = ask();
      if (error != EAGAIN) return error;
    }
    if (waited_ns >= kAllPausesNs) return ETIMEDOUT;
    core_->link.pause(pause_ns);
    waited_ns += pause_ns;
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
}

int Driver::modify_qp(Qp* qp, const QpAttr& attr, uint32_t mask) {
  if ((mask & kQpState) != 0 && (attr.state == QpState::kErr || attr.state == QpState::kReset))
    let_posted_leave(qp);
  return ask_until_known([&] { return core_->modify(*qp, attr, mask); });
}

int Driver::find_host(Ipv4Address ip) {
  return ask_until_known([&] {
    Command command{};
    command.kind = CommandKind::kFindHost;
    command.find_host.ip = raw(ip);
    CommandResponse response{};
    const int error = core_->execute(command, response);
    core_->kick_if_needed();
    return error;
  });
}

void Driver::query_qp(Qp* qp, QpAttr& attr, QpCaps& caps) {
  std::lock_guard lock(mutex_);
  attr = qp->attr;
  attr.state = attr.cur_state = qp->state;
  attr.sq_draining = qp->draining();
  caps = qp->init.caps;
}

void Driver::set_mrc_limits(Qp* qp, const MrcLimits& limits) {
  std::lock_guard lock(mutex_);
  qp->attr.mrc = limits;
}

// ---- shared receive queues

Expected<Srq*, int> Driver::create_srq(const SrqInit& init) {
  std::lock_guard lock(mutex_);
  auto made = Srq::create(core_->map, init);
  if (!made) return Unexpected(made.error());
  return core_->srqs.emplace_back(std::move(*made)).get();
}

int Driver::destroy_srq(Srq* srq) {
  std::lock_guard lock(mutex_);
  if (srq->users != 0) return EBUSY;
  std::erase_if(core_->srqs, [srq](const auto& one) { return one.get() == srq; });
  return 0;
}

int Driver::arm_srq(Srq* srq, uint32_t limit) {
  std::lock_guard lock(mutex_);
  if (limit > srq->init.max_wr) return EINVAL;
  srq->arm(limit);
  core_->srq_taken(*srq);
  return 0;
}

QpGauges Driver::gauges(Qp* qp) {
  std::lock_guard lock(mutex_);
  return qp->requester().gauges(*qp);
}

bool Driver::try_look_at_waits(TimeNs now_ns) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  core_->waits.look(*core_, now_ns);
  return true;
}

void Driver::device_fatal() {
  if (core_->dead.exchange(true, std::memory_order_acq_rel)) return;
  std::lock_guard lock(mutex_);
  for (auto& qp : core_->qps) {
    if (qp == nullptr || qp->state == QpState::kReset) continue;
    qp->enter_state(QpState::kErr, last_now_ns_);
  }
  core_->raise(AsyncEvent::kDeviceFatal, nullptr, nullptr);
}

void Driver::port_changed(bool up) {
  std::lock_guard lock(mutex_);
  core_->raise(up ? AsyncEvent::kPortActive : AsyncEvent::kPortErr, nullptr, nullptr);
}

void Driver::gid_changed() {
  std::lock_guard lock(mutex_);
  core_->raise(AsyncEvent::kGidChange, nullptr, nullptr);
}

DriverCounters Driver::counters() {
  std::lock_guard lock(mutex_);
  return core_->totals;
}

}  // namespace hostnic::driver
