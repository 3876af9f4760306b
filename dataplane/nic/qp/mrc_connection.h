// SPDX-License-Identifier: BSD-3-Clause
// What the NIC keeps of a connection by MRC (transport/mrc), beside what all queue pairs have. It
// is made with the connection, so that other queue pairs need no room for it.
#pragma once

#include <cstdint>

#include "protocol/fixed_ring.h"
#include "protocol/psn.h"
#include "protocol/transport/mrc/arrival_window.h"
#include "protocol/transport/mrc/entropy_set.h"
#include "protocol/transport/mrc/nscc.h"
#include "protocol/transport/mrc/path_ledger.h"
#include "protocol/transport/mrc/send_window.h"
#include "protocol/wire/mrc/control_headers.h"

namespace hostnic {

// What an answer says of the packet that it answers.
struct MrcAnswered {
  Psn psn;
  uint32_t entropy = 0;
  uint16_t timestamp = 0;
  bool again = false;   // the packet said that it has left before
  bool marked = false;  // by the network
};

// A probe that has come, and is to be answered.
struct MrcProbed {
  uint16_t id = 0;
  MrcAnswered answered;
};

struct MrcConnection {
  // The members from here on are the requester's.
  mrc::SendWindow sends;
  mrc::EntropySet paths;
  mrc::PathLedger ledger;  // of `paths`
  mrc::Nscc congestion;
  uint32_t probe_from = 0;  // where the search for the next path to probe begins
  uint64_t next_probe_ns = 0;
  bool on_probe_list = false;
  bool has_unwatched = false;  // paths that are assumed to be bad, which nobody probes now
  bool is_sending = false;     // the members above are of this connection

  // The members from here on are the responder's. What has executed is in QpContext::requests; what
  // has come, which SACKs tell, is here.
  mrc::ArrivalWindow arrivals;
  MrcAnswered last;  // what the SACK that is owed answers
  MrcAnswered refused;
  wire::mrc::NackReason nack_reason = wire::mrc::NackReason::kNoResource;
  bool sack_owed = false;
  bool nack_owed = false;  // about `refused`
  FixedRing<MrcProbed, 8> probes;
  uint16_t answers_by = 0;      // the entropy value of the newest packet that has come; 0: none has
  uint32_t received_bytes = 0;  // modulo 2^32
};

}  // namespace hostnic
