// Commands of the driver: queue pairs come, change state, go. Not the hot path: allocation is
// allowed here.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "dataplane/nic/flow_tag.h"
#include "dataplane/nic/impl.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr uint32_t kCommandsPerTurn = 16;
constexpr uint32_t kFirstIndex = 16;  // keeps QPNs clear of the special QPs 0 and 1
constexpr uint32_t kMaxRecvEntries = 32768;
constexpr uint32_t kMaxReadDestinationEntries = 256;
// A port that takes nothing, or an lcore that gets no CPU time, must not hang programs for good.
constexpr uint64_t kAnswerLimitNs = 500'000'000;

// The NIC part, except the sequence and the dirty flag, which the driver clears when it takes the
// report.
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

// False: the shared receive queue can't be where the command says.
bool use_shared_queue(QpContext& qp, ClientChannel& channel, const CreateQpCommand& command) {
  if (command.srq_offset % alignof(SrqHeader) != 0 || command.recv_entries == 0) return false;
  std::byte* at = channel.arena_at(command.srq_offset, srq_bytes(command.recv_entries));
  if (at == nullptr) return false;
  qp.srq = reinterpret_cast<SrqHeader*>(at);
  qp.srq_queue = reinterpret_cast<const std::atomic<uint32_t>*>(at + sizeof(SrqHeader));
  qp.recv_completions =
      reinterpret_cast<RecvCompletion*>(at + srq_completions_offset(command.recv_entries));
  qp.recv_names = reinterpret_cast<uint32_t*>(
      channel.arena_at(command.recv_completion_offset, command.recv_entries * sizeof(uint32_t)));
  return qp.recv_names != nullptr;
}

bool valid_mtu(uint32_t bytes) {
  return bytes >= 256 && bytes <= 4096 && std::has_single_bit(bytes);
}

}  // namespace

uint32_t Nic::Impl::command_turn() {
  uint32_t done = 0;
  for (ClientState* client : served) {
    ClientChannel& channel = *client->channel;
    if (channel.dropped.load(std::memory_order_relaxed) != DropReason::kNone) continue;
    if (channel.memory_gone.load(std::memory_order_relaxed)) {
      drop_client(*client, DropReason::kMemoryGone);
      continue;
    }
    for (uint32_t i = 0;
         i < kCommandsPerTurn && channel.responses.free_count() > client->deferred.size(); ++i) {
      Command command;
      const int taken = channel.commands.dequeue_burst(&command, 1);
      if (taken < 0) drop_client(*client, DropReason::kRingPosition);
      if (taken <= 0) break;
      handle_command(*client, command);
      ++done;
    }
    done += answer_deferred(*client);
  }
  return done;
}

void Nic::Impl::handle_command(ClientState& client, const Command& command) {
  CommandResponse response{};
  response.correlation = command.correlation;
  switch (command.kind) {
    case CommandKind::kCreateQp:
      response.error = create_qp(client, command.create_qp, response.qpn);
      break;
    case CommandKind::kModifyQp:
      response.qpn = command.modify_qp.qpn;
      if (QpContext* qp = own_qp(client, response.qpn); qp == nullptr) {
        response.error = EINVAL;
      } else {
        response.error = modify_qp(*qp, command.modify_qp);
        if (qp->state == QpState::kErr || qp->state == QpState::kReset) {
          defer_answer(client, response, qp->packets);
          return;
        }
      }
      break;
    case CommandKind::kDestroyQp:
      response.qpn = command.destroy_qp.qpn;
      if (QpContext* qp = own_qp(client, response.qpn); qp == nullptr) {
        response.error = EINVAL;
      } else {
        const QpPackets packets = qp->packets;
        destroy_qp(client, *qp);
        defer_answer(client, response, packets);
        return;
      }
      break;
    case CommandKind::kCreateWindow:
      response.error = create_window(client, command.create_window, response.window_key);
      break;
    case CommandKind::kDestroyWindow:
      response.error = destroy_window(client, command.destroy_window);
      break;
    case CommandKind::kBindWindow:
      response.error = bind_window(client, command.bind_window);
      break;
    case CommandKind::kInvalidateWindow:
      response.error = invalidate_window(client, command.invalidate_window);
      break;
    case CommandKind::kAttachGroup:
      response.error = attach_group(client, command.group);
      break;
    case CommandKind::kDetachGroup:
      response.error = detach_group(client, command.group);
      break;
    default:
      drop_client(client, DropReason::kBadCommand);
      return;
  }
  client.channel->responses.enqueue_bulk(&response, 1);
  client.answered = true;
}

