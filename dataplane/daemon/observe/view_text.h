// SPDX-License-Identifier: BSD-3-Clause
// Views of NICs, queue pairs and peers as text for people, one line each. Pure functions, for any
// thread.
#pragma once

#include <string>

#include "dataplane/nic/management/peers.h"
#include "dataplane/nic/views.h"

namespace hostnic {

// A state as ibv_qp_state calls it, without its prefix.
const char* state_name(QpState state);
std::string type_name(const QpView& qp);  // "RC/roce": by the standard's transport

std::string to_text(const NicView& nic);
// " 60 good 4 bad": the states that there are.
std::string to_text(const MrcPlaneView& plane);
// "udp on eth0 (MTU 1500, ...)", and what went wrong there, as far as anything has.
std::string to_text(const PortView& port);
// `peer` is the address of its peer as text.
std::string to_text(const std::string& nic, const QpView& qp, const std::string& peer);
std::string to_text(const PeerView& peer);

}  // namespace hostnic
