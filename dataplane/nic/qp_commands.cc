// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs come, change state, go. Not the hot path: allocation is allowed here.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>

#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/nic/client/qp_status_update.h"
#include "dataplane/nic/command_checks.h"
#include "dataplane/nic/nic_core.h"

namespace hostnic {
namespace {

// Clears the NIC's part, except the sequence and the dirty flag, which the driver clears when it
// takes the report.
void clear_status(QpStatus& status) {
  QpStatusUpdate update(status);
  const auto clear = [](auto* from, void* end) {
    std::fill(reinterpret_cast<std::byte*>(from), static_cast<std::byte*>(end), std::byte{0});
  };
  status.transmitted_psn.store(0, std::memory_order_relaxed);
  clear(&status.una_psn, &status.credit_watched);
  status.recv_completed.store(0, std::memory_order_relaxed);
  status.credit_watched.store(0, std::memory_order_relaxed);
  status.recv_bound.store(0, std::memory_order_relaxed);
  std::fill(std::begin(status.sack), std::end(status.sack), 0);
  std::fill(std::begin(status.response_bitmap), std::end(status.response_bitmap), 0);
}

// Returns 0, or an errno value if the shared receive queue can't be where the command says.
int use_shared_queue(QpContext& qp, ClientChannel& channel, const CreateQpCommand& command) {
  if (command.srq_offset % alignof(SrqHeader) != 0) return EINVAL;
  std::byte* at = channel.arena_at(command.srq_offset, srq_bytes(command.recv_entries));
  if (at == nullptr) return channel.arena_error();
  qp.srq = reinterpret_cast<SrqHeader*>(at);
  qp.srq_queue = reinterpret_cast<const std::atomic<uint32_t>*>(at + sizeof(SrqHeader));
  qp.recv_completions =
      reinterpret_cast<RecvCompletion*>(at + srq_completions_offset(command.recv_entries));
  qp.recv_names = reinterpret_cast<uint32_t*>(
      channel.arena_at(command.recv_completion_offset, command.recv_entries * sizeof(uint32_t)));
  return qp.recv_names != nullptr ? 0 : channel.arena_error();
}

// What the peer may have outstanding: adapters count in powers of two, and rdma_rxe's requester
// sends as many as its own number rounded up.
uint8_t responder_resources(const ModifyQpCommand& command) {
  const uint8_t agreed = command.max_dest_rd_atomic;
  return agreed == 0 ? agreed : std::bit_ceil(agreed);
}

// RTR to RTS: a requester's status starts at its first PSN.
void begin_sending(NicShard& nic, QpContext& qp, uint32_t sq_psn) {
  qp.sq_psn = sq_psn & Psn::kMask;
  qp.transmitted = qp.una = Psn(qp.sq_psn);
  if (nic.messages != nullptr) nic.messages->restart(qp);
  qp.stamps = {};
  qp.stamps_used = 0;
  {
    QpStatus& status = *qp.status;
    QpStatusUpdate update(status);
    status.una_psn = status.sack_end_psn = status.nak_psn = qp.sq_psn;
    status.highest_acceptable_psn = (Psn(qp.sq_psn) + (kInitialWindow - 1)).value();
    status.transmitted_psn.store(qp.sq_psn, std::memory_order_release);
  }
  qp.incoming_response_tag = wire::make_flow_tag(qp.qpn, qp.dest_qpn, qp.sq_psn);
  if (qp.neighbour < 0 && qp.flows_made_for != 0)
    nic.egress.paths().make_flows(qp, nic.egress.paths().mac_without_arp(Ipv4Address{qp.dest_ip}));
  if (qp.neighbour >= 0) qp.flows_made_for = 0;  // the flow is made anew with the first packet
}

// What a connection learns of the way to its peer before it begins.
struct Route {
  Transport spoken = Transport::kHostnic;
  Path path;
};

// What is known of the way to the peer. EAGAIN: what the peer speaks, or its MAC address, is not
// known yet. An address that nobody answers for is waited for as long as Linux does for adapters;
// then packets ask.
int find_route(NicShard& nic, const QpContext& qp, const ModifyQpCommand& command,
               Ipv4Address source, Route& route) {
  const Ipv4Address peer{command.dest_ip};
  const auto known = nic.management.peers().transport_to(source, peer, qp.client_id, nic.now);
  if (!known) return EAGAIN;
  route.spoken = *known;
  if (const int error = nic.egress.find_path(peer, neighbour_name(qp), true, route.path)) {
    if (error == ENOMEM) qp.client->neighbour_limit_met.store(true, std::memory_order_relaxed);
    return error;
  }
  return nic.egress.paths().is_being_found(route.path) ? EAGAIN : 0;
}

// RESET or INIT to RTR: everything about the connection starts anew. EAGAIN: nothing has happened,
// since not all is known yet.
int connect_qp(NicShard& nic, QpContext& qp, const ModifyQpCommand& command) {
  // A datagram queue pair has no path: every descriptor brings its own.
  const bool has_path = qp.type != QpType::kUd;
  if (has_path && command.path_mtu_bytes > nic.shared.settings.mtu_bytes) return EINVAL;
  const Ipv4Address source = nic.shared.settings.own_address(command.source_index);
  Route route;
  if (has_path) {
    if (const int error = find_route(nic, qp, command, source, route)) return error;
  }
  nic.quiesce_qp(qp);
  clear_status(*qp.status);
  nic.transports.with(qp, [&](auto& transport) { transport.forget(qp); });
  qp.transport = transport_of(qp.type, route.spoken);
  qp.tagged = has_flow_tags(route.spoken);
  qp.dest_qpn = command.dest_qpn;
  qp.dest_ip = has_path ? command.dest_ip : 0;
  qp.source_ip = raw(source);
  qp.rq_psn = command.rq_psn & Psn::kMask;
  qp.mtu_bytes =
      static_cast<uint16_t>(has_path ? command.path_mtu_bytes : nic.shared.settings.mtu_bytes);
  qp.responder_resources = responder_resources(command);
  qp.traffic_class = command.traffic_class;
  qp.hop_limit = command.hop_limit;
  qp.recv_next_sn = qp.recv_bound_sn = 0;
  qp.takes_receives = qp.comm_established = false;
  qp.fatal = false;
  qp.send_failed = false;
  qp.request_bytes = qp.retransmitted_packets = qp.heard_ns = qp.waits_since_ns = 0;
  qp.repeats = {};
  qp.repair_pending = false;
  qp.incoming_request_tag = wire::make_flow_tag(qp.dest_qpn, qp.qpn, qp.rq_psn);
  qp.incoming_response_tag = 0;
  qp.neighbour = -1;
  qp.flows_made_for = 0;
  nic.transports.with(qp, [&](auto& transport) { transport.connect(qp); });
  if (nic.messages != nullptr) nic.messages->restart(qp);
  if (!has_path) return 0;
  qp.peer = route.path.peer;
  qp.neighbour = route.path.neighbour;
  if (qp.neighbour >= 0) return 0;
  qp.flows_made_for = 1;
  nic.egress.paths().make_flows(qp, nic.egress.paths().mac_without_arp(Ipv4Address{qp.dest_ip}));
  return 0;
}

}  // namespace

int NicShard::create_qp(ClientState& client, const CreateQpCommand& command, uint32_t& qpn) {
  ClientChannel& channel = *client.channel;
  const uint32_t entries = command.recv_entries;
  if (const int error = check_command(command, channel.settings().max_qps)) return error;
  auto qp = std::make_unique<QpContext>();
  qp->type = command.type;
  qp->transport = transport_of(command.type, Transport::kHostnic);
  const uint64_t slots_bytes = uint64_t{entries} * recv_slot_bytes(command.recv_max_sge);
  qp->recv_slots = channel.arena_at(command.recv_queue_offset, slots_bytes);
  qp->read_destinations = reinterpret_cast<ReadDestination*>(channel.arena_at(
      command.read_destination_offset, command.read_destination_entries * sizeof(ReadDestination)));
  if (qp->recv_slots == nullptr || qp->read_destinations == nullptr) return channel.arena_error();
  if (command.srq_offset != 0) {
    if (const int error = use_shared_queue(*qp, channel, command)) return error;
  } else {
    qp->recv_completions = reinterpret_cast<RecvCompletion*>(
        channel.arena_at(command.recv_completion_offset, entries * sizeof(RecvCompletion)));
    if (qp->recv_completions == nullptr) return channel.arena_error();
  }

  qp->client = &channel;
  qp->client_id = channel.settings().client_id;
  qp->status_index = static_cast<uint16_t>(command.status_index);
  qp->status = &channel.qp_status(command.status_index);
  qp->pd = command.pd;
  qp->recv_pd = command.recv_pd;
  qp->recv_entries = entries;
  qp->recv_max_sge = command.recv_max_sge;
  qp->read_destination_entries = command.read_destination_entries;
  QpContext* const added =
      client.qpns.size() < channel.settings().max_qps &&
              qps_of_user.may_take(channel.settings(), channel.settings().user_qps)
          ? qps.add(std::move(qp))
          : nullptr;
  if (added == nullptr) {
    channel.qp_limit_met.store(true, std::memory_order_relaxed);
    return ENOMEM;
  }
  qps_of_user.take(channel.settings());
  channel.use->queue_pairs.fetch_add(1, std::memory_order_relaxed);
  clear_status(*added->status);  // the last owner's values
  qpn = added->qpn;
  client.qpns.push_back(qpn);
  return 0;
}

int NicShard::modify_qp(QpContext& qp, const ModifyQpCommand& command) {
  const QpState from = qp.state;
  if (const int error = check_command(command, qp.type, from)) return error;
  switch (command.state) {
    case QpState::kReset:
      quiesce_qp(qp);
      clear_status(*qp.status);  // receives posted from now on count from 0
      qp.drops = {};
      break;
    case QpState::kErr:
      if (command.peer_silent != 0 && qp.type != QpType::kUd)
        management.peers().doubt(Ipv4Address{qp.source_ip}, Ipv4Address{qp.dest_ip});
      quiesce_qp(qp);
      break;
    case QpState::kRtr:
      if (const int error = connect_qp(*this, qp, command); error != 0) return error;
      qp.drops = {};
      break;
    case QpState::kRts:
      if (from == QpState::kRtr) {
        begin_sending(*this, qp, command.sq_psn);
      } else if (command.restart_sends != 0) {
        transports.with(qp, [&](auto& transport) { transport.restart(qp, Psn(command.sq_psn)); });
      }
      break;
    default:
      break;
  }
  qp.access = command.access;
  qp.qkey = command.qkey;
  qp.responder_resources = responder_resources(command);
  qp.min_rnr_timer = command.min_rnr_timer;
  qp.state = command.state;  // in ERR a fatal NAK stays known and is repeated until RESET (rule 28)
  return 0;
}

void NicShard::destroy_qp(ClientState& client, QpContext& qp, bool with_its_program) {
  if (messages != nullptr) {
    take_message_events(client);
    messages->forget(qp);
  }
  dead_qps.note({view_of(*this, qp), now, with_its_program});
  quiesce_qp(qp);
  windows.unbind_all_of(qp.scope());
  groups.forget(qp, [this](Ipv4Address group) { port.leave(raw(group)); });
  std::erase(client.qpns, qp.qpn);
  qps_of_user.give_back(client.channel->settings());
  client.channel->use->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
  qps.remove(qp);
}

// Removes the QP from all of the NIC's queues and lists: what waited or was half-sent is dropped.
// The connection is over; the peer may not know yet.
void NicShard::quiesce_qp(QpContext& qp) {
  transports.with(qp, [&](auto& transport) { transport.quiesce(qp); });
  train_qp = nullptr;
  reports.forget(qp);
  if (MemFdHelper* const helper = qp.client->mem_fd_helper.load(std::memory_order_relaxed))
    helper->forget(&qp, &qp + 1);
  for (ClientState* client : clients.served()) {
    for (SendProgress* progress : {&client->urgent, &client->normal}) {
      if (progress->active && progress->descriptor.qpn == qp.qpn) progress->active = false;
    }
  }
  assert(qp.requests.reorder_slots == nullptr && qp.responses.reorder_slots == nullptr);
  assert(!qp.on_ack_list && !qp.on_report_list && !qp.on_advance_list && qp.answers_in_line == 0);
}

}  // namespace hostnic
