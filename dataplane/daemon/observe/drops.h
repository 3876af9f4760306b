// SPDX-License-Identifier: BSD-3-Clause
// Why nothing arrives at a queue pair, as far as its own NIC knows: what it has dropped without a
// word to the sender. Pure functions, for any thread.
#pragma once

#include <string>

#include "dataplane/nic/views.h"

namespace hostnic {

// What was dropped last, and why, as part of a sentence; empty: nothing. `nic` is the name of its
// NIC.
std::string why_dropped(const QpView& qp, const std::string& nic);
// Says why datagrams came for queue pairs that the NIC does not have; `from` is the last one's
// host.
std::string why_stray(const StrayDatagrams& stray, const std::string& nic, const std::string& from,
                      uint32_t own_qpn);
// Says it to the sender of the last one.
std::string why_lost(const StrayDatagrams& stray, const std::string& nic);

}  // namespace hostnic