// The QP sends nothing any more: what is left of it lies in the rings before their present ends, in
// the port, and with its peer (rule 32).
void Nic::Impl::defer_answer(ClientState& client, const CommandResponse& response,
                             const QpPackets& packets) {
  client.deferred.push_back({.response = response,
                             .packets = packets,
                             .sends_until = client.channel->sends.produced(),
                             .urgent_until = client.channel->urgent.produced(),
                             .answer_by_ns = now + kAnswerLimitNs});
}

uint32_t Nic::Impl::answer_deferred(ClientState& client) {
  ClientChannel& channel = *client.channel;
  uint32_t answered = 0, kept = 0;
  for (const DeferredAnswer& answer : client.deferred) {
    const bool referenced =
        answer.packets.any_out() ||
        !channel.sends.taken_until(answer.sends_until, client.sends.waiting()) ||
        !channel.urgent.taken_until(answer.urgent_until, client.urgents.waiting());
    if (referenced && now < answer.answer_by_ns) {
      client.deferred[kept++] = answer;
      continue;
    }
    channel.responses.enqueue_bulk(&answer.response, 1);
    client.answered = true;
    ++answered;
  }
  client.deferred.erase(client.deferred.begin() + kept, client.deferred.end());
  return answered;
}

QpContext* Nic::Impl::own_qp(ClientState& client, uint32_t qpn) const {
  QpContext* qp = find_qp(qpn);
  return qp != nullptr && qp->client == client.channel ? qp : nullptr;
}

int Nic::Impl::create_qp(ClientState& client, const CreateQpCommand& command, uint32_t& qpn) {
  ClientChannel& channel = *client.channel;
  const uint32_t entries = command.recv_entries;
  if (command.status_index >= channel.settings().max_qps) return EINVAL;
  if (entries > kMaxRecvEntries || (entries != 0 && !std::has_single_bit(entries))) return EINVAL;
  if (command.recv_max_sge > kMaxSge ||
      command.read_destination_entries > kMaxReadDestinationEntries ||
      !std::has_single_bit(uint32_t{command.read_destination_entries})) {
    return EINVAL;
  }
  if (command.type < QpType::kRc || command.type > QpType::kUd) return EINVAL;
  auto qp = std::make_unique<QpContext>();
  qp->type = command.type;
  const uint64_t slots_bytes = uint64_t{entries} * recv_slot_bytes(command.recv_max_sge);
  qp->recv_slots = channel.arena_at(command.recv_queue_offset, slots_bytes);
  qp->read_destinations = reinterpret_cast<ReadDestination*>(channel.arena_at(
      command.read_destination_offset, command.read_destination_entries * sizeof(ReadDestination)));
  if (qp->recv_slots == nullptr || qp->read_destinations == nullptr) return EINVAL;
  if (command.srq_offset != 0) {
    if (!use_shared_queue(*qp, channel, command)) return EINVAL;
  } else {
    qp->recv_completions = reinterpret_cast<RecvCompletion*>(
        channel.arena_at(command.recv_completion_offset, entries * sizeof(RecvCompletion)));
    if (qp->recv_completions == nullptr) return EINVAL;
  }

  uint32_t index;
  if (qps.size() < kFirstIndex) qps.resize(kFirstIndex);
  if (qps.size() < kFirstIndex + settings.max_qps) {
    index = static_cast<uint32_t>(qps.size());
    qps.emplace_back();
    generations.resize(qps.size(), 1);
  } else if (!free_indices.empty()) {
    index = free_indices.front();
    free_indices.pop_front();
  } else {
    return ENOMEM;
  }
  qp->qpn = uint32_t{generations[index]} << 16 | index;
  qp->client = &channel;
  qp->status_index = command.status_index;
  qp->status = &channel.qp_status(command.status_index);
  clear_status(*qp->status);  // of whoever had it before
  qp->pd = command.pd;
  qp->recv_pd = command.recv_pd;
  qp->recv_entries = entries;
  qp->recv_max_sge = command.recv_max_sge;
  qp->read_destination_entries = command.read_destination_entries;
  qpn = qp->qpn;
  client.qpns.push_back(qpn);
  qps[index] = std::move(qp);
  return 0;
}

