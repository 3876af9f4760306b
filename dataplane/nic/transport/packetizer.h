// SPDX-License-Identifier: BSD-3-Clause
// From a descriptor to packets: headers, and the payload gathered from where the work request says
// that it lies, without a copy where the port and the memory allow that (rule 31). Both transports
// send by it.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "protocol/wire/packet.h"

namespace hostnic {

inline bool is_read_or_atomic(SendOp op) {
  return op == SendOp::kRead || op == SendOp::kCompareSwap || op == SendOp::kFetchAdd;
}

class Packetizer {
 public:
  Packetizer(const NicSettings& settings, Egress& egress, Placement& placement)
      : settings_(settings), egress_(egress), placement_(placement) {}

  // Returns the headers of the next packet, as the native transport says them.
  wire::Packet next_packet(const QpContext& qp, const SendProgress& progress) const;
  // Builds the packet with these headers. Returns null if there is no buffer now, or for
  // `progress.error`.
  rte_mbuf* build(QpContext& qp, SendProgress& progress, const wire::Packet& p) {
    return is_read_or_atomic(progress.descriptor.op)
               ? build_sent_small(qp, progress.descriptor, p, {}, egress_.pools().header)
               : build_data_packet(qp, progress, p);
  }
  // Notes that packets have left. Returns false if that was all of the descriptor.
  static bool note_progress(SendProgress& progress, uint32_t packets, uint32_t bytes);
  // Skips the payload of a packet that is lost before it is built: the payload of the next one lies
  // behind it all the same.
  static void pass_payload(SendProgress& progress, uint32_t bytes);

 private:
  static void set_request(const SendDescriptor& d, wire::Packet& p);
  void set_data(const SendDescriptor& d, uint32_t sent_bytes, wire::Packet& p) const;
  bool may_attach_payload(const QpContext& qp) const;
  rte_mbuf* build_sent_small(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                             std::span<const std::byte> payload, rte_mempool* pool);
  rte_mbuf* build_data_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p);
  rte_mbuf* build_gathered(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                           uint32_t part);

  const NicSettings& settings_;
  Egress& egress_;
  Placement& placement_;
};

}  // namespace hostnic
