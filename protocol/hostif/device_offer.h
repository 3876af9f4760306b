// SPDX-License-Identifier: BSD-3-Clause
// What a device offers to programs: limits, features, and by which vendor's numbers. The defaults
// are hostnic's own; a personality (docs/personalities.md) offers less, and never more, but for
// what it is there to show.
#pragma once

#include <cstdint>

#include "protocol/hostif/segment.h"
#include "protocol/message_limits.h"

namespace hostnic {

// Features that a device can lack: the calls fail as an adapter's do.
enum MissingFeature : uint32_t {
  kMissingUc = 1u << 0,          // queue pairs of this type
  kMissingUd = 1u << 1,          // queue pairs of this type
  kMissingSrq = 1u << 2,         // shared receive queues
  kMissingSendOps = 1u << 3,     // ibv_create_qp_ex with send_ops_flags
  kMissingExtendedCq = 1u << 4,  // ibv_create_cq_ex
  kMissingTimestamps = 1u << 5,  // those of completions
  kMissingWindows = 1u << 6,     // memory windows
  kMissingOnDemand = 1u << 7,    // on-demand paging
};

struct DeviceOffer {
  // These are of a queue pair, and of a work request.
  uint32_t max_qp_wr = kMaxQueueEntries;
  uint32_t max_sge = kMaxSge;
  uint32_t max_inline_bytes = kMaxInlineBytes;
  uint32_t max_qp_rd_atom = kReadDestinationEntries;
  uint32_t max_message_bytes = kMaxMessageBytes;
  // These are of an open device.
  uint32_t max_cqs = 65536;
  // Adapters have this limit: libfabric's rxm asks for 262,144, ib_write_bw -q 10000 for 1,280,000.
  uint32_t max_cqe = 4'194'303;
  uint32_t max_pds = 65536;
  uint32_t max_ahs = 65536;
  uint32_t max_srqs = 16384;
  uint32_t max_srq_wr = kMaxQueueEntries;
  uint32_t max_srq_sge = kMaxSge;
  uint32_t local_ca_ack_delay = 15;  // 4.096 us * 2^15 = 134 ms: a busy laptop's worst

  uint32_t missing = 0;                 // MissingFeature bits
  uint32_t has_mem_mgt_extensions = 0;  // 1: IBV_DEVICE_MEM_MGT_EXTENSIONS is advertised
  uint32_t fails_send_with_inv = 0;     // 1: SEND_WITH_INV is taken, and fails
  // A vendor id that nobody can be assigned (locally administered OUI).
  uint32_t vendor_id = 0x02484e;
  // Debian's perftest looks at this number alone, whoever the vendor, and ignores -I where it does
  // not know it. Among the ids that it knows, this one makes no other difference.
  uint32_t vendor_part_id = 0x720;

  bool lacks(MissingFeature feature) const { return (missing & feature) != 0; }
  bool operator==(const DeviceOffer&) const = default;
};

}  // namespace hostnic
