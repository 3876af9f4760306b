// READs and atomics at their target: answered by the NIC from the mapped memory, without the
// target's process (rules 16..19).
#include <algorithm>

#include "dataplane/nic/impl.h"

namespace hostnic {

// False: too many ranges wait already, and the requester pulls again; or it has done so in a newer
// epoch and would drop the answers. Ranges that wait when a newer epoch begins are dropped, too: on
// a slow port they would keep the new ones waiting until those are pulled once more, and so on.
bool Nic::Impl::queue_read(QpContext& qp, const wire::Packet& p) {
  if (read_count == kReadJobs || static_cast<int8_t>(p.read.epoch - qp.read_epoch) < 0)
    return false;
  qp.read_epoch = p.read.epoch;
  ReadJob& job = read_jobs[(read_head + read_count) % kReadJobs];
  job = {.qpn = qp.qpn,
         .request = p.read,
         .total_bytes = p.reth.length_bytes,
         .rkey = p.reth.key,
         .va = p.reth.va,
         .sent_bytes = 0,
         .is_atomic = false,
         .atomic_result = 0};
  ++read_count;
  ++qp.read_jobs;
  counters.add(Counter::read_requests_served);
  return true;
}

// Answers leave in the order of their PSNs: one that overtook a READ's would make the requester
// believe that the READ's are lost.
void Nic::Impl::answer_atomic(QpContext& qp, const wire::ReadEth& request, uint64_t result) {
  if (qp.read_jobs == 0) {
    send_atomic_response(qp, request, result);
    return;
  }
  if (read_count == kReadJobs) return;  // asked again
  ReadJob& job = read_jobs[(read_head + read_count) % kReadJobs];
  job = {.qpn = qp.qpn, .request = request, .is_atomic = true, .atomic_result = result};
  ++read_count;
  ++qp.read_jobs;
}

uint32_t Nic::Impl::serve_reads() {
  uint32_t built = 0;
  while (read_count != 0 && built < kTxBudget) {
    ReadJob& job = read_jobs[read_head];
    QpContext* qp = find_qp(job.qpn);
    bool finished = qp == nullptr || qp->state < QpState::kRtr ||
                    (qp->state == QpState::kErr && !qp->fatal) ||
                    static_cast<int8_t>(job.request.epoch - qp->read_epoch) < 0;
    while (!finished && built < kTxBudget) {
      if (!prepare_flows(*qp)) {
        finished = true;  // the peer's address is unknown: it pulls again
        break;
      }
      if (!has_room(qp->peer)) return built;
      if (!(job.is_atomic ? send_atomic_response(*qp, job.request, job.atomic_result)
                          : serve_read_packet(*qp, job))) {
        return built;
      }
      ++built;
      finished = job.is_atomic || job.sent_bytes >= job.request.length_bytes;
    }
    if (!finished) break;
    if (qp != nullptr) --qp->read_jobs;
    read_head = (read_head + 1) % kReadJobs;
    --read_count;
  }
  return built;
}

// One packet of a range. False: no buffer now. A key that went bad meanwhile ends the job silently;
// the next pull is refused.
bool Nic::Impl::serve_read_packet(QpContext& qp, ReadJob& job) {
  const uint32_t part = std::min<uint32_t>(qp.mtu_bytes, job.request.length_bytes - job.sent_bytes);
  const uint64_t offset = uint64_t{job.request.offset_bytes} + job.sent_bytes;
  const RemoteRange range = remote_range(qp, job.rkey, job.va + offset, part, kAccessRemoteRead);
  if (range.region == nullptr) {
    job.sent_bytes = job.request.length_bytes;
    return true;
  }
  wire::Packet p;
  p.opcode = wire::Opcode::kReadResponse;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = job.request.first_response_psn + job.sent_bytes / qp.mtu_bytes;
  p.reth = {offset, job.request.read_number, part};
  p.response_epoch = job.request.epoch;
  p.cont = offset != 0;
  p.more = offset + part < job.total_bytes;
  p.policy = settings.policy;
  p.payload_bytes = static_cast<uint16_t>(part);
  rte_mbuf* packet = rte_pktmbuf_alloc(pools.data);
  if (packet == nullptr) {
    counters.add(Counter::tx_no_buffer);
    return false;
  }
  // Copied here, not referenced: the answer is what memory held when the request was served (rule
  // 31).
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(qp.response_flow, p, seals, {}, {frame, wire::kMaxHeaderBytes});
  if (!fetch(*range.region, range.iova, frame + header_bytes, part)) {
    rte_pktmbuf_free(packet);
    job.sent_bytes = job.request.length_bytes;
    return true;
  }
  finish_linear(packet, p, header_bytes);
  job.sent_bytes += part;
  emit(packet, qp.peer, p);
  return true;
}

// False: no room or no buffer now.
bool Nic::Impl::send_atomic_response(QpContext& qp, const wire::ReadEth& request, uint64_t result) {
  if (!prepare_flows(qp) || !has_room_for_ack(qp.peer)) return false;
  wire::Packet p;
  p.opcode = wire::Opcode::kAtomicResponse;
  p.dest_qpn = Qpn{qp.dest_qpn};
  p.src_qpn = Qpn{qp.qpn};
  p.psn = request.first_response_psn;
  p.reth = {0, request.read_number, 8};
  p.response_epoch = request.epoch;
  p.policy = settings.policy;
  p.payload_bytes = 8;
  // In the byte order of the memory it came from: both ends are little-endian hosts, and it lands
  // in memory as it is.
  const auto* bytes = reinterpret_cast<const std::byte*>(&result);
  rte_mbuf* packet = build_small(qp.response_flow, p, {}, {bytes, 8}, pools.control);
  if (packet == nullptr) return false;
  emit(packet, qp.peer, p);
  return true;
}

}  // namespace hostnic
