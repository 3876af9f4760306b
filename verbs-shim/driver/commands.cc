// SPDX-License-Identifier: BSD-3-Clause
// Commands to the NIC: those that are waited for, those whose answer somebody meets later.
#include <cerrno>

#include "verbs-shim/driver/driver_core.h"

namespace hostnic::driver {

// Publishes a command and waits for its answer. 0 or errno; EIO when the NIC is gone.
int DriverCore::execute(Command& command, CommandResponse& response) {
  if (dead.load(std::memory_order_acquire)) return EIO;
  command.correlation = next_correlation++;
  awaited = command.correlation;
  while (!map.commands.enqueue_bulk(&command, 1)) {
    if (dead.load(std::memory_order_acquire)) return EIO;
    link.kick();
    link.wait_for_response();
    take_responses();
  }
  must_kick = false;
  link.kick();
  for (take_responses(); awaited != 0; take_responses()) {
    if (dead.load(std::memory_order_acquire)) return EIO;
    link.wait_for_response();
  }
  response = awaited_response;
  return response.error;
}

void DriverCore::take_responses() {
  CommandResponse response;
  while (map.responses.dequeue_burst(&response, 1) == 1) {
    if (response.correlation == awaited) {
      awaited = 0;
      awaited_response = response;
      continue;
    }
    if (const auto asked = window_commands.find(response.correlation);
        asked != window_commands.end()) {
      Qp& qp = *asked->second;
      window_commands.erase(asked);
      qp.on_window_answer(response.error);
      continue;
    }
    const auto it = error_moves.find(response.correlation);
    if (it == error_moves.end()) continue;
    Qp& qp = *it->second;
    error_moves.erase(it);
    qp.on_nic_error_state();
  }
}

void DriverCore::move_nic_to_error(Qp& qp) {
  if (dead.load(std::memory_order_acquire)) {
    qp.on_nic_error_state();
    return;
  }
  Command command{};
  command.kind = CommandKind::kModifyQp;
  command.correlation = next_correlation++;
  command.modify_qp = command_for(qp, QpState::kErr);
  if (!map.commands.enqueue_bulk(&command, 1)) {
    unsent_error_moves.push_back(&qp);
    want_issue(qp);
    return;
  }
  error_moves[command.correlation] = &qp;
  must_kick = true;
}

bool DriverCore::send_window_command(Qp& qp, Command& command) {
  // On a dead device the command counts as sent, because everything is flushed soon.
  if (dead.load(std::memory_order_acquire)) return true;
  command.correlation = next_correlation++;
  if (!map.commands.enqueue_bulk(&command, 1)) return false;
  window_commands[command.correlation] = &qp;
  must_kick = true;
  return true;
}

ModifyQpCommand DriverCore::command_for(const Qp& qp, QpState state) const {
  const QpAttr& attr = qp.attr;
  return {.qpn = qp.qpn,
          .state = state,
          .dest_qpn = attr.dest_qpn,
          .dest_ip = raw(attr.dest_ip),
          .sq_psn = attr.sq_psn,
          .rq_psn = attr.rq_psn,
          .access = attr.access,
          .path_mtu_bytes = static_cast<uint16_t>(attr.path_mtu_bytes),
          .max_dest_rd_atomic = attr.max_dest_rd_atomic,
          .min_rnr_timer = attr.min_rnr_timer,
          .traffic_class = attr.traffic_class,
          .hop_limit = attr.hop_limit,
          .restart_sends = 0,
          .source_index = attr.source_index,
          .qkey = attr.qkey,
          .peer_silent =
              static_cast<uint8_t>(state == QpState::kErr && qp.failed_for_silence() ? 1 : 0),
          .sends_first = 0,
          .reserved = {}};
}

// ---- memory windows

Expected<uint32_t, int> Driver::create_window(uint32_t pd, WindowType type) {
  std::lock_guard lock(mutex_);
  Command command{};
  command.kind = CommandKind::kCreateWindow;
  command.create_window = {.pd = pd, .type = type};
  CommandResponse response{};
  const int error = core_->execute(command, response);
  core_->kick_if_needed();
  if (error != 0) return Unexpected(error);
  return response.window_key;
}

int Driver::destroy_window(uint32_t key) {
  std::lock_guard lock(mutex_);
  Command command{};
  command.kind = CommandKind::kDestroyWindow;
  command.destroy_window.key = key;
  CommandResponse response{};
  const int error = core_->execute(command, response);
  core_->kick_if_needed();
  return error;
}

// ---- multicast groups

int DriverCore::change_group(CommandKind kind, const Qp& qp, Ipv4Address group) {
  Command command{};
  command.kind = kind;
  command.group = {.qpn = qp.qpn, .group_ip = raw(group)};
  CommandResponse response{};
  const int error = execute(command, response);
  kick_if_needed();
  return error;
}

int Driver::attach_group(Qp* qp, Ipv4Address group) {
  std::lock_guard lock(mutex_);
  return core_->change_group(CommandKind::kAttachGroup, *qp, group);
}

int Driver::detach_group(Qp* qp, Ipv4Address group) {
  std::lock_guard lock(mutex_);
  return core_->change_group(CommandKind::kDetachGroup, *qp, group);
}

}  // namespace hostnic::driver
