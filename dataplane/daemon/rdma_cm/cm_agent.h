// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's part of rdma_cm: what the kernel's ucma and cma modules do. Files of programs, their
// ids, addresses and ports, listeners, and each NIC's end of communication management
// (protocol/cm). The control thread only.
#pragma once

#include <netinet/in.h>
// This header comes after libc's: both define sockaddr_in6.
#include <rdma/rdma_user_cm.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/network/kernel_neighbour.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/nic/management/management_queue.h"
#include "protocol/cm/endpoint.h"
#include "protocol/hostif/cm_message.h"

namespace hostnic {

struct CmFile;
struct CmNic;

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

// An rdma_cm_id of a program.
// What people are shown of an id.
struct CmIdView {
  uint32_t id = 0, pid = 0;
  std::string nic;  // empty: it is not bound to one
  bool datagram = false;
  std::string source, destination, state;  // destination: empty: none
};
std::string to_text(const CmIdView& id);  // one line

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
  uint32_t backlog = 0;  // connection requests that may still come before one is taken
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
  std::optional<uint32_t> stranger() const {
    return is_owner(uid) ? std::nullopt : std::optional(uid);
  }
};

struct CmNic {
  NicInstance* instance = nullptr;
  uint32_t index = 0;
  std::unique_ptr<ManagementQueue> queue;
  std::unique_ptr<cm::Endpoint> endpoint;
  std::unordered_map<cm::ConnectionId, uint32_t> ids;  // the ids that the connections belong to
  const NicSettings& settings() const { return instance->plan.settings; }
  Ipv4Address ip() const { return settings().ip; }
};

class CmAgent {
 public:
  // The lcores must run. The agent's descriptors are watched by `epoll_fd`.
  CmAgent(Daemon& daemon, int epoll_fd);
  ~CmAgent();
  CmAgent(const CmAgent&) = delete;
  CmAgent& operator=(const CmAgent&) = delete;

  // A program has opened the device: answers it and serves its socket from now on.
  // `alone`: this host is the program's NICs, not all of hostnicd's.
  void open(UniqueFd socket, const OpenCmRequest& request, bool alone);
  // Serves a descriptor; returns false if it is not one of the agent's.
  bool handle(int fd);
  // Does what is due; called after each wait.
  void advance();
  // How long the next wait may last; -1: for ever.
  int wait_ms() const;

  // Text for people: a line for each id, and one for connections that no id has any more.
  std::vector<CmIdView> view(const Asker& asker) const;
  // How many connections have no id any more, and answer repeated messages for a while.
  size_t ended_connections() const;

 private:
  // An answer to a command: an errno value, and bytes for the program.
  struct Result {
    int error = 0;
    std::vector<std::byte> response;
    bool other_token_stale = false;  // of the file that MIGRATE_ID took an id from
  };
  template <typename T>
  static Result respond(const T& response) {
    const auto bytes = std::as_bytes(std::span(&response, 1));
    return {0, {bytes.begin(), bytes.end()}};
  }

  // Functions in cm_agent.cc.
  CmIdView view(const CmId& id) const;
  void serve(CmFile& file);
  void close(CmFile& file);
  void let_go(UniqueFd socket, std::optional<uint32_t> stranger);
  void serve_queue(CmNic& nic);
  void flush();
  void give_token(CmFile& file);
  CmId* find(uint32_t handle);
  CmId* find_of(const CmFile& file, uint32_t handle);
  CmId* add_id(CmFile& file);
  void destroy(CmId& id);
  void drop_events_of(CmFile& file, const CmId& id);

  // Functions in cm_addresses.cc.
  static bool visible(const CmFile& file, const CmNic& nic);
  bool names_this_host(Ipv4Address ip) const;
  std::optional<Ipv4Address> number_for(CmId& id, const Gid& address);
  bool on_link(const NicSettings& settings, Ipv4Address destination) const;
  bool leads_out(const CmNic& nic, Ipv4Address destination) const;
  template <typename To>
  static void put_address(To& to, const CmId& id, const Gid& address, uint16_t port);
  Gid shown_source(const CmId& id) const;
  Gid shown_destination(const CmId& id) const;
  CmNic* nic_of(const CmFile& file, Ipv4Address ip);
  CmNic* route(const CmFile& file, Ipv4Address destination);
  bool reachable(const CmNic& nic, Ipv4Address destination) const;
  Ipv4Address this_host(const CmNic& own, uint16_t port_space, uint16_t port) const;
  int bind(CmId& id, Ipv4Address ip, uint16_t port);
  int take_port(CmId& id, uint16_t port);
  void release_port(CmId& id);
  bool port_free(const CmId& id, uint16_t port) const;
  CmId* listener(const CmNic& nic, Ipv4Address own, uint16_t port_space, uint16_t port);
  std::optional<Ipv4Address> served_at(const CmNic& nic, uint16_t port_space, uint16_t port,
                                       bool listening) const;

