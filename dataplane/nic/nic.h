// SPDX-License-Identifier: BSD-3-Clause
// One software RDMA NIC: the hardware half for one IPv4 address on one port. Runs on one lcore, to
// completion, without locks, allocation or system calls per packet (mem fd transfers excepted). No
// clock and no thread of its own: the lcore loop, or the simulation, calls poll(now).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/nic/client/client_channel.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/port.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/views.h"
#include "protocol/cm/mad.h"
#include "protocol/impair/spec.h"
#include "protocol/impair/stage.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// What a NIC keeps at one moment, and the limits of that. For tests and tools that watch over
// bounds; read on the lcore.
struct NicGauges {
  uint32_t qps = 0;
  uint32_t reorder_packets = 0, reorder_limit = 0;  // early tails
  uint32_t reorder_blocks = 0, reorder_slots = 0;   // blocks of slots in use, of all QPs together
  uint32_t received_ahead = 0;                      // most PSNs received beyond the expected one by
                                                    // one QP
  uint32_t early_writes = 0;                        // ranges placed beyond a missing PSN
  uint32_t read_jobs = 0, read_jobs_limit = 0;      // READ answers not sent yet
  uint32_t loopback = 0, loopback_limit = 0;
  uint32_t output_packets = 0;    // packets in the fullest queue towards the port
  uint32_t longest_list = 0;      // longest list of QPs to acknowledge, report or advance
  uint32_t impaired_packets = 0;  // packets inside the impairment stages
};

class ManagementQueue;
struct PeerView;  // management/peers.h
class PacketTap;
struct NicCore;

class Nic {
 public:
  Nic(const NicSettings& settings, MrTable& mrs, const MbufPools& pools, Port& port);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  // -- The NIC's lcore only (control threads post a task to the lcore).

  // One turn: receive, place, acknowledge, take commands and descriptors, transmit, report. Returns
  // how much it did (0: nothing; the loop may think about sleeping).
  uint32_t poll(TimeNs now_ns);
  // When poll() has something to do even if nothing arrives (delayed packets, wake-ups owed to
  // drivers); UINT64_MAX: never.
  TimeNs next_deadline_ns() const;
  // Whether any client ring has work, asked before the loop sleeps. (The sleep flag is set and
  // fenced before this is called.)
  bool work_waiting();
  // Whether the port is full, and wakes the lcore when it is no longer.
  bool waits_for_port() const;

  // Whether data has arrived, since the last such question, for a program that handed us work on
  // that processor.
  bool delivered_to(uint32_t cpu);

  // Adds a client; returns ENOMEM when there are too many.
  int attach(ClientChannel* client);
  // Whether the client has handed over what has not been sent. Any rest of a dropped client stays.
  bool has_sends(const ClientChannel* client) const;
  // Destroys the client's QPs, forgets it. Afterwards nothing here refers to the channel.
  void detach(ClientChannel* client);

  // Replaces the impairments of one direction. Packets that the old ones delayed go on at once.
  void set_impairment(bool receive_side, const impair::Spec& spec, uint64_t seed);

  // What the impairments of one direction have done; nothing if there are none. Any thread may read
  // torn values.
  std::optional<impair::Counters> impairment_counters(bool receive_side) const;

  // Has packets captured from now on, by what was captured by until now no more; null: none. The
  // tap must outlive the NIC or be taken away.
  void set_tap(PacketTap* tap);

  // Says where management datagrams that arrive go; null: nowhere. The queue must outlive the NIC
  // or be taken away.
  void set_management(ManagementQueue* queue);
  // Sends a management datagram from QP 1, unless there is no way or no room: its sender repeats
  // it.
  void send_management(Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                       std::span<const std::byte, cm::kMadBytes> bytes);
  // Whether packets to a host can be addressed; where its MAC address is not known yet it is asked
  // for. True also where nobody would be asked, or too many are being asked.
  bool knows_host(Ipv4Address host);

  void clear_counters();
  // Whether packets that have arrived are kept between turns: by impairments.
  bool holds_arrivals() const;
  // Gives the NIC another MAC address, as its port has.
  void set_mac(const wire::MacAddress& mac);
  // Gives the NIC other addresses beside its own, and the caller those that it had
  // (NicSettings::more_addresses).
  void swap_more_addresses(std::vector<Ipv4Address>& numbers);
  // Counts what happened to the port.
  void count(Counter counter);

  // What people are shown of it: `show nic`.
  NicView view() const;
  std::string describe() const { return to_text(view()); }  // the same in one line
  // A part of the queue pairs, beginning at position `from` (first 0), which becomes where the next
  // part begins, or kNoMoreQps. With a user: those of its programs.
  static constexpr uint32_t kNoMoreQps = UINT32_MAX;
  std::vector<QpView> view_qps(uint32_t& from, std::optional<uint32_t> user = std::nullopt) const;
  // Gives them as text for people, one line each: `show qp`.
  std::vector<std::string> describe_qps(uint32_t& from,
                                        std::optional<uint32_t> user = std::nullopt) const;
  // A queue pair as it is now; none has that number.
  std::optional<QpView> view_qp(uint32_t qpn) const;
  // A connected queue pair that names this one as its peer.
  std::optional<QpView> view_qp_with_peer(Ipv4Address peer, uint32_t peer_qpn) const;
  // The queue pairs of a process, `most` of them.
  std::vector<QpView> view_qps_of(uint32_t pid, size_t most) const;
  // A queue pair that went, if it was among the last 64; all of these, oldest first.
  std::optional<DeadQpView> view_dead_qp(uint32_t qpn) const;
  std::vector<DeadQpView> view_dead_qps() const;
  // What keeps a queue pair's peer (`is_remote`), or its own requests, from memory by a key.
  KeyView view_key(const AccessScope& scope, uint32_t key, uint64_t va, uint64_t length_bytes,
                   uint32_t access, bool is_remote) const;
  TimeNs now_ns() const;          // of the last turn
  const TimeNs* turn_ns() const;  // where that is; for who works within turns
  // What is known of what hosts speak: `show peers`.
  std::vector<PeerView> view_peers() const;
  NicGauges gauges() const;

  // -- Any thread.
  // The MAC address by which another host was last heard to have this NIC's address.
  wire::MacAddress conflicting_mac() const;
  const Counters& counters() const;
  const NicSettings& settings() const;

 private:
  std::unique_ptr<NicCore> core_;
};

}  // namespace hostnic
