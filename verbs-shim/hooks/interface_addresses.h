// SPDX-License-Identifier: BSD-3-Clause
// The addresses of NICs on the virtual wire, for programs that look for an RDMA device by the
// addresses of this machine: getifaddrs() names them as if they had been added to the loopback
// interface with a label ("lo:hnic0"), which is how they work for TCP. IFF_LOOPBACK is not among
// the flags: libfabric and others take no RDMA device from such an interface.
#pragma once

#include <ifaddrs.h>

namespace hostnic::hooks {

// Makes entries for the visible NICs whose addresses are loopback addresses and that `real`, which
// may be null, does not name: one malloc block, null when there are none (or no memory). For any
// thread; asks hostnicd.
ifaddrs* wire_addresses(const ifaddrs* real);
// Whether an entry belongs to such a block.
bool is_wire_address(const ifaddrs& entry);

}  // namespace hostnic::hooks
