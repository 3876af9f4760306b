// SPDX-License-Identifier: BSD-3-Clause
// What a responder does that InfiniBand permits and adapters do not, where `ordering` is
// adversarial (docs/ordering.md): receives are denied, WRITEs are acknowledged before they can be
// seen, and atomics are executed in two steps.
#include <atomic>
#include <utility>

#include "dataplane/nic/transport/hostnic/responder.h"

namespace hostnic {
namespace {

using impair::AdversaryDraw;
using wire::Opcode;

// Time enough for a program that hears of its completion to look, and for its message to be faster.
constexpr TimeNs kMostUnseenNs = 100'000, kMostSplitNs = 20'000;
constexpr uint32_t kDeniedOneIn = 8, kUnseenOneIn = 4, kSplitOneIn = 4;

}  // namespace

// Draws about a packet. What was refused comes again as another attempt, about which nothing is
// drawn.
TimeNs Responder::draw(AdversaryDraw about, const QpContext& qp, const wire::Packet& p,
                       uint32_t one_in, TimeNs most_ns) const {
  if (p.attempt != 0) return 0;
  const uint64_t name = uint64_t{qp.qpn} << 24 | p.psn.value();
  return impair::draw(settings_.adversary_seed, about, name, one_in, most_ns);
}

// Whether the adversary says that there is no receive: once for a message.
bool Responder::refuses_on_purpose(const QpContext& qp, const wire::Packet& p) const {
  const bool is_write = p.opcode == Opcode::kWriteImm;
  const bool is_send =
      p.opcode == Opcode::kSend || p.opcode == Opcode::kSendImm || p.opcode == Opcode::kSendInv;
  const bool looks_for_receive = is_send ? !p.cont : is_write && !p.more;
  return looks_for_receive && draw(AdversaryDraw::kNoReceive, qp, p, kDeniedOneIn, 1) != 0;
}

// Takes and acknowledges the expected packet, if it is a WRITE's, and lets its bytes wait. That
// must not be able to fail any more: so only memory will do that is mapped in one piece, by a
// region's key. Returns false if nothing has happened.
bool Responder::acknowledge_unseen(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (p.opcode != Opcode::kWriteOnly || policy_ != wire::Policy::kSelective ||
      (p.reth.key & kWindowKeyBit) != 0 || !qp.takes(kAccessRemoteWrite) || !fits_path_mtu(qp, p))
    return false;
  const auto payload = payload_of(packet, p);
  const TimeNs wait_ns = draw(AdversaryDraw::kUnseenWrite, qp, p, kUnseenOneIn, kMostUnseenNs);
  if (wait_ns == 0 || payload.empty()) return false;
  const RemoteRange range = placement_.remote_range(qp.scope(), p.reth.key, p.reth.va,
                                                    payload.size(), kAccessRemoteWrite);
  if (range.region == nullptr || range.region->pieces.size() != 1 ||
      range.region->pieces.front().host == nullptr)
    return false;
  const bool filled_hole = qp.requests.window.has_hole();
  if (!reorder_.enter(qp.requests, p.psn, packet)) return false;
  range.region->mbufs_out.fetch_add(1, std::memory_order_relaxed);
  qp.unseen = true;
  qp.unseen_write = {range.region, range.iova, now_ + wait_ns};
  qp.requests.window.set(p.psn);
  if (!p.more) ++qp.msn;
  note_message(qp, p);
  advance_list_.add(qp);
  if (p.ack_request || filled_hole || ++qp.unacknowledged >= kAckEvery) acks_.owe(qp, p, false);
  return true;
}

// Places what has been acknowledged. Returns false if that can't be now; `or_forget`: it is
// forgotten then. Where the memory is gone there is nobody to see it.
bool Responder::show_unseen(QpContext& qp, bool or_forget) {
  ReceiveSpace& space = qp.requests;
  const UnseenWrite write = qp.unseen_write;
  const Psn psn = space.window.expected();
  rte_mbuf* const packet = space.waiting(psn).packet();
  const wire::Packet p = valid_headers(packet);
  const PlaceResult placed = executor_.place_checked(qp, {write.region, write.iova}, !p.more,
                                                     {.psn = psn}, payload_of(packet, p));
  if (placed == PlaceResult::kNotNow && !or_forget) return false;
  write.region->mbufs_out.fetch_sub(1, std::memory_order_release);
  qp.unseen = false;
  qp.unseen_write = {};
  reorder_.release_slot(space, psn);
  rte_pktmbuf_free(packet);
  space.window.advance();
  return true;
}

// Places the bytes of a WRITE with immediate data that waits for its turn: only its completion
// must. What can't be placed now is in its turn.
void Responder::place_write_early(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (p.opcode != Opcode::kWriteImm || !qp.takes(kAccessRemoteWrite) || !fits_path_mtu(qp, p))
    return;
  const auto payload = payload_of(packet, p);
  const Outcome placed = executor_.place_write(
      qp, {.key = p.reth.key, .va = p.reth.va, .checked_bytes = payload.size(), .is_last = !p.more},
      {.psn = p.psn, .ahead = true}, payload);
  if (placed.done()) qp.requests.reorder_slot(p.psn).note_placed();
}

// Whether an atomic waits whose word has been read, or is read now.
bool Responder::put_off_atomic(QpContext& qp, const wire::Packet& p) {
  if (const SplitAtomic* const begun = executor_.split_atomic_of(qp)) return now_ < begun->until_ns;
  const TimeNs wait_ns = draw(AdversaryDraw::kSplitAtomic, qp, p, kSplitOneIn, kMostSplitNs);
  return wait_ns != 0 && executor_.begin_split_atomic(qp, p.atomic, p.psn, now_ + wait_ns);
}

void Responder::settle(QpContext& qp) {
  if (unlikely(qp.unseen)) show_unseen(qp, /*or_forget=*/true);
  executor_.end_split_atomic(qp);
}

TimeNs Responder::put_off_until_ns(const QpContext& qp) const {
  if (qp.unseen) return qp.unseen_write.until_ns;
  const SplitAtomic* const begun = executor_.split_atomic_of(qp);
  return begun == nullptr ? UINT64_MAX : begun->until_ns;
}

}  // namespace hostnic
