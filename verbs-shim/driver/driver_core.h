// SPDX-License-Identifier: BSD-3-Clause
// The driver's inside, shared by driver.cc and commands.cc.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/late_reports.h"
#include "verbs-shim/driver/qp.h"
#include "verbs-shim/driver/wait_watch.h"

namespace hostnic::driver {

struct DriverCore final : QpHost {
  DriverCore(Driver& driver, NicLink& nic_link)
      : QpHost(driver.settings_), owner(driver), link(nic_link) {}

  Driver& owner;
  NicLink& link;
  std::vector<std::unique_ptr<Qp>> qps;  // indexed by status
  std::vector<uint32_t> free_statuses;
  std::vector<std::unique_ptr<Srq>> srqs;
  uint32_t next_status = 0;
  std::vector<Qp*> ready, ready_next, timers, timers_due;
  uint32_t last_posted = 0;  // status of the QP that was last posted to
  std::atomic<bool> dead{false};
  Driver::AsyncFn async = nullptr;
  void* async_argument = nullptr;

  LateReports late_reports;
  WaitWatch waits;
  bool peers_are_silent = false;  // the queue pair that ended last was not answered in time
  uint32_t next_correlation = 1;
  uint32_t awaited = 0;  // correlation that execute() waits for; 0: none
  CommandResponse awaited_response{};
  // The queue pairs that commands are about, by correlation. Queue pairs that are destroyed are
  // taken out: forget().
  std::unordered_map<uint32_t, Qp*> error_moves;      // queue pairs that go to ERR
  std::vector<Qp*> unsent_error_moves;                // queue pairs whose move to ERR found the
                                                      // command ring full
  std::unordered_map<uint32_t, Qp*> window_commands;  // queue pairs whose window command waits for
                                                      // its answer

  // The functions of QpHost.
  void want_issue(Qp& qp) override {
    if (qp.on_ready_list) return;
    qp.on_ready_list = true;
    ready.push_back(&qp);
    owner.turn_wanted_.store(true, std::memory_order_relaxed);
  }
  void wait_for_ring_space(Qp& qp) override {
    if (qp.waits_for_ring_space) return;
    qp.waits_for_ring_space = true;
    ring_waiters.push(qp);
    owner.turn_wanted_.store(true, std::memory_order_relaxed);
  }
  void want_timer(Qp& qp) override {
    if (!qp.on_timer_list) {
      qp.on_timer_list = true;
      timers.push_back(&qp);
    }
    lower_deadline(qp.deadline_ns());
  }
  void raise(AsyncEvent event, Qp* qp, Cq* cq) override {
    if (async != nullptr) async(async_argument, event, qp == nullptr ? nullptr : qp->init.user, cq);
  }
  void srq_taken(Srq& srq) override {
    if (srq.limit_reached() && async != nullptr)
      async(async_argument, AsyncEvent::kSrqLimitReached, srq.init.user, nullptr);
  }
  std::optional<Why> ask_why(const ExplainRequest& request) override {
    return link.ask_why(request);
  }
  void owe_line(const OwedLine& line) override { link.owe_line(line); }
  void move_nic_to_error(Qp& qp) override;
  bool send_window_command(Qp& qp, Command& command) override;

  void lower_deadline(TimeNs deadline_ns) {
    if (deadline_ns < owner.next_deadline_ns_.load(std::memory_order_relaxed))
      owner.next_deadline_ns_.store(deadline_ns, std::memory_order_release);
  }
  void kick_if_needed() {
    if (std::exchange(must_kick, false)) link.kick();
  }
  int execute(Command& command, CommandResponse& response);
  int change_group(CommandKind kind, const Qp& qp, Ipv4Address group);
  void take_responses();
  Qp* qp_at(uint32_t status_index) const {
    return status_index < qps.size() ? qps[status_index].get() : nullptr;
  }
  void note_post(Qp& qp);
  void take_reports(TimeNs now_ns);
  void put_off_reports(std::span<MetaReport> reports, TimeNs now_ns);
  void take_late_reports(TimeNs now_ns);
  void clear_dirty(std::span<const MetaReport> reports);
  void tell_posted(std::span<const MetaReport> reports, uint32_t session);
  void run_timers(TimeNs now_ns);
  void run_ready(TimeNs now_ns);
  void serve_ring_waiters(TimeNs now_ns);
  ModifyQpCommand command_for(const Qp& qp, QpState state) const;
  Expected<Qp*, int> make_qp(const QpInit& init);
  int modify(Qp& qp, const QpAttr& wanted, uint32_t mask);
  void take_back_receives(Qp& qp);
  static void send_first(const Qp& qp, ModifyQpCommand& command);
  void forget(Qp& qp);
};

}  // namespace hostnic::driver