  // Functions in cm_commands.cc.
  Result run(CmFile& file, const CmCommand& command, std::span<const std::byte> bytes);
  Result run_connection(CmFile& file, const CmCommand& command, std::span<const std::byte> bytes);
  Result create_id(CmFile& file, const rdma_ucm_create_id& command);
  Result destroy_id(CmFile& file, const rdma_ucm_destroy_id& command);
  Result bind_address(CmFile& file, uint32_t handle, std::span<const std::byte> address);
  Result resolve_route(CmFile& file, const rdma_ucm_resolve_route& command);
  Result query_route(CmFile& file, const rdma_ucm_query& command);
  Result query(CmFile& file, const rdma_ucm_query& command);
  Result listen(CmFile& file, const rdma_ucm_listen& command);
  Result get_event(CmFile& file);
  Result set_option(CmFile& file, const rdma_ucm_set_option& command,
                    std::span<const std::byte> value);
  Result join(CmFile& file, uint32_t handle, uint64_t uid, std::span<const std::byte> address);
  Result leave(CmFile& file, const rdma_ucm_destroy_id& command);
  Result write_event(CmFile& file, uint32_t handle, uint32_t event, uint32_t status,
                     uint64_t argument);
  Result migrate(CmFile& file, const CmCommand& command, const rdma_ucm_migrate_id& migrate);

  // Functions in cm_resolution.cc.
  Result resolve_address(CmFile& file, uint32_t handle, uint32_t timeout_ms,
                         std::span<const std::byte> source, std::span<const std::byte> destination);
  bool knows(CmId& id, TimeNs now);
  void end_resolution(CmId& id, int error);
  void look_at_resolving();

  // Functions in cm_connections.cc.
  Result connect(CmFile& file, const rdma_ucm_connect& command);
  Result accept(CmFile& file, const rdma_ucm_accept& command);
  Result reject(CmFile& file, const rdma_ucm_reject& command);
  Result disconnect(CmFile& file, const rdma_ucm_disconnect& command);
  Result notify(CmFile& file, const rdma_ucm_notify& command);
  Result init_qp_attr(CmFile& file, const rdma_ucm_init_qp_attr& command);
  void end_connection(CmId& id);
  void take_events(CmNic& nic);
  void take_event(CmNic& nic, const cm::Event& event);
  void take_request(CmNic& nic, const cm::Event& event);
  static void refuse(CmNic& nic, const cm::Event& event,
                     cm::RejectReason reason = cm::RejectReason::kInvalidServiceId);
  void name_loopback(CmId& id, const cm::IpHeader& header) const;
  void refuse_or_keep(CmNic& nic, const cm::Event& event);
  void look_at_kept();
  // Tells the program an event, unless the id has no file, or the program does not know it yet.
  void tell(CmId& id, CmEvent kind, int status);
  void tell(CmId& id, rdma_ucm_event_resp event, CmEvent kind, int status, uint32_t request = 0,
            uint32_t multicast = 0);
  // The path from an id's address to a host or a group.
  ib_uverbs_ah_attr address_handle(const CmId& id, const Gid& destination) const;

  Daemon& daemon_;
  int epoll_fd_;
  std::unordered_map<int, CmFile> files_;  // by socket
  std::vector<CmNic> nics_;
  std::unordered_map<uint32_t, CmId> ids_;
  // Connection requests, in a lab, for services that nobody offers yet, oldest first.
  struct Kept {
    CmNic* nic;
    cm::Event event;
    TimeNs refuse_ns;
  };
  std::deque<Kept> kept_;
  // The ids whose destination is being looked for, and when to look again.
  std::vector<uint32_t> resolving_;
  TimeNs look_ns_ = 0;
  KernelNeighbours neighbours_;
  UserShares::Limits most_files_;
  UserShares id_shares_;
  bool in_lab_;
  // The ids that have a port, by port space and port.
  std::map<std::pair<uint16_t, uint16_t>, std::vector<uint32_t>> ports_;
  uint32_t next_handle_ = 1;
  uint64_t next_file_ = 1;
};

}  // namespace hostnic
