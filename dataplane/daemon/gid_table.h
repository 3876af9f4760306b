// SPDX-License-Identifier: BSD-3-Clause
// A NIC's GID table, by which programs choose the address that they send from. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "protocol/gid.h"
#include "protocol/hostif/control_message.h"
#include "protocol/wire/ethernet.h"

namespace hostnic {

// The link-local address that an interface with this MAC address makes for itself (RFC 4291).
Gid link_local_of(const wire::MacAddress& mac);

// The table of a NIC with these addresses, of which the first is its own; others than the first
// kMaxGids entries are left out. The mlx5 driver's begins with the link-local address: where the
// NIC has none, `mac`'s is there, and can't be used.
std::vector<GidEntry> make_gid_table(config::Gids layout, std::span<const Gid> addresses,
                                     const wire::MacAddress& mac);

}  // namespace hostnic
