// SPDX-License-Identifier: BSD-3-Clause
// The two ends of a connection as an explanation looks at them: a NIC of this hostnicd, or one at
// another host, of which that has told (told.h); and the sentences about them, which are the same.
// Any thread but an lcore.
#pragma once

#include <optional>
#include <string>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/observe/inquiries.h"
#include "dataplane/nic/views.h"
#include "protocol/cm/inquiry.h"

namespace hostnic {

// A place: a NIC, and what it says of a queue pair.
struct End {
  NicInstance* instance = nullptr;  // null: it is another host's, or nobody's
  std::string nic;
  std::optional<QpView> qp;
  std::optional<cm::InquiryAnswer> told;  // another host's: all that it has said
};

// What a request asked of the peer.
struct Asked {
  SendOp op;
  uint32_t key = 0;
  uint64_t va = 0, length_bytes = 0;
};
Asked asked_of(const RefusedRequest& refused);

const char* type_name(QpType type);
std::string bytes_text(uint64_t bytes);
std::string program_text(const End& end);
std::string name_of(const End& end);
std::string seconds_since(const End& end, TimeNs at_ns);

// Finds the NIC of this hostnicd that has the address of a queue pair's peer, and the queue pair
// there.
End peer_here(Daemon& daemon, const QpView& own);
// Finds out about a peer at another host. `state` says what came of it; of one that has answered
// the end is told.
struct PeerAway {
  End end;
  InquiryResult inquiry;
};
PeerAway peer_away(Daemon& daemon, NicInstance& instance, const QpView& own, uint32_t client_id);
// What is known of a host that has told nothing, as a sentence.
std::string why_untold(const NicInstance& instance, Ipv4Address peer, const InquiryResult& inquiry);
std::string host_name(const NicInstance& instance, Ipv4Address peer);

// Each says why, as part of a sentence; empty: nothing is known.
// Why this end refused, or would refuse, what its peer asked. `message_bytes` is what the requester
// says of a SEND's length.
std::string why_refused(const End& end, const Asked& asked, uint64_t message_bytes,
                        uint32_t requester_mtu_bytes);
// What is found of a key or a receive is how they are now. One that is good, and was refused all
// the same, is of memory that could not be reached.
std::string or_gone(std::string why, const QpView& qp);
std::string why_silent(const End& own, const End& peer);
std::string why_not_ready(const End& peer);
std::string why_waiting(const End& peer);

}  // namespace hostnic
