// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs and ports, as JSON: the members' names are the ones that docs/operate.md lists.
#pragma once

#include <span>
#include <string>

#include "dataplane/daemon/daemon.h"
#include "dataplane/nic/views.h"
#include "protocol/json_writer.h"

namespace hostnic {

// The address of a queue pair's peer, as text. Any thread.
std::string peer_address(const Daemon& daemon, const QpView& qp);

// Writes the members of an object that the caller has begun, and ends; `nic` is the NIC's name.
// Any thread.
void write_members(JsonWriter& json, const std::string& nic, const QpView& qp,
                   const std::string& peer);
// Writes the planes of a queue pair of MRC, or of a NIC, as an array.
void write_planes(JsonWriter& json, std::span<const MrcPlaneView> planes);
// Writes a port, as an object.
void write_port(JsonWriter& json, const PortView& port);

}  // namespace hostnic
