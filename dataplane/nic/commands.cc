// SPDX-License-Identifier: BSD-3-Clause
// Commands of drivers, taken and answered. Not the hot path: allocation is allowed here.
#include <algorithm>
#include <cerrno>

#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/nic/command_checks.h"
#include "dataplane/nic/nic_core.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr uint32_t kCommandsPerTurn = 16;
// Answers are deferred no longer than this: a port that takes nothing, or an lcore that gets no CPU
// time, must not hang programs for good.
constexpr uint64_t kAnswerLimitNs = 500'000'000;

bool may_send(const QpContext& qp) {
  return qp.state == QpState::kRts || qp.state == QpState::kSqd;
}

// Defers the answer of a QP that sends nothing any more: what is left of the QP lies in the rings
// before their present ends, in the port, and with its peer (rule 32).
void defer_answer(ClientState& client, TimeNs now, const CommandResponse& response,
                  const QpPackets& packets, const QpContext* context) {
  client.deferred.push_back({.response = response,
                             .packets = packets,
                             .sends_until = client.channel->sends.produced(),
                             .urgent_until = client.channel->urgent.produced(),
                             .answer_by_ns = now + kAnswerLimitNs,
                             .context_begin = context,
                             .context_end = context + 1});
}

// ---- memory windows

int create_window(NicShard& nic, const ClientState& client, const CreateWindowCommand& command,
                  uint32_t& key) {
  if (const int error = check_command(command)) return error;
  ClientChannel& channel = *client.channel;
  key = nic.windows_of_user.may_take(channel.settings(), channel.settings().user_windows)
            ? nic.windows.add(channel.settings().client_id, command.pd, command.type)
            : 0;
  if (key == 0) {
    channel.window_limit_met.store(true, std::memory_order_relaxed);
    return ENOMEM;
  }
  nic.windows_of_user.take(channel.settings());
  channel.use->windows.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

int destroy_window(NicShard& nic, const ClientState& client, uint32_t key) {
  const ClientChannel::Settings& settings = client.channel->settings();
  if (const int error = nic.windows.destroy(settings.client_id, key)) return error;
  nic.windows_of_user.give_back(settings);
  client.channel->use->windows.fetch_sub(1, std::memory_order_relaxed);
  return 0;
}

int bind_window(NicShard& nic, const ClientState& client, const BindWindowCommand& command) {
  const QpContext* qp = nic.own_qp(client, command.qpn);
  if (qp == nullptr || qp->type == QpType::kUd || !may_send(*qp)) return EINVAL;
  return nic.windows.bind(qp->scope(), command);
}

int invalidate_window(NicShard& nic, const ClientState& client,
                      const InvalidateWindowCommand& command) {
  const QpContext* qp = nic.own_qp(client, command.qpn);
  if (qp == nullptr || !may_send(*qp)) return EINVAL;
  return nic.windows.invalidate(qp->scope(), command.key);
}

// ---- multicast groups

// Whether the client's user may be in another group, or have another place in this one.
bool may_join(const NicShard& nic, const ClientChannel& channel, Ipv4Address group) {
  if (!channel.settings().is_strangers) return true;
  constexpr auto kGroups = UserShares::shares_of(kMaxGroups);
  constexpr auto kPlaces = UserShares::shares_of(kMaxGroupMembers);
  const MulticastGroups& groups = nic.groups;
  const uint32_t uid = channel.settings().uid;
  const auto is_users = [&](const QpContext* qp) { return qp->client->settings().uid == uid; };
  const auto is_strangers = [](const QpContext* qp) { return qp->client->settings().is_strangers; };
  const auto members = groups.members(group);
  if (members.empty())
    return groups.count_with(is_users) < kGroups.user &&
           groups.count_with(is_strangers) < kGroups.strangers;
  return static_cast<uint64_t>(std::ranges::count_if(members, is_users)) < kPlaces.user &&
         static_cast<uint64_t>(std::ranges::count_if(members, is_strangers)) < kPlaces.strangers;
}

int attach_group(NicShard& nic, const ClientState& client, const GroupCommand& command) {
  QpContext* qp = nic.own_qp(client, command.qpn);
  const Ipv4Address group{command.group_ip};
  if (qp == nullptr || qp->type != QpType::kUd || !wire::is_multicast(group)) return EINVAL;
  MulticastGroups& groups = nic.groups;
  const bool is_first = groups.members(group).empty();
  if (!may_join(nic, *client.channel, group)) return ENOMEM;
  if (is_first) {
    if (const int error = nic.port.join(raw(group))) return error;
  }
  const int error = groups.add(group, *qp);
  if (is_first && error != 0) nic.port.leave(raw(group));
  return error;
}

int detach_group(NicShard& nic, const ClientState& client, const GroupCommand& command) {
  QpContext* qp = nic.own_qp(client, command.qpn);
  const Ipv4Address group{command.group_ip};
  MulticastGroups& groups = nic.groups;
  if (qp == nullptr || !groups.remove(group, *qp)) return EINVAL;
  if (groups.members(group).empty()) nic.port.leave(raw(group));
  return 0;
}

// ---- hosts

// EAGAIN: somebody has been asked and may still answer. A host that can't be reached costs its
// datagrams only.
int find_host(NicShard& nic, const ClientState& client, Ipv4Address ip) {
  Path path;
  if (wire::is_multicast(ip) ||
      nic.egress.find_path(ip, neighbour_name(client.channel->settings()), false, path) != 0)
    return 0;
  return nic.egress.paths().is_being_found(path) ? EAGAIN : 0;
}

}  // namespace

