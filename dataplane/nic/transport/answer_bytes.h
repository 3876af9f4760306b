// SPDX-License-Identifier: BSD-3-Clause
// The bytes of answers to READs and atomics, whatever the transport: out of the memory that is
// read, and into the memory that the requester's driver has named for them.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Builds an answer whose payload is copied behind its headers. Returns null if there is no buffer,
// or the memory is not to be read now, or it is `gone`. `range` may be of nothing where the answer
// has no payload.
inline rte_mbuf* build_copied_answer(Egress& egress, Placement& placement, Counters& counters,
                                     const wire::FlowTemplate& flow, const wire::Packet& p,
                                     const RemoteRange& range, const TransferUser& user,
                                     bool& gone) {
  rte_mbuf* const packet = rte_pktmbuf_alloc(egress.pools().data);
  if (packet == nullptr) {
    counters.add(Counter::tx_no_buffer);
    return nullptr;
  }
  auto* const frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(flow, p, egress.adds_icrc(), {}, {frame, wire::kMaxHeaderBytes});
  const MemoryAccess fetched =
      p.payload_bytes == 0
          ? MemoryAccess::kDone
          : placement.fetch(*range.region, range.iova, frame + header_bytes, p.payload_bytes, user);
  if (fetched != MemoryAccess::kDone) {
    rte_pktmbuf_free(packet);
    gone = fetched == MemoryAccess::kGone;
    return nullptr;
  }
  egress.finish_linear(packet, p, header_bytes);
  return packet;
}

// Puts bytes of an answer, from `offset` of its READ on, where its READ destination says.
// `sge_count` is `read.sge_count`, read once and checked: the driver may change it at any time.
// Returns kNone, too, where they are `not_now` to be placed.
inline LocalError place_answer(const QpContext& qp, Placement& placement,
                               const PlaceRequest& request, const ReadDestination& read,
                               uint32_t sge_count, uint64_t offset,
                               std::span<const std::byte> bytes, bool& not_now) {
  std::array<Sge, kMaxSge> sges;
  std::copy_n(read.sge, sge_count, sges.begin());
  LocalError error = LocalError::kNone;
  const PlaceResult placed =
      placement.scatter(qp.scope(), request, {sges.data(), sge_count}, offset, bytes, error);
  if (placed == PlaceResult::kMemoryGone) return LocalError::kProtection;
  not_now = placed == PlaceResult::kNotNow;
  return error;
}

}  // namespace hostnic