int Nic::Impl::modify_qp(QpContext& qp, const ModifyQpCommand& command) {
  const QpState from = qp.state;
  switch (command.state) {
    case QpState::kReset:
      quiesce_qp(qp);
      clear_status(*qp.status);  // receives posted from now on count from 0
      break;
    case QpState::kErr:
      quiesce_qp(qp);
      break;
    case QpState::kRtr:
      if (from < QpState::kRtr) {
        if (const int error = connect_qp(qp, command); error != 0) return error;
      }
      break;
    case QpState::kRts:
      if (from == QpState::kRtr) {
        qp.sq_psn = command.sq_psn & Psn::kMask;
        qp.transmitted = qp.una = Psn(qp.sq_psn);
        qp.stamps = {};
        qp.stamps_used = 0;
        reset_request_status(qp);
        qp.incoming_response_tag = make_flow_tag(qp.qpn, qp.dest_qpn, qp.sq_psn);
        if (qp.neighbour < 0 && qp.flows_made_for != 0) make_flows(qp, wire_mac(qp));
        if (qp.neighbour >= 0) qp.flows_made_for = 0;  // made anew with the first packet
      } else if (command.restart_sends != 0) {
        restart_unreliable(qp, Psn(command.sq_psn));
      }
      break;
    default:
      break;
  }
  qp.access = command.access;
  qp.qkey = command.qkey;
  qp.max_dest_rd_atomic = command.max_dest_rd_atomic;
  qp.min_rnr_timer = command.min_rnr_timer & 31;
  if (command.state == QpState::kErr) {
    qp.state = QpState::kErr;  // a fatal NAK stays known and is repeated until RESET (rule 28)
  } else {
    qp.state = command.state;
  }
  return 0;
}

// What a requester is told starts at its first PSN.
void Nic::Impl::reset_request_status(QpContext& qp) {
  QpStatus& status = *qp.status;
  QpStatusUpdate update(status);
  status.una_psn = status.sack_end_psn = status.nak_psn = qp.sq_psn;
  status.highest_acceptable_psn = (Psn(qp.sq_psn) + (kInitialWindow - 1)).value();
  status.transmitted_psn.store(qp.sq_psn, std::memory_order_release);
}

// RESET or INIT to RTR: everything about the connection starts anew.
int Nic::Impl::connect_qp(QpContext& qp, const ModifyQpCommand& command) {
  // A datagram queue pair has no path: every descriptor brings its own.
  const bool has_path = qp.type != QpType::kUd;
  if (has_path &&
      (!valid_mtu(command.path_mtu_bytes) || command.path_mtu_bytes > settings.mtu_bytes))
    return EINVAL;
  quiesce_qp(qp);
  clear_status(*qp.status);
  qp.dest_qpn = command.dest_qpn & 0xffffff;
  qp.dest_ip = has_path ? command.dest_ip : 0;
  qp.rq_psn = command.rq_psn & Psn::kMask;
  qp.mtu_bytes = static_cast<uint16_t>(has_path ? command.path_mtu_bytes : settings.mtu_bytes);
  qp.max_dest_rd_atomic = command.max_dest_rd_atomic;
  qp.traffic_class = command.traffic_class;
  qp.hop_limit = command.hop_limit;
  qp.requests.window.reset(Psn(qp.rq_psn), settings.window);
  if (settings.policy == wire::Policy::kWholeMessage)
    qp.messages.reset(Psn(qp.rq_psn), settings.window);
  qp.responses.window.reset(Psn(0), settings.window);
  qp.recv_next_sn = qp.recv_bound_sn = 0;
  qp.takes_receives = qp.comm_established = false;
  qp.fatal = qp.old_read_refused = false;
  qp.reads_answered = 0;
  qp.msn = 0;
  qp.atomics = {};
  qp.read_epoch = 0;
  qp.epoch_follows = false;
  qp.ack_kind = wire::AckKind::kAck;
  qp.echo_valid = qp.echo_duplicate = false;
  qp.unacknowledged = 0;
  qp.send_failed = false;
  qp.stamps = {};
  qp.stamps_used = 0;
  qp.epoch = 0;
  qp.responses_changed = qp.response_bits_published = false;
  qp.incoming_request_tag = make_flow_tag(qp.dest_qpn, qp.qpn, qp.rq_psn);
  qp.incoming_response_tag = 0;
  qp.neighbour = -1;
  qp.flows_made_for = 0;
  qp.message = {};
  qp.message.expected = Psn(qp.rq_psn);
  if (!has_path) return 0;
  if (qp.dest_ip == raw(settings.ip)) {
    qp.peer = kLoopbackPeer;
  } else if (port.is_wire()) {
    const int peer = port.peer_of(qp.dest_ip);
    if (peer < 0 || peer >= static_cast<int>(kMaxPeers)) return EHOSTUNREACH;
    qp.peer = static_cast<int16_t>(peer);
    output_peers = std::max(output_peers, static_cast<uint32_t>(peer) + 1);
  } else {
    qp.peer = 0;
    qp.neighbour = static_cast<int16_t>(neighbours.find_or_add(next_hop(Ipv4Address{qp.dest_ip})));
    if (qp.neighbour < 0) return ENOMEM;
    return 0;
  }
  qp.flows_made_for = 1;
  make_flows(qp, wire_mac(qp));
  return 0;
}

