// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/wait_watch.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "verbs-shim/base/explanation.h"
#include "verbs-shim/driver/driver_core.h"

namespace hostnic::driver {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// Servers wait for their clients, and programs compute between two looks at a queue: these are told
// later than what only a mistake, or a failure, explains.
constexpr uint64_t kPatientNs = 2 * kSecondNs;

// The lock is held meanwhile: of more queue pairs only so many are looked at.
constexpr size_t kMostQps = 512;

// What a queue pair may wait for, as it stands.
struct WaitView {
  bool sends = false;     // requests are outstanding, and may go
  bool is_rnr = false;    // the peer has no receive for them
  bool receives = false;  // nothing but a message of the peer's is waited for
  bool unsaid = false;    // all requests are done, some without a completion
  uint32_t unsignalled = 0;
  uint64_t marker = 0;
};

// As a queue pair stands.
WaitView view_of(const Qp& qp) {
  WaitView view;
  const ReceiveQueue& receives = qp.receives();
  const bool has_had_none =
      qp.init.srq == nullptr && receives.taken() == 0 && qp.tail() == 0 && !qp.failed();
  // Whoever sends to a queue pair that is not connected yet is not heard.
  view.receives = has_had_none && qp.state == QpState::kInit && receives.any_posted();
  if ((qp.state != QpState::kRts && qp.state != QpState::kRtr) || qp.failed()) return view;
  view.sends = qp.is_reliable() && qp.state == QpState::kRts && !qp.idle();
  // A READ whose request has arrived has nothing in flight but its answers.
  const QpGauges gauges = qp.requester().gauges(qp);
  view.is_rnr = view.sends && (!qp.requester().may_issue() ||
                               gauges.requests_in_flight + gauges.responses_in_flight == 0);
  // What comes for an unreliable one that has no receive is dropped, and nobody is told. Of a
  // connection that was used hostnicd says only what is certainly wrong: programs may well rest. An
  // unreliable one that has sent, and got nothing, may have sent to nobody.
  const bool may_have_none = qp.is_reliable() || receives.taken() == 0;
  view.receives = has_had_none ? receives.any_posted() || !qp.is_reliable()
                               : may_have_none && qp.idle() && receives.any_posted();
  view.unsaid = qp.idle() && qp.unreported() != 0 && qp.unreported() == qp.tail() &&
                !receives.any_posted() && qp.init.send_cq->empty();
  view.unsignalled = qp.unreported();
  view.marker = uint64_t{qp.requester().una().value()} << 32 | (qp.head() + receives.taken());
  return view;
}

// Says for how long requests have waited, and what hostnicd knows about that.
void tell_send_wait(const DriverCore& driver, const Qp& qp, bool is_rnr, double waited_s) {
  char before[128];
  if (is_rnr)
    snprintf(before, sizeof before, "QP 0x%x: RNR for %.1f s", qp.qpn, waited_s);
  else
    snprintf(before, sizeof before, "QP 0x%x: no answer for %.1f s (%llu timeouts, %llu probes)",
             qp.qpn, waited_s, static_cast<unsigned long long>(driver.totals.timeouts),
             static_cast<unsigned long long>(driver.totals.probes));
  qp.host.owe_line(
      {qp.question_about(qp.head(), is_rnr ? Question::kNotReady : Question::kSilent), before,
       is_rnr ? "the peer has posted no receive" : "the peer, or the network to it, is silent"});
}

// The same of receives, about which nothing is said unless somebody knows why.
void tell_receive_wait(const Qp& qp, double waited_s) {
  char before[128];
  snprintf(before, sizeof before,
           qp.receives().any_posted() ? "QP 0x%x: its receives have waited for %.1f s"
                                      : "QP 0x%x: nothing has come for %.1f s",
           qp.qpn, waited_s);
  ExplainRequest request{};
  request.qpn = qp.qpn;
  request.question = Question::kWaiting;
  qp.host.owe_line({request, before, {}});
}

// What keeps a program that waits for an event from getting one.
const char* text_of(Arm armed_for) {
  switch (armed_for) {
    case Arm::kNone:
      return "; it is not armed, either: where ibv_get_cq_event is waited for, ibv_req_notify_cq "
             "comes before";
    case Arm::kSolicited:
      return "; it is armed for solicited ones only (ibv_req_notify_cq's solicited_only): no "
             "message that was sent with IBV_SEND_SOLICITED, and no error, is among them";
    case Arm::kAny:
      break;
  }
  return "";
}

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

bool WaitClock::due(uint64_t marker, TimeNs now_ns, uint64_t limit_ns) {
  if (looked_ns_ == 0 || marker != marker_) {
    marker_ = marker;
    waited_ns_ = 0;
    told_ = false;
  } else {
    waited_ns_ += std::min<uint64_t>(now_ns - std::min(now_ns, looked_ns_), kLongestStepNs);
  }
  looked_ns_ = now_ns;
  if (told_ || waited_ns_ < limit_ns) return false;
  told_ = true;
  return true;
}

void WaitWatch::look(DriverCore& driver, TimeNs now_ns) {
  std::unordered_map<uint32_t, QpClocks> qps_before;
  std::unordered_map<const Cq*, WaitClock> cqs_before;
  qps_before.swap(qps_);
  cqs_before.swap(cqs_);
  for (const auto& qp : driver.qps) {
    if (qp == nullptr) continue;
    if (qps_.size() == kMostQps) return;
    if (const auto known = qps_before.find(qp->qpn); known != qps_before.end())
      qps_[qp->qpn] = known->second;
    look_at(driver, *qp, now_ns);
    for (Cq* const cq : {qp->init.send_cq, qp->init.recv_cq}) {
      if (cqs_.contains(cq)) continue;
      if (const auto known = cqs_before.find(cq); known != cqs_before.end())
        cqs_[cq] = known->second;
      look_at(*cq, *qp, now_ns);
    }
  }
}

void WaitWatch::look_at(DriverCore& driver, Qp& qp, TimeNs now_ns) {
  const WaitView view = view_of(qp);
  QpClocks& clocks = qps_[qp.qpn];
  if (!view.sends) {
    clocks.sends.rest();
  } else if (clocks.sends.due(view.marker, now_ns, kSecondNs)) {
    tell_send_wait(driver, qp, view.is_rnr, seconds(clocks.sends.waited_ns()));
  }
  if (!view.receives) {
    clocks.receives.rest();
  } else if (clocks.receives.due(view.marker, now_ns, kPatientNs)) {
    tell_receive_wait(qp, seconds(clocks.receives.waited_ns()));
  }
  if (!view.unsaid) {
    clocks.unsaid.rest();
  } else if (clocks.unsaid.due(view.marker, now_ns, kPatientNs)) {
    explain(
        "QP 0x%x: %u unsignalled requests are done, for %.1f s: no completion says so, unless one "
        "behind them is signalled (IBV_SEND_SIGNALED, sq_sig_all)",
        qp.qpn, view.unsignalled, seconds(clocks.unsaid.waited_ns()));
  }
}

// A program knows its queues by the queue pairs that use them.
void WaitWatch::look_at(Cq& cq, const Qp& user, TimeNs now_ns) {
  WaitClock& clock = cqs_[&cq];
  const uint32_t held = cq.held();
  if (held == 0) return clock.rest();
  if (!clock.due(cq.polled(), now_ns, kPatientNs)) return;
  const char* const uses = user.init.send_cq == user.init.recv_cq ? "sends and receives"
                           : user.init.send_cq == &cq             ? "sends"
                                                                  : "receives";
  const bool one = held == 1;
  explain(
      "the completion queue of QP 0x%x's %s (%u entries): %u completion%s been there for %.1f s "
      "and "
      "%s not polled%s",
      user.qpn, uses, cq.entries(), held, one ? " has" : "s have", seconds(clock.waited_ns()),
      one ? "is" : "are", text_of(cq.armed_for()));
}

}  // namespace hostnic::driver
