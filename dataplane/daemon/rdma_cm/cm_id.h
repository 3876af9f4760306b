// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm's things: ids, the programs' files that they belong to, and NICs' ends of communication
// management. The control thread only.
#pragma once

#include <netinet/in.h>
// This header comes after libc's: both define sockaddr_in6.
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/nic/management/management_queue.h"
#include "protocol/cm/endpoint.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

struct CmFile;
struct CmNic;

inline constexpr uint8_t kPortNumber = 1;  // a device has one port

// The most connections of a NIC, those included that have ended and still answer late messages.
inline constexpr size_t kMaxConnections = 65536;

// The Q_Key of datagram ids that were given none.
inline constexpr uint32_t kDatagramQkey = 0x01234567;

// The values of enum rdma_cm_event_type in rdma/rdma_cma.h, which is librdmacm's.
enum class CmEvent : uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kRouteError = 3,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kDeviceRemoval = 11,
  kMulticastJoin = 12,
  kTimeWaitExit = 15,
};

struct CmMulticast {
  uint32_t handle = 0;
  uint64_t uid = 0;
  uint32_t events_reported = 0;
};

// What people are shown of an id.
struct CmIdView {
  uint32_t id = 0, pid = 0;
  std::string nic;  // empty: it is not bound to one
  bool datagram = false;
  std::string source, destination, state;  // destination: empty: none
  // Programs are told in numbers: both ends, rdma_cm's port space and, as the kernel has it, the
  // state.
  std::pair<Gid, uint16_t> source_end{}, destination_end{};
  uint16_t port_space = 0;
  uint8_t kernel_state = 0;
};
std::string to_text(const CmIdView& id);  // one line

// An rdma_cm_id of a program.
struct CmId {
  uint32_t handle = 0;
  uint64_t uid = 0;
  CmFile* file = nullptr;
  uint16_t port_space = 0;
  bool datagram = false;
  CmNic* nic = nullptr;  // null: not bound to a NIC
  bool bound = false, listening = false, reuse_address = false;
  bool ipv6 = false, family_only = false;  // the family that the id is bound to, and whether to
                                           // that alone
  // By the numbers that NICs name hosts by. The id holds those that stand for IPv6 addresses.
  Ipv4Address source{}, destination{};
  std::vector<Ipv4Address> held;
  // Loopback addresses as the program named them, where they stand for the NICs' addresses above:
  // it is told of them, and of no others. A peer on this host is told as well if both are named.
  std::optional<Gid> named_source, named_destination;
  bool routed = false;  // the NIC is the one that led to the destination
  // While the destination is being looked for: until when. 0: it is not.
  TimeNs resolving_until_ns = 0;
  TimeNs ask_again_ns = 0;
  uint16_t source_port = 0, destination_port = 0;
  bool port_counts = false;  // in the share of the user, whose the port is
  uint32_t backlog = 0;      // connection requests that may still come before one is taken
  uint8_t type_of_service = 0, ack_timeout = cm::Endpoint::kAckTimeout;
  uint32_t events_reported = 0;
  std::vector<CmMulticast> multicasts;

  // The members from here on belong to the connection.
  cm::ConnectionId connection = 0;
  uint8_t responder_resources = 0, initiator_depth = 0, retry_count = 7, rnr_retry_count = 7;
  uint32_t own_psn = 0;  // PSN at which the peer begins
  uint32_t peer_psn = 0, peer_qpn = 0, path_mtu = 0, qkey = 0;
};

// A program's open file.
struct CmFile {
  struct Waiting {
    uint32_t owner = 0;    // the id that the event belongs to
    uint32_t request = 0;  // the id that a connection request has made
    uint32_t multicast = 0;
    rdma_ucm_event_resp event{};
  };
  UniqueFd socket;
  uint64_t name = 0;
  pid_t pid = 0;  // process that opened the file
  uint32_t uid = 0;
  uint64_t visible_devices = 0;
  bool alone = false;  // other hostnicd's NICs are other hosts
  std::deque<Waiting> events;
  bool token_out = false;
  std::optional<uint32_t> stranger() const { return limited_user(uid); }
  // While an event waits there is one datagram on its way, or in the program's hands.
  void give_token();
};

struct CmNic {
  NicInstance* instance = nullptr;
  uint32_t index = 0;
  std::unique_ptr<ManagementQueue> queue;
  std::unique_ptr<cm::Endpoint> endpoint;
  std::unordered_map<cm::ConnectionId, uint32_t> ids;  // the ids that the connections belong to
  // The users without privileges whose shares the connections are counted in.
  std::unordered_map<cm::ConnectionId, uint32_t> strangers;
  const NicSettings& settings() const { return instance->plan.settings; }
  Ipv4Address ip() const { return settings().ip; }
  // The endpoint's clock, which passes `timescale` times as fast as ours, and when it is that time.
  uint32_t timescale = 1;
  TimeNs began_ns = monotonic_now_ns();
  TimeNs now_ns() const { return began_ns + (monotonic_now_ns() - began_ns) * timescale; }
  TimeNs due_ns() const {
    const TimeNs deadline_ns = endpoint->next_deadline_ns();
    if (deadline_ns == UINT64_MAX || deadline_ns <= began_ns) return deadline_ns;
    return began_ns + (deadline_ns - began_ns) / timescale;
  }
};

// An answer to a command: an errno value, and bytes for the program.
struct CmResult {
  int error = 0;
  std::vector<std::byte> response;
  bool other_token_stale = false;  // of the file that MIGRATE_ID took an id from
};
template <typename T>
CmResult respond(const T& response) {
  const auto bytes = std::as_bytes(std::span(&response, 1));
  return {0, {bytes.begin(), bytes.end()}};
}

}  // namespace hostnic
