// SPDX-License-Identifier: BSD-3-Clause
// A NIC's inside: its parts, and what dispatches to them. Each part has a header of its own and
// knows none above it: memory/ < packet/ < client/ < qp/ < answers/ < egress/ < transport/,
// management/ < this (docs/architecture.md). receive.cc, transmit.cc, commands.cc and
// qp_commands.cc dispatch; which transports there are says transports.h alone.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/client/client_list.h"
#include "dataplane/nic/client/user_counts.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/egress/impaired_port.h"
#include "dataplane/nic/egress/loopback_port.h"
#include "dataplane/nic/egress/packet_tap.h"
#include "dataplane/nic/egress/switch_port.h"
#include "dataplane/nic/management/management.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet_release.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/qp/message_tap.h"
#include "dataplane/nic/qp/multicast_groups.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transports.h"
#include "dataplane/nic/views.h"
#include "protocol/transport_kind.h"
#include "protocol/wire/hostnic/segment_train.h"

namespace hostnic {

// What all lcores of a NIC would have in common; there is one so far, which alone writes to it.
struct NicShared {
  NicSettings settings;
  MrTable& mrs;
  MbufPools pools;
};

// What one lcore has for itself.
struct NicShard {
  NicShard(NicShared& shared, Port& port);
  ~NicShard();

  NicShared& shared;
  Counters counters;  // of what this lcore does
  const Ipv4Address own_ip;
  TimeNs now = 0;  // the time of this turn
  PayloadReferences references;
  SpentPackets spent;
  std::unique_ptr<SwitchPort> switched;  // around the NIC's port; null: there is no switch
  LoopbackPort loopback;                 // around that, or the NIC's port
  ImpairedPort port;                     // impairs the loopback port
  QpDirectory qps;
  MulticastGroups groups;
  WindowTable windows;  // of the clients whose commands this lcore takes
  UserCounts qps_of_user, windows_of_user{kMaxWindows};
  ClientList clients;
  AnswerLines answer_lines;
  Reports reports;
  ReceiveQueues receives;
  ReorderPool reorder;
  SplitAtomic split_atomic;
  Placement placement;
  Egress egress;
  Packetizer packetizer;
  Transports transports;
  Management management;

  PacketTap* tap = nullptr;        // packets are captured; null: they are not
  MessageTap* messages = nullptr;  // messages are traced; null: they are not
  bool is_watched = false;         // one of them is
  wire::DeltaParser received;
  // The queue pair of the packet in `received`, if it is RC and dispatch_first() has let the packet
  // pass: then it would let pass those that follow in the same segment train, too. Null between
  // turns, when commands may change that.
  QpContext* train_qp = nullptr;
  bool answers_first = false;
  DeadQps dead_qps;
  StrayDatagrams stray_datagrams;

  uint64_t replacements_seen = 0;  // sigbus.h

  uint32_t turn(TimeNs now_ns);
  void look_at_replacements();
  void end_faulty_turn();
  bool is_own(Ipv4Address address) const {
    return address == own_ip || shared.settings.is_own(address);
  }

  // Functions in receive.cc.
  uint32_t receive_turn();
  template <bool kWatched>
  uint32_t receive_arrived();
  void receive_lost(rte_mbuf* packet);
  void receive_trimmed(rte_mbuf* packet);
  template <bool kWatched>
  void receive_packet(rte_mbuf* packet);  // takes the packet
  void end_watched(bool is_for_somebody, uint64_t ticks);
  bool dispatch_packet(rte_mbuf* packet);
  void dispatch_first(const wire::Packet& p, rte_mbuf* packet);
  void dispatch_single(const wire::Packet& p, rte_mbuf* packet);
  void dispatch_to_group(std::span<QpContext* const> members, const wire::Packet& p,
                         rte_mbuf* packet);
  void refuse_stranger(const wire::Packet& p, Counter why);
  void refuse_unheard(QpContext* qp, const wire::Packet& p);
  bool begin_train(rte_mbuf* packet, bool has_icrc);
  bool receive_bundle(rte_mbuf* bundle);

  // Functions in transmit.cc.
  uint32_t transmit_turn();
  ClientTurn transmit_client(ClientState& client);
  uint32_t transmit_answers(ClientState& client);
  void transmit_ring(ClientState& client, const struct SendSource& source, ClientTurn& turn);
  uint32_t transmit_some(QpContext& qp, SendProgress& progress, uint32_t budget, SendShare& share,
                         bool& blocked);
  uint32_t send_one_traced(ClientState& client, DescriptorQueue& queue);
  bool take_descriptor(ClientState& client, const SendSource& source);
  void discard(ClientState& client);
  bool start_descriptor(SendProgress& progress, QpContext& qp);

  // Functions in messages.cc.
  void set_message_tap(MessageTap* to);
  void begin_watched_turn();
  void take_message_events(ClientState& client);

  // Functions in commands.cc and qp_commands.cc.
  uint32_t command_turn();
  bool waits_for_sends(const ClientState& client, const Command& command) const;
  void handle_command(ClientState& client, const Command& command);
  uint32_t answer_deferred(ClientState& client);
  QpContext* own_qp(const ClientState& client, uint32_t qpn) const;
  int create_qp(ClientState& client, const CreateQpCommand& command, uint32_t& qpn);
  int modify_qp(QpContext& qp, const ModifyQpCommand& command);
  void destroy_qp(ClientState& client, QpContext& qp, bool with_its_program);
  void quiesce_qp(QpContext& qp);  // purges everything of the QP from the NIC's queues
};

// -- What a NIC says of itself, in views.cc.
QpView view_of(const NicShard& nic, const QpContext& qp);
// The planes of its MRC, without entropy values.
std::vector<MrcPlaneView> planes_of(const NicShard& nic);
// Whether a key gives what is asked of it, and if not, why.
KeyView view_key(const NicShard& nic, const AccessScope& scope, const KeyQuestion& asked);
// The queue pair that is connected with that one; null: none is.
const QpContext* find_by_peer(const NicShard& nic, uint32_t peer_ip, uint32_t peer_qpn);

}  // namespace hostnic
