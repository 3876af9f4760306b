// SPDX-License-Identifier: BSD-3-Clause
// The queue pairs of a NIC, for commands that show them. The control thread.
#pragma once

#include <optional>
#include <vector>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/daemon.h"

namespace hostnic {

// Calls visit(queue pair) for those that the asker sees.
template <typename Visit>
void visit_qps(NicInstance& nic, const Asker& asker, Visit&& visit) {
  const std::optional<uint32_t> user =
      asker.is_owner ? std::nullopt : std::optional(asker.is_one_user ? asker.uid : UINT32_MAX);
  // A few at a time: the lcore serves everybody else in between.
  for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
    std::vector<QpView> qps;
    nic.lcore->run_on([&] { qps = nic.nic->views().qps(from, user); });
    for (const QpView& qp : qps) visit(qp);
  }
}

}  // namespace hostnic
