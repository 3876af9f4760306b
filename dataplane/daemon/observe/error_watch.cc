// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/error_watch.h"

#include "dataplane/daemon/log.h"
#include "dataplane/daemon/observe/explain.h"

namespace hostnic {

ErrorWatch::ErrorWatch(Daemon& daemon) : daemon_(daemon), watched_(daemon.nics().size()) {}

void ErrorWatch::look() {
  for (size_t i = 0; i < watched_.size(); ++i) {
    NicInstance& instance = daemon_.nics()[i];
    look_at_port(instance, watched_[i]);
    // It starts again from 0 with `clear counters`.
    const uint64_t naks_sent = instance.nic->counters().get(Counter::nak_sent);
    if (naks_sent == watched_[i].naks_sent) continue;
    watched_[i].naks_sent = naks_sent;
    look_at(instance, watched_[i]);
  }
}

// Senders see what found no room as lost packets.
void ErrorWatch::look_at_port(const NicInstance& instance, Watched& watched) {
  if (instance.network == nullptr) return;
  const uint64_t found_full = instance.network->found_full();
  if (found_full == watched.found_full) return;
  const uint64_t more = found_full - watched.found_full;
  watched.found_full = found_full;
  log_problem(
      "{}: {} packets found the UDP socket full, of {} bytes: its lcore was busy, stopped or "
      "without a processor; a larger net.core.rmem_max gives more room at the next start",
      instance.plan.settings.name, more, instance.network->receive_buffer_bytes());
}

void ErrorWatch::look_at(NicInstance& instance, Watched& watched) {
  std::set<uint32_t> there;
  const auto note = [&](const QpView& qp, bool is_dead) {
    if (!qp.refused_its_peer || !there.insert(qp.qpn).second || watched.noted.contains(qp.qpn))
      return;
    note_error(fmt::format("{} QP {:#x} of {} (pid {}) has refused a {}",
                           instance.plan.settings.name, qp.qpn, qp.program, qp.pid,
                           is_dead ? describe_old_refusal(qp) : describe_refusal(instance, qp)));
  };
  for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
    std::vector<QpView> qps;
    instance.lcore->run_on([&] { qps = instance.nic->views().qps(from); });
    for (const QpView& qp : qps) note(qp, false);
  }
  // A program may have gone since.
  std::vector<DeadQpView> dead;
  instance.lcore->run_on([&] { dead = instance.nic->views().dead_qps(); });
  for (const DeadQpView& one : dead) note(one.last, true);
  watched.noted = std::move(there);
}

}  // namespace hostnic
