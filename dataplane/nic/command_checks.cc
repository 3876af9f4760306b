// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/command_checks.h"

#include <bit>
#include <cerrno>

#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/transport/transport.h"

namespace hostnic {
namespace {

constexpr uint32_t kMaxRecvEntries = 32768;
constexpr uint32_t kMaxReadDestinationEntries = 256;
constexpr uint32_t kAccessFlags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                  kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                  kAccessOnDemand | kAccessRelaxedOrdering;

// Whether the NIC may go from one state to the other. It does not hear of what the driver does by
// itself (SQE), and so the driver's states are not always the NIC's: but one that was never
// connected never sends.
bool may_follow(QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
    case QpState::kErr:
      return true;
    case QpState::kInit:
    case QpState::kRtr:
      return from == QpState::kReset || from == QpState::kInit;
    case QpState::kRts:
      return from == QpState::kRtr || from == QpState::kRts || from == QpState::kSqd;
    case QpState::kSqd:
      return from == QpState::kRts || from == QpState::kSqd;
    case QpState::kSqe:
      break;
  }
  return false;
}

bool valid_path_mtu(uint32_t bytes) {
  return bytes >= 256 && bytes <= 4096 && std::has_single_bit(bytes);
}

}  // namespace

int check_command(const CreateQpCommand& command, uint32_t max_qps) {
  const uint32_t entries = command.recv_entries;
  if (command.status_index >= max_qps || !is_qp_type(command.type)) return EINVAL;
  if (entries > kMaxRecvEntries || (entries != 0 && !std::has_single_bit(entries))) return EINVAL;
  if (command.srq_offset != 0 && entries == 0) return EINVAL;
  if (command.recv_max_sge > kMaxSge ||
      command.read_destination_entries > kMaxReadDestinationEntries ||
      !std::has_single_bit(uint32_t{command.read_destination_entries})) {
    return EINVAL;
  }
  return 0;
}

int check_command(const ModifyQpCommand& command, QpType type, QpState from) {
  if (!may_follow(from, command.state)) return EINVAL;
  if ((command.access & ~kAccessFlags) != 0 || command.max_dest_rd_atomic > kAtomicRecords ||
      command.min_rnr_timer > 31 || command.restart_sends > 1 || command.peer_silent > 1 ||
      command.sends_first > 1 || command.dest_qpn > 0xffffff) {
    return EINVAL;
  }
  // A datagram queue pair has no path: every descriptor brings its own.
  if (command.state == QpState::kRtr && type != QpType::kUd &&
      !valid_path_mtu(command.path_mtu_bytes)) {
    return EINVAL;
  }
  return 0;
}

int check_command(const CreateWindowCommand& command) {
  return command.type == WindowType::k1 || command.type == WindowType::k2 ? 0 : EINVAL;
}

}  // namespace hostnic
