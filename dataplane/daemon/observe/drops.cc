// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/drops.h"

#include <fmt/format.h>

#include "dataplane/daemon/observe/ends.h"
#include "dataplane/daemon/observe/explain.h"
#include "dataplane/daemon/observe/view_text.h"

namespace hostnic {
namespace {

// "1 packet", "3 packets"; and the verb that goes with them.
std::string counted(uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}
const char* was(uint64_t count) { return count == 1 ? "was" : "were"; }

std::string why_too_long(const QpView& qp) {
  const SilentDrops& drops = qp.drops;
  const uint32_t bytes = drops.packet.packet_bytes;
  const std::string room = bytes_text(drops.room_bytes);
  if (qp.type == QpType::kUd)
    return fmt::format(
        "a datagram of {} was dropped: a receive begins with {} bytes of network header (GRH), so "
        "{} are needed, and {}",
        bytes_text(bytes), kGrhBytes, bytes + kGrhBytes,
        drops.room_bytes == 0 ? "the receive has less" : "the receive has room for " + room);
  if (bytes > qp.mtu_bytes || (!drops.packet.is_last && bytes < qp.mtu_bytes))
    return fmt::format(
        "its peer's messages are dropped: packets have {}, and its path MTU is {}: both ends must "
        "agree",
        bytes_text(bytes), qp.mtu_bytes);
  if (drops.room_bytes == 0) return "a message was dropped: it is longer than its receive";
  return fmt::format("a message was dropped: it is longer than its receive, which has room for {}",
                     room);
}

std::string why_no_access(const QpView& qp, const std::string& nic) {
  if (qp.drop_fault.fault == KeyFault::kQpRight)
    return fmt::format("its qp_access_flags are {:#x}, without REMOTE_WRITE", qp.access);
  const std::string text = to_text(qp.drop_fault, nic, /*is_remote=*/true);
  return text.empty() ? "its memory could not be reached" : text;
}

}  // namespace

std::string why_dropped(const QpView& qp, const std::string& nic) {
  const SilentDrops& drops = qp.drops;
  const uint64_t count = drops.count;
  switch (drops.last) {
    case SilentDrop::kNone:
      return {};
    case SilentDrop::kNotConnected:
      return fmt::format("{} for it {} dropped, since it is in {}: nothing arrives before RTR",
                         counted(count, "packet"), was(count), state_name(qp.state));
    case SilentDrop::kNotOfPeer:
      return fmt::format(
          "{} for it {} dropped, since they are not its peer's: the address, QPN or first PSN is "
          "another than it was told",
          counted(count, "packet"), was(count));
    case SilentDrop::kOtherQkey:
      return fmt::format("{} for it came with another Q_Key ({:#x}) than its own, {:#x}",
                         counted(count, "datagram"), drops.qkey, qp.qkey);
    case SilentDrop::kNoReceive:
      return fmt::format("{} for it {} dropped, since no receive was posted",
                         counted(count, "message"), was(count));
    case SilentDrop::kTooLong:
      return why_too_long(qp);
    case SilentDrop::kIncomplete:
      return fmt::format(
          "{} for it {} dropped, since a packet of each did not come: UC sends "
          "nothing again",
          counted(count, "message"), was(count));
    case SilentDrop::kAccess:
      return fmt::format("a WRITE to it was dropped: {}", why_no_access(qp, nic));
  }
  return {};
}

std::string why_stray(const StrayDatagrams& stray, const std::string& nic, const std::string& from,
                      uint32_t own_qpn) {
  if (stray.count == 0) return {};
  return fmt::format(
      "{} has dropped {} for queue pairs that it does not have, the last one from {} for QP {:#x}; "
      "this one is QP {:#x}",
      nic, counted(stray.count, "datagram"), from, stray.last_qpn, own_qpn);
}

std::string why_lost(const StrayDatagrams& stray, const std::string& nic) {
  if (stray.count == 0) return {};
  return fmt::format(
      "{} has dropped {} for queue pairs that it does not have, the last one from here for QP "
      "{:#x}: whoever named that number has ended, or belongs to another lab",
      nic, counted(stray.count, "datagram"), stray.last_qpn);
}

}  // namespace hostnic
