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
#include "dataplane/nic/egress/switch_port.h"
#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/nic_views.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/port.h"
#include "dataplane/nic/settings.h"
#include "protocol/cm/inquiry.h"
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
  uint32_t switched_packets = 0;  // packets inside the switch
};

class ManagementQueue;
class MessageTap;
class MrcEndpoint;
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

  // What the switch that the NIC hangs on has done; nothing if there is none.
  std::optional<SwitchCounters> switch_counters() const;

  // The node that it is for MRC.
  MrcEndpoint& mrc_endpoint();

  // Has packets captured from now on, by what was captured by until now no more; null: none. The
  // tap must outlive the NIC or be taken away.
  void set_tap(PacketTap* tap);
  // Has messages traced from now on, and programs asked to tell of theirs; null: no more. The tap
  // must outlive the NIC or be taken away.
  void set_message_tap(MessageTap* tap);
  // Takes what programs have told and nobody has taken, as of those that do nothing more.
  void take_message_events();
  // Whether packets of a client's queue pairs, of which there are some, are captured.
  bool captures_queue_pairs_of(const ClientChannel* client) const;
  // Tells who captures, if anybody does, that a program with queue pairs has died.
  void note_death(uint32_t pid);

  // Says where management datagrams that arrive go; null: nowhere. The queue must outlive the NIC
  // or be taken away.
  void set_management(ManagementQueue* queue);
  // Sends a management datagram from QP 1, unless there is no way or no room: its sender repeats
  // it.
  void send_management(Ipv4Address from, Ipv4Address to, uint8_t traffic_class,
                       std::span<const std::byte, cm::kMadBytes> bytes);
  // Sends a question about a connection in the same way.
  void send_inquiry(Ipv4Address from, Ipv4Address to, const cm::Inquiry& inquiry);
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

  // What people are shown of it and of its queue pairs.
  NicViews views() const;
  TimeNs now_ns() const;          // of the last turn
  const TimeNs* turn_ns() const;  // where that is; for who works within turns
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