uint32_t NicShard::command_turn() {
  uint32_t done = 0;
  for (ClientState* client : clients.served()) {
    ClientChannel& channel = *client->channel;
    if (ClientList::is_dropped(*client)) continue;
    if (channel.has_lost_memory()) {
      clients.drop(*client, DropReason::kMemoryGone);
      continue;
    }
    for (uint32_t i = 0;
         i < kCommandsPerTurn && channel.responses.free_count() > client->deferred.size(); ++i) {
      if (client->held_seen_ns != 0) {
        if (!client->held_for_long(now) && waits_for_sends(*client, client->held)) break;
        client->held_seen_ns = 0;
        handle_command(*client, client->held);
        ++done;
        continue;
      }
      Command command;
      const int taken = channel.commands.dequeue_burst(&command, 1);
      if (taken < 0) clients.drop(*client, DropReason::kRingPosition);
      if (taken <= 0) break;
      ++done;
      if (waits_for_sends(*client, command)) {
        client->held = command;
        client->held_seen_ns = now;
        client->held_for_ns = 0;
        break;
      }
      handle_command(*client, command);
    }
    done += answer_deferred(*client);
  }
  return done;
}

// Whether a command would end the sending of a queue pair whose program has posted more than has
// left: who rings an adapter has practically sent (rule 28).
bool NicShard::waits_for_sends(const ClientState& client, const Command& command) const {
  const ModifyQpCommand& modify = command.modify_qp;
  const DestroyQpCommand& destroy = command.destroy_qp;
  const bool is_end = command.kind == CommandKind::kModifyQp &&
                      (modify.state == QpState::kErr || modify.state == QpState::kReset);
  const bool is_destroy = command.kind == CommandKind::kDestroyQp;
  if (!(is_end && modify.sends_first != 0) && !(is_destroy && destroy.sends_first != 0))
    return false;
  const QpContext* const qp = own_qp(client, is_end ? modify.qpn : destroy.qpn);
  const Psn until(is_end ? modify.sq_psn : destroy.sends_until_psn);
  return qp != nullptr && may_send(*qp) && !qp->send_failed && distance(qp->transmitted, until) > 0;
}

void NicShard::handle_command(ClientState& client, const Command& command) {
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
        response.transport = qp->transport;
        if (qp->state == QpState::kErr || qp->state == QpState::kReset) {
          defer_answer(client, now, response, qp->packets, qp);
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
        destroy_qp(client, *qp, false);
        defer_answer(client, now, response, packets, qp);
        return;
      }
      break;
    case CommandKind::kCreateWindow:
      response.error = create_window(*this, client, command.create_window, response.window_key);
      break;
    case CommandKind::kDestroyWindow:
      response.error = destroy_window(*this, client, command.destroy_window.key);
      break;
    case CommandKind::kBindWindow:
      response.error = bind_window(*this, client, command.bind_window);
      break;
    case CommandKind::kInvalidateWindow:
      response.error = invalidate_window(*this, client, command.invalidate_window);
      break;
    case CommandKind::kAttachGroup:
      response.error = attach_group(*this, client, command.group);
      break;
    case CommandKind::kDetachGroup:
      response.error = detach_group(*this, client, command.group);
      break;
    case CommandKind::kFindHost:
      response.error = find_host(*this, client, Ipv4Address{command.find_host.ip});
      break;
    default:
      clients.drop(client, DropReason::kBadCommand);
      return;
  }
  client.channel->responses.enqueue_bulk(&response, 1);
  client.answered = true;
}

uint32_t NicShard::answer_deferred(ClientState& client) {
  ClientChannel& channel = *client.channel;
  const MemFdHelper* const helper = channel.mem_fd_helper.load(std::memory_order_relaxed);
  uint32_t answered = 0, kept = 0;
  for (const DeferredAnswer& answer : client.deferred) {
    const bool referenced =
        answer.packets.any_out() ||
        (helper != nullptr && helper->busy_for(answer.context_begin, answer.context_end)) ||
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

QpContext* NicShard::own_qp(const ClientState& client, uint32_t qpn) const {
  QpContext* qp = qps.find(qpn);
  return qp != nullptr && qp->client == client.channel ? qp : nullptr;
}

}  // namespace hostnic
