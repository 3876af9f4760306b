// SPDX-License-Identifier: BSD-3-Clause
// Whether a packet is as long as the connection's path MTU wants it.
#pragma once

#include "dataplane/nic/qp/qp_context.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Whether a packet's payload has the length that the path MTU asks for: exactly that, and at most
// that in a message's last packet (InfiniBand 9.7.2.1): with another path MTU at the sender, the
// two ends would count PSNs by different lengths.
[[gnu::always_inline]] inline bool fits_path_mtu(const QpContext& qp, const wire::Packet& p) {
  return p.more ? p.payload_bytes == qp.mtu_bytes : p.payload_bytes <= qp.mtu_bytes;
}

}  // namespace hostnic
