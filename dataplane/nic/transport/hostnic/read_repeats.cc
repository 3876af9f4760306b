// SPDX-License-Identifier: BSD-3-Clause
// Answers to READs that are given again, and what is remembered for that (docs/transport.md rule
// 18).
#include <algorithm>
#include <bit>

#include "dataplane/nic/transport/hostnic/read_service.h"
#include "dataplane/nic/transport/hostnic/turn_packets.h"

namespace hostnic {

// Whether the answers that come next are read now, and not when they are placed: where that may be
// later, nobody would say what they said, and one that is given again must not say anything else.
bool ReadService::reads_now(const ReadOrder& order, bool again) const {
  return order.has_digests() && (again || !egress_.answers_are_noted());
}

// Whether an answer that is asked for again is still on its way, and nobody knows yet what it says.
bool ReadService::may_be_placed_yet(const QpContext& qp, Psn psn) {
  return qp.read_order.table()->is_out(psn) && qp.answers.any_out();
}

// Before a later READ is read: notes digests of those answers to the newest one that have none, for
// their pulls may be lost, or overtaken. Returns how many, at most `budget`, or 0 if answers that
// come before them have not been read yet; nothing if all have been given.
std::optional<uint32_t> ReadService::digest_skipped(QpContext& qp, uint32_t budget) {
  ReadOrder& order = qp.read_order;
  const ReadOrder::Read read = *order.newest();
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t packets = (read.length_bytes + qp.mtu_bytes - 1) >> mtu_shift;
  uint32_t digested = 0;
  for (uint32_t i = packets - std::min(packets, digests_.window()); i < packets; ++i) {
    const Psn psn = read.first + i;
    if (order.is_repeated(psn) && order.table()->knows(psn)) continue;
    if (qp.answers.any_out()) return 0;
    if (digested == budget) break;
    const uint64_t va = read.va + (uint64_t{i} << mtu_shift);
    const uint32_t bytes = std::min<uint32_t>(qp.mtu_bytes, read.length_bytes - (i << mtu_shift));
    const RemoteRange range =
        placement_.remote_range(qp.scope(), read.rkey, va, bytes, kAccessRemoteRead);
    // A helper answers later: not worth waiting for.
    if (range.region == nullptr || range.region->helper != nullptr ||
        placement_.fetch(*range.region, range.iova, scratch_.data(), bytes,
                         {&qp.responses, psn.value()}) != MemoryAccess::kDone)
      break;
    order.note_read(read, psn, psn + 1);
    order.table()->set(psn, digests_.digest({scratch_.data(), bytes}));
    ++digested;
  }
  if (digested == 0) return std::nullopt;
  return digested;
}

// The payload of an answer that is a copy.
std::span<const std::byte> ReadService::copied_payload(const wire::Packet& p,
                                                       const rte_mbuf* packet) const {
  const size_t behind =
      egress_.adds_icrc() ? wire::pad_bytes(p.payload_bytes) + wire::kIcrcBytes : 0;
  const auto* end = rte_pktmbuf_mtod_offset(packet, const std::byte*, packet->data_len - behind);
  return {end - p.payload_bytes, p.payload_bytes};
}

// Notes the digest of an answer that is about to leave. Of one that is given again, after a later
// READ was read, only what it said the first time may leave: false, if it says something else.
bool ReadService::note_digest(ReadOrder& order, Psn psn, uint64_t digest, bool again) {
  if (!again) {
    order.table()->set(psn, digest);
    return true;
  }
  const bool same = order.table()->may_say(psn, digest);
  if (same) counters_.add(Counter::read_answers_repeated);
  return same;
}

// Sends copies of packets of a range, as far as they have, or still have, the digests that they
// should have. Returns how much of the turn they are worth; 0 where they go one by one.
uint32_t ReadService::serve_copies(QpContext& qp, ReadJob& job, const SendBudget& budget,
                                   bool again) {
  // A copied payload is read now, an external one perhaps not yet: a copy waits until none is out,
  // unless it says what has been read before.
  if (!egress_.allows_external_answers() || (!again && qp.answers.any_out())) return 0;
  const bool bundled = egress_.sends_bundles(qp.peer);
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  uint32_t most = CopyBlocks::kBlockBytes >> mtu_shift;
  if (!bundled) most = std::min({most, budget.packets, egress_.train_room(qp.peer)});
  const Range all = next_range(qp, job, budget, most);
  if (all.packets < 2) return 0;
  const wire::Packet first = next_answer(qp, job);
  const std::byte* const memory = address_of(qp, job, first.reth.va, all.bytes);
  const CopyBlocks::Block block = copies_.find_free();
  if (memory == nullptr || block.region == nullptr) return 0;
  Range same;
  for (; same.packets != all.packets; ++same.packets) {
    const uint32_t bytes = std::min<uint32_t>(qp.mtu_bytes, all.bytes - same.bytes);
    const uint64_t digest = digests_.copy(block.bytes + same.bytes, {memory + same.bytes, bytes});
    if (!note_digest(qp.read_order, first.psn + same.packets, digest, again)) break;
    same.bytes += bytes;
  }
  if (same.packets == 0) return may_be_placed_yet(qp, first.psn) ? 0 : refuse(qp, job);
  uint32_t sent = same.packets;
  if (!bundled)
    sent = emit_packets(qp, job, same, block.bytes, block.region);
  else if (!emit_range(qp, job, first, same, {block.bytes, block.region, copies_.packets()}))
    return 0;
  qp.read_order.note_read(job.read(qp.mtu_bytes), first.psn, first.psn + sent);
  if (!again) digests_.note_answered(qp.read_order, sent);
  return bundled ? turn_packets(sent) : sent;
}

// Sends packets of a range, whose bytes were copied into a block, each in a buffer of its own.
// Returns how many found one.
uint32_t ReadService::emit_packets(QpContext& qp, ReadJob& job, Range range, const std::byte* bytes,
                                   MemoryRegionEntry* block) {
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  uint32_t sent = 0;
  while (sent != range.packets) {
    wire::Packet p = next_answer(qp, job);
    const MappedPayload payload{bytes, block, copies_.packets()};
    // All but a READ's first and last are alike.
    const uint64_t before_last = p.cont ? (job.total_bytes - p.reth.va - 1) >> mtu_shift : 0;
    const auto alike =
        static_cast<uint32_t>(std::min<uint64_t>(before_last, range.bytes >> mtu_shift));
    uint32_t count = 1, part = p.payload_bytes;
    if (alike >= 2) {
      count = alike;
      part = alike << mtu_shift;
      if (!egress_.emit_train(qp.peer, qp.response_flow, p, payload, alike)) break;
    } else {
      rte_mbuf* const packet = egress_.build_external(qp.response_flow, p, payload);
      if (packet == nullptr) break;
      egress_.emit(packet, qp.peer);
    }
    job.sent_bytes += part;
    bytes += part;
    range.bytes -= part;
    sent += count;
  }
  return sent;
}

// Refuses the rest of a range: an answer without bytes says that what it said the first time can't
// be said again.
uint32_t ReadService::refuse(const QpContext& qp, ReadJob& job) {
  wire::Packet p = next_answer(qp, job);
  p.reth.length_bytes = 0;
  p.payload_bytes = 0;
  p.more = true;
  rte_mbuf* packet = egress_.build_small(qp.response_flow, p, {}, {}, egress_.pools().control);
  if (packet == nullptr) return 0;
  counters_.add(Counter::read_pulls_refused);
  job.refused = true;
  job.sent_bytes = job.request.length_bytes;
  egress_.emit(packet, qp.peer);
  return 1;
}

}  // namespace hostnic
