// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/receive_queue.h"

namespace hostnic {
namespace {

// Most receives that one queue pair may take from a shared queue while its expected PSN is missing.
constexpr uint32_t kSharedAhead = 16;

// The number by which a receive's slot is found.
uint32_t receive_name(const QpContext& qp, uint32_t sn) {
  return qp.srq != nullptr ? qp.recv_names[sn & (qp.recv_entries - 1)] : sn;
}

}  // namespace

// The absolute number of receives posted, as the driver says; never more than fit behind what has
// completed. With a shared receive queue it is the end of the completion ring's room.
uint32_t ReceiveQueues::posted(const QpContext& qp) {
  const uint32_t said = qp.status->recv_posted.load(std::memory_order_acquire);
  const auto available = static_cast<uint32_t>(serial_distance(qp.recv_next_sn, said));
  return available <= qp.recv_entries ? said : qp.recv_next_sn;
}

bool ReceiveQueues::is_there(QpContext& qp, uint32_t sn, bool ahead) {
  if (qp.srq != nullptr) return bind(qp, sn, ahead);
  return qp.recv_entries != 0 && serial_distance(sn, posted(qp)) > 0;
}

// Takes from the shared queue the receives that are missing up to `sn`, all or none. What is bound
// stays bound: the ring of names says so from now on, for the driver to give it back if the message
// never ends.
bool ReceiveQueues::bind(QpContext& qp, uint32_t sn, bool ahead) {
  const int32_t missing = serial_distance(qp.recv_bound_sn, sn) + 1;
  if (missing <= 0) return true;
  const auto wanted = static_cast<uint32_t>(missing);
  // A driver that polls always has room here: its ring of names is as long as the queue.
  if (serial_distance(sn, posted(qp)) <= 0) return false;
  SrqHeader& srq = *qp.srq;
  const uint32_t taken = srq.taken.load(std::memory_order_relaxed);
  const uint32_t posted = srq.posted.load(std::memory_order_acquire);
  const auto available = static_cast<uint32_t>(serial_distance(taken, posted));
  if (available > qp.recv_entries || available < wanted) return false;
  // Ahead of its expected PSN a queue pair leaves enough receives for the others.
  if (ahead && (serial_distance(qp.recv_next_sn, sn) > static_cast<int32_t>(kSharedAhead) ||
                available - wanted < qp.recv_entries / 4)) {
    return false;
  }
  const uint32_t mask = qp.recv_entries - 1;
  for (uint32_t i = 0; i < wanted; ++i) {
    qp.recv_names[(qp.recv_bound_sn + i) & mask] =
        qp.srq_queue[(taken + i) & mask].load(std::memory_order_relaxed);
  }
  srq.taken.store(taken + wanted, std::memory_order_release);
  qp.recv_bound_sn += wanted;
  qp.status->recv_bound.store(qp.recv_bound_sn, std::memory_order_release);
  if (available - wanted < srq.limit.load(std::memory_order_relaxed)) reports_.add(qp);
  return true;
}

// The slot is copied before it is checked, because it is shared memory.
bool ReceiveQueues::load(const QpContext& qp, uint32_t sn, PostedReceive& receive) {
  const uint32_t mask = qp.recv_entries - 1;
  const uint32_t name = receive_name(qp, sn);
  const auto* shared = reinterpret_cast<const RecvSlot*>(
      qp.recv_slots + size_t{name & mask} * recv_slot_bytes(qp.recv_max_sge));
  receive.sge_count = shared->sge_count;
  if (receive.sge_count > qp.recv_max_sge || shared->sn != name) return false;
  receive.capacity_bytes = 0;
  for (uint32_t i = 0; i < receive.sge_count; ++i) {
    receive.sges[i] = shared->sge[i];
    receive.capacity_bytes += receive.sges[i].length_bytes;
  }
  return true;
}

// The completion may be written ahead of the expected PSN, too: nobody reads it before it is
// published.
void ReceiveQueues::write(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status) {
  RecvCompletion& completion = qp.recv_completions[receive_name(qp, sn) & (qp.recv_entries - 1)];
  completion.sn = sn;
  completion.status = static_cast<uint32_t>(status);
  completion.byte_len = end.byte_len;
  completion.imm_data = end.imm_data;
  completion.flags = end.flags;
  completion.src_qpn = end.src_qpn;
}

void ReceiveQueues::publish(QpContext& qp, uint32_t sn) {
  qp.recv_next_sn = sn + 1;
  qp.status->recv_completed.store(sn + 1, std::memory_order_release);
  reports_.add(qp);
}

void ReceiveQueues::complete(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status) {
  if (qp.recv_entries == 0) return;
  write(qp, sn, end, status);
  publish(qp, sn);
}

}  // namespace hostnic