Ipv4Address Nic::Impl::next_hop(Ipv4Address destination) const {
  const uint32_t mask =
      settings.prefix_length == 0 ? 0 : ~uint32_t{0} << (32 - settings.prefix_length);
  const bool on_link = ((raw(destination) ^ raw(settings.ip)) & mask) == 0;
  return on_link || raw(settings.gateway) == 0 ? destination : settings.gateway;
}

// On the in-process wire and the loopback nobody looks at MAC addresses; captures look right all
// the same. Those of groups count on Ethernet, too.
wire::MacAddress Nic::Impl::wire_mac(const QpContext& qp) const {
  if (wire::is_multicast(Ipv4Address{qp.dest_ip}))
    return wire::multicast_mac(Ipv4Address{qp.dest_ip});
  if (qp.peer == kLoopbackPeer) return settings.mac;
  return wire_mac(Ipv4Address{qp.dest_ip});
}

wire::MacAddress Nic::Impl::wire_mac(Ipv4Address ip) {
  return {0x02,
          0x00,
          static_cast<uint8_t>(raw(ip) >> 24),
          static_cast<uint8_t>(raw(ip) >> 16),
          static_cast<uint8_t>(raw(ip) >> 8),
          static_cast<uint8_t>(raw(ip))};
}

void Nic::Impl::destroy_qp(ClientState& client, QpContext& qp) {
  quiesce_qp(qp);
  unbind_windows_of(qp);
  groups.forget(qp);
  const uint32_t qpn = qp.qpn;
  std::erase(client.qpns, qpn);
  const uint32_t index = qpn & 0xffff;
  qps[index].reset();
  // Never 255: the last index would get wire::kMulticastQpn.
  generations[index] = generations[index] == 254 ? 1 : generations[index] + 1;
  free_indices.push_back(index);
}

// Nothing in the NIC's queues belongs to the QP any more: what was buffered or half-sent is
// dropped, lists forget it. Its connection is over; the peer may not know yet.
void Nic::Impl::quiesce_qp(QpContext& qp) {
  enter_time_wait(qp);
  end_train();
  for (ReceiveSpace* space : {&qp.requests, &qp.responses}) {
    drop_reorder_slots(*space);
    if (!broken(Fault::early_write_leaks)) space->early_writes.clear(early_write_pool);
  }
  for (auto* list : {&ack_list, &ack_next, &report_list, &advance_list, &advance_next})
    std::erase(*list, &qp);
  qp.on_ack_list = qp.ack_owed = qp.on_report_list = qp.on_advance_list = false;
  for (ClientState* client : served) {
    for (SendProgress* progress : {&client->urgent, &client->normal}) {
      if (progress->active && progress->descriptor.qpn == qp.qpn) progress->active = false;
    }
  }
  qp.read_jobs = 0;
  for (uint32_t i = 0; i < read_count; ++i) {
    ReadJob& job = read_jobs[(read_head + i) % kReadJobs];
    if (job.qpn == qp.qpn) job.qpn = 0;
  }
}

// The client broke a rule. It is not served any more; the control thread closes its connection.
void Nic::Impl::drop_client(ClientState& client, DropReason reason) {
  counters.add(Counter::clients_dropped);
  client.channel->dropped.store(reason, std::memory_order_release);
  client.channel->header().device_fatal.store(1 + static_cast<uint32_t>(reason),
                                              std::memory_order_release);
  client.channel->wake_driver();
}

}  // namespace hostnic
