// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/hostnic/read_service.h"

#include <algorithm>
#include <bit>

#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/memory/region_access.h"
#include "dataplane/nic/transport/answer_bytes.h"
#include "dataplane/nic/transport/hostnic/turn_packets.h"

namespace hostnic {

ReadService::ReadService(const TransportServices& nic)
    : settings_(nic.settings),
      lines_(nic.answer_lines),
      egress_(nic.egress),
      placement_(nic.placement),
      counters_(nic.counters),
      digests_(nic.settings.window, nic.settings.random_seed),
      scratch_(nic.settings.mtu_bytes) {}

// Returns false if too many of its client's ranges wait already, and the requester pulls again; or
// if it has done so in a newer epoch and would drop the answers. Ranges that wait when a newer
// epoch begins are dropped, too: on a slow port they would keep the new ones waiting until those
// are pulled once more, and so on.
bool ReadService::queue(QpContext& qp, const wire::Packet& p) {
  if (static_cast<int8_t>(p.read.epoch - qp.read_epoch) < 0) return false;
  const std::optional<uint32_t> place = lines_.add_job(qp);
  if (!place) return false;
  jobs_[*place] = {.request = p.read,
                   .total_bytes = p.reth.length_bytes,
                   .rkey = p.reth.key,
                   .va = p.reth.va,
                   .path = static_cast<uint8_t>(p.src_port & kPathMask)};
  if (p.read.epoch != qp.read_epoch) {
    qp.read_epoch = p.read.epoch;
    digests_.begin_epoch(qp.read_order);
  }
  counters_.add(Counter::read_requests_served);
  return true;
}

// Answers leave in the order of their PSNs: one that overtook a READ's would make the requester
// believe that the READ's answers are lost. If there is no place for it the requester asks again.
void ReadService::answer_atomic(QpContext& qp, const wire::Packet& p, uint64_t result) {
  const wire::ReadEth& request = p.read;
  const auto path = static_cast<uint8_t>(p.src_port & kPathMask);
  if (qp.answers_in_line == 0) {
    egress_.paths().answer_by(qp, path);
    send_atomic_response(qp, request, result);
    return;
  }
  if (const std::optional<uint32_t> place = lines_.add_job(qp))
    jobs_[*place] = {.request = request, .path = path, .is_atomic = true, .atomic_result = result};
}

// Sends the next packets of an answer. Returns how much of a turn they are; 0 if there is no room
// or no buffer now, or it is not their turn.
[[gnu::always_inline]] inline uint32_t ReadService::serve_job(QpContext& qp, ReadJob& job,
                                                              const SendBudget& budget,
                                                              AnswerStep& step) {
  if (job.is_atomic) {
    if (!send_atomic_response(qp, job.request, job.atomic_result)) return 0;
    step.packets = 1;
    step.payload_bytes = sizeof(job.atomic_result);
    return 1;
  }
  const uint32_t bytes_before = job.sent_bytes;
  const uint32_t sent = serve_read(qp, job, budget);
  const uint32_t bytes = job.sent_bytes - bytes_before;
  // A turn that only read memory for its digests has sent nothing.
  const bool nothing = job.is_lost || job.refused || (bytes == 0 && job.request.length_bytes != 0);
  if (!nothing && sent != 0) {
    const uint32_t packets = (bytes + qp.mtu_bytes - 1) >> std::countr_zero(qp.mtu_bytes);
    step.packets = std::max(packets, 1u);
    step.payload_bytes = bytes;
  }
  return sent;
}

// Whether nobody waits for the answer any more.
bool ReadService::is_void(const QpContext& qp, const ReadJob& job) const {
  return qp.state < QpState::kRtr || (qp.state == QpState::kErr && !qp.fatal) ||
         static_cast<int8_t>(job.request.epoch - qp.read_epoch) < 0;
}

AnswerStep ReadService::serve(QpContext& qp, uint32_t place, const SendBudget& budget) {
  using Then = AnswerStep::Then;
  ReadJob& job = jobs_[place];
  if (is_void(qp, job)) return {.then = Then::kOver};
  // A peer whose address is unknown pulls again.
  if (!egress_.paths().prepare_flows(qp)) return {.then = Then::kOver};
  egress_.paths().answer_by(qp, job.path);
  if (!egress_.has_room(qp.peer)) return {.then = Then::kStopped};
  AnswerStep step;
  step.done = serve_job(qp, job, budget, step);
  if (step.done == 0) {
    step.then = Then::kStopped;
  } else if (job.is_atomic || job.sent_bytes >= job.request.length_bytes) {
    step.then = Then::kOver;
    if (!job.refused && job.request.offset_bytes + job.sent_bytes >= job.total_bytes)
      note_read_answered(qp, job.request.read_number);
  }
  return step;
}

// Returns the headers of a range's next packet.
wire::Packet ReadService::next_answer(const QpContext& qp, const ReadJob& job) const {
  const uint32_t sent_bytes = job.sent_bytes;
  const uint64_t offset = uint64_t{job.request.offset_bytes} + sent_bytes;
  const uint32_t part = std::min<uint32_t>(qp.mtu_bytes, job.request.length_bytes - sent_bytes);
  wire::Packet p;
  p.opcode = wire::Opcode::kReadResponse;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = job.request.first_response_psn + sent_bytes / qp.mtu_bytes;
  p.reth = {offset, job.request.read_number, part};
  p.response_epoch = job.request.epoch;
  p.cont = offset != 0;
  p.more = offset + part < job.total_bytes;
  p.policy = settings_.policy;
  p.payload_bytes = static_cast<uint16_t>(part);
  return p;
}

// Sends packets of a range, at most `budget`. Returns how many; 0 means that there is no buffer
// now, or that it is not the range's turn. A key that went bad meanwhile ends the job silently; the
// next pull is refused.
uint32_t ReadService::serve_read(QpContext& qp, ReadJob& job, const SendBudget& budget) {
  ReadOrder& order = qp.read_order;
  const uint32_t number = job.request.read_number;
  if (job.sent_bytes == 0 && order.is_repeated(job.request.first_response_psn))
    digests_.note_repeated(order, qp.answers.count());
  if (const ReadOrder::Read* const newest = order.newest();
      newest != nullptr && order.has_digests() && serial_distance(newest->number, number) > 0) {
    if (const auto digested = digest_skipped(qp, budget.packets)) return *digested;
  }
  const bool again = order.has_read_later(number);
  if (again && !order.has_digests()) return refuse(qp, job);
  if (const uint32_t several = reads_now(order, again) ? serve_copies(qp, job, budget, again)
                                                       : serve_in_bulk(qp, job, budget);
      several != 0)
    return several;
  const wire::Packet p = next_answer(qp, job);
  if (again && may_be_placed_yet(qp, p.psn)) return 0;
  const RemoteRange range = placement_.remote_range(qp.scope(), job.rkey, job.va + p.reth.va,
                                                    p.payload_bytes, kAccessRemoteRead);
  bool lost = range.region == nullptr;
  rte_mbuf* packet = lost ? nullptr : build_answer(qp, p, range, again, lost);
  if (lost) {
    job.sent_bytes = job.request.length_bytes;
    job.is_lost = true;
    return 1;
  }
  if (packet == nullptr) return 0;
  const bool is_out = external_payload(packet) != nullptr;
  if (order.has_digests() && !is_out &&
      !note_digest(order, p.psn, digests_.digest(copied_payload(p, packet)), again)) {
    rte_pktmbuf_free(packet);
    return refuse(qp, job);
  }
  order.note_read(job.read(qp.mtu_bytes), p.psn, p.psn + 1);
  if (order.has_digests() && !again) digests_.note_answered(order, 1);
  job.sent_bytes += p.payload_bytes;
  egress_.emit(packet, qp.peer);
  return 1;
}

// Sends packets of a range that need not be copied. Returns how much of the turn they are worth; 0
// where nothing of that kind comes next.
uint32_t ReadService::serve_in_bulk(QpContext& qp, ReadJob& job, const SendBudget& budget) {
  const uint32_t sent_before = job.sent_bytes;
  const uint32_t served = egress_.sends_bundles(qp.peer) ? serve_read_bundle(qp, job, budget)
                                                         : serve_read_train(qp, job, budget);
  if (served != 0) {
    const int shift = std::countr_zero(qp.mtu_bytes);
    const Psn first = job.request.first_response_psn + (sent_before >> shift);
    const uint32_t sent = ((job.sent_bytes + qp.mtu_bytes - 1) >> shift) - (sent_before >> shift);
    ReadOrder& order = qp.read_order;
    order.note_read(job.read(qp.mtu_bytes), first, first + sent);
    if (order.has_digests()) digests_.note_answered(order, sent);
  }
  return served;
}

// Builds an answer: its payload is external where the memory is mapped, else copied. Returns null
// if there is no buffer, or if the memory is gone (`lost`) or can't be read now.
rte_mbuf* ReadService::build_answer(QpContext& qp, const wire::Packet& p, const RemoteRange& range,
                                    bool again, bool& lost) {
  const std::byte* payload = !egress_.allows_external_answers() || reads_now(qp.read_order, again)
                                 ? nullptr
                                 : mapped_address(*range.region, range.iova, p.payload_bytes);
  if (payload != nullptr) {
    rte_mbuf* packet = egress_.build_external(qp.response_flow, p,
                                              out_payload(qp, p.psn, 1, payload, range.region));
    if (packet == nullptr) counters_.add(Counter::tx_no_buffer);
    return packet;
  }
  // As in serve_copies().
  if (!again && qp.answers.any_out()) return nullptr;
  return build_copied_answer(egress_, placement_, counters_, qp.response_flow, p, range,
                             {&qp.responses, p.psn.value()}, lost);
}

// Sends whole packets in the middle of a READ. Returns how many have left; 0 where nothing of that
// kind comes next.
uint32_t ReadService::serve_read_train(QpContext& qp, ReadJob& job, const SendBudget& budget) {
  const uint64_t offset = uint64_t{job.request.offset_bytes} + job.sent_bytes;
  if (offset == 0 || !egress_.allows_external_answers()) return 0;
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint64_t before_last = (job.total_bytes - offset - 1) >> mtu_shift;
  const uint32_t in_range = (job.request.length_bytes - job.sent_bytes) >> mtu_shift;
  const auto count = static_cast<uint32_t>(
      std::min<uint64_t>({budget.packets, budget.share.packets_left(mtu_shift),
                          egress_.train_room(qp.peer), in_range, before_last}));
  if (count < 2) return 0;
  const uint32_t bytes = count << mtu_shift;
  const RemoteRange range =
      placement_.remote_range(qp.scope(), job.rkey, job.va + offset, bytes, kAccessRemoteRead);
  const std::byte* payload =
      range.region == nullptr ? nullptr : mapped_address(*range.region, range.iova, bytes);
  if (payload == nullptr) return 0;
  wire::Packet p = next_answer(qp, job);
  const MappedPayload out = out_payload(qp, p.psn, count, payload, range.region);
  if (!egress_.emit_train(qp.peer, qp.response_flow, p, out, count)) return 0;
  job.sent_bytes += bytes;
  return count;
}

// Returns false if there is no room or no buffer now.
bool ReadService::send_atomic_response(QpContext& qp, const wire::ReadEth& request,
                                       uint64_t result) {
  if (!egress_.paths().prepare_flows(qp) || !egress_.has_room_for_ack(qp.peer)) return false;
  wire::Packet p;
  p.opcode = wire::Opcode::kAtomicResponse;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = request.first_response_psn;
  p.reth = {0, request.read_number, 8};
  p.response_epoch = request.epoch;
  p.policy = settings_.policy;
  p.payload_bytes = 8;
  // The result keeps the byte order of the memory it came from: both ends are little-endian hosts,
  // and the requester places it in memory as it is.
  const auto* bytes = reinterpret_cast<const std::byte*>(&result);
  rte_mbuf* packet =
      egress_.build_small(qp.response_flow, p, {}, {bytes, 8}, egress_.pools().control);
  if (packet == nullptr) return false;
  egress_.emit(packet, qp.peer);
  note_read_answered(qp, request.read_number);
  return true;
}

// The next packets of a range, as many as a turn, its budget and `most` allow.
ReadService::Range ReadService::next_range(const QpContext& qp, const ReadJob& job,
                                           const SendBudget& budget, uint32_t most) {
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t rest = job.request.length_bytes - job.sent_bytes;
  const uint32_t count = std::min({(rest + qp.mtu_bytes - 1) >> mtu_shift,
                                   budget.packets * kBundlePacketsPerTurnPacket,
                                   budget.share.packets_left(mtu_shift), most});
  return {count, std::min(rest, count << mtu_shift)};
}

// Where the bytes of a READ from `offset` on lie; null if they are not mapped in one piece, or the
// key is no good.
const std::byte* ReadService::address_of(QpContext& qp, const ReadJob& job, uint64_t offset,
                                         uint32_t bytes, MemoryRegionEntry** region) {
  const RemoteRange range =
      placement_.remote_range(qp.scope(), job.rkey, job.va + offset, bytes, kAccessRemoteRead);
  if (region != nullptr) *region = range.region;
  return range.region == nullptr ? nullptr : mapped_address(*range.region, range.iova, bytes);
}

// Sends packets of a range in one buffer. Returns false if there is none.
bool ReadService::emit_range(QpContext& qp, ReadJob& job, const wire::Packet& first, Range range,
                             const MappedPayload& payload) {
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const auto last_bytes = static_cast<uint16_t>(range.bytes - ((range.packets - 1) << mtu_shift));
  const BundleEnd end{.payload_bytes = last_bytes,
                      .more = first.reth.va + range.bytes < job.total_bytes,
                      .ack_request = false,
                      .solicited = false};
  if (range.packets == 1) {
    rte_mbuf* const packet = egress_.build_external(qp.response_flow, first, payload);
    if (packet == nullptr) return false;
    egress_.emit(packet, qp.peer);
  } else if (!egress_.emit_bundle(qp.peer, qp.response_flow, first, range.packets - 1, end,
                                  payload)) {
    return false;
  }
  job.sent_bytes += range.bytes;
  return true;
}

// Sends packets of a READ's range as one bundle. Returns how much of the budget they took; 0 where
// a bundle can't be made.
uint32_t ReadService::serve_read_bundle(QpContext& qp, ReadJob& job, const SendBudget& budget) {
  if (!egress_.allows_external_answers()) return 0;
  const Range range = next_range(qp, job, budget, kMaxBundlePackets);
  if (range.packets < 2) return 0;
  const wire::Packet first = next_answer(qp, job);
  MemoryRegionEntry* region = nullptr;
  const std::byte* payload = address_of(qp, job, first.reth.va, range.bytes, &region);
  if (payload == nullptr || !emit_range(qp, job, first, range,
                                        out_payload(qp, first.psn, range.packets, payload, region)))
    return 0;
  return turn_packets(range.packets);
}

void ReadService::forget(QpContext& qp) {
  digests_.take(qp.read_order);
  lines_.forget(qp);
}

}  // namespace hostnic
