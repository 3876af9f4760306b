// SPDX-License-Identifier: BSD-3-Clause
// The way to an address: by which of the port's peers, and with which MAC address. ARP messages
// come in and go out as values; whoever owns this sends them. Flow templates of queue pairs are
// made here, since MAC addresses may change under them.
//
// The NIC's lcore, but for conflicting_mac().
#pragma once

#include <rte_branch_prediction.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/nic/client/client_channel.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/neighbours.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "protocol/transport/path_table.h"
#include "protocol/types.h"
#include "protocol/wire/arp.h"

namespace hostnic {

// The way by which packets to an address leave.
struct Path {
  int16_t peer = 0;        // Port::peer_of()
  int16_t neighbour = -1;  // index of the entry that the MAC address is asked for by
};

// The name in which a queue pair looks for its peer (neighbours.h).
inline uint32_t neighbour_name(const ClientChannel::Settings& client) {
  return Neighbours::name_of(client.client_id, client.stranger());
}
inline uint32_t neighbour_name(const QpContext& qp) {
  return neighbour_name(qp.client->settings());
}

// An ARP message for a host, or for all.
struct ArpToSend {
  wire::Arp message;
  wire::MacAddress to;
  bool defends = false;  // this NIC's address
};

class Paths {
 public:
  Paths(const NicSettings& settings, bool needs_arp, Counters& counters, const TimeNs& now)
      : settings_(settings), counters_(counters), now_(now), needs_arp_(needs_arp) {}
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;

  // Whether MAC addresses of destinations have to be found.
  bool needs_arp() const { return needs_arp_; }
  // Finds an address that is not this NIC's in one of Neighbours' names, for a datagram or a
  // connection. Returns 0 or ENOMEM (all neighbours are in use).
  int find(Ipv4Address ip, uint32_t name, bool connects, Path& path);
  // Whether somebody has been asked for the path's MAC address, and may still answer.
  bool is_being_found(const Path& path) const {
    return path.neighbour > Neighbours::kNobody && neighbours_.is_on_trial(path.neighbour, now_);
  }
  // The MAC address for packets to a group, to this NIC itself, or where nobody looks at it, so
  // that captures look right all the same.
  wire::MacAddress mac_without_arp(Ipv4Address ip) const;
  const Neighbours::Entry& neighbour(int index) const { return neighbours_.entry(index); }
  const Neighbours& neighbours() const { return neighbours_; }
  // Says that a packet to the neighbour leaves; returns the generation of its entry, which changes
  // with its MAC address, and when the entry becomes another address's.
  uint32_t use_neighbour(int index) { return neighbours_.use(index, now_); }
  // Says that a packet to this peer is repeated.
  void doubt_neighbour(const QpContext& qp) {
    if (qp.neighbour >= 0) neighbours_.doubt(qp.neighbour, now_);
  }

  // Whether the QP's packets can be addressed. Where there is ARP the neighbour's MAC must be
  // known, and may change.
  bool prepare_flows(QpContext& qp) {
    if (likely(qp.neighbour < 0)) return qp.flows_made_for != 0;
    const uint32_t generation = neighbours_.use(qp.neighbour, now_);
    if (likely(generation != 0 && generation == qp.flows_made_for)) return true;
    return make_flows_anew(qp);
  }
  void make_flows(QpContext& qp, const wire::MacAddress& destination);
  // Has the requests, and the answers, of a native queue pair whose flows are prepared leave by one
  // of the connection's paths (docs/transport.md rule 37), a number below kMostPaths, until the
  // next call. A NIC of one path leaves them as they are: by path 0.
  void request_by(QpContext& qp, uint8_t path) const {
    if (unlikely(settings_.paths > 1))
      wire::set_source_port(qp.request_flow, qp.incoming_response_tag | (path & kPathMask));
  }
  void answer_by(QpContext& qp, uint8_t path) const {
    if (unlikely(settings_.paths > 1))
      wire::set_source_port(qp.response_flow, qp.incoming_request_tag | (path & kPathMask));
  }
  // Says that settings.mac has changed.
  void own_mac_changed() { neighbours_.own_mac_changed(now_); }

  // Takes in an ARP packet, and returns what it calls for.
  std::optional<ArpToSend> receive_arp(std::span<const std::byte> frame);
  // The next request that is due.
  std::optional<ArpToSend> next_request();
  // Says that a message that defends this NIC's address has left.
  void defended();
  // When next_request() may have something.
  TimeNs next_deadline_ns() const {
    return needs_arp_ ? neighbours_.next_deadline_ns() : UINT64_MAX;
  }
  // The MAC address by which another host was last heard to have this NIC's address. Any thread.
  wire::MacAddress conflicting_mac() const;

 private:
  Ipv4Address next_hop(Ipv4Address destination) const;
  int find_neighbour(Ipv4Address ip, uint32_t name, bool connects);
  [[gnu::noinline]] bool make_flows_anew(QpContext& qp);
  void note_conflict(const wire::MacAddress& mac);

  const NicSettings& settings_;
  Counters& counters_;
  const TimeNs& now_;
  const bool needs_arp_;
  Neighbours neighbours_;
  std::atomic<uint64_t> conflicting_mac_{0};  // the bytes of its MAC address, the first the highest
  TimeNs next_defence_ns_ = 0;
};

}  // namespace hostnic
