// Bundles (bundle.h): made, taken at once where everything is in order, and taken apart elsewhere.
#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/nic/bundle.h"
#include "dataplane/nic/context_prefetch.h"
#include "dataplane/nic/impl.h"
#include "dataplane/nic/output.h"
#include "dataplane/nic/placement.h"
#include "dataplane/nic/receive.h"
#include "dataplane/nic/region_access.h"

namespace hostnic {
namespace {

// What packets of bundles are for a turn's budget: they cost little but their bytes' copy.
constexpr uint32_t kBundlePacketsPerTurnPacket = 4;
uint32_t turn_packets(uint32_t bundle_packets) {
  return (bundle_packets + kBundlePacketsPerTurnPacket - 1) / kBundlePacketsPerTurnPacket;
}

ExternalPayload& payload_in(rte_mbuf& packet) {
  return *static_cast<ExternalPayload*>(rte_mbuf_to_priv(&packet));
}

// The headers of a packet that is all packets of a bundle: the first's, but for what the last says.
wire::Packet whole_of(const wire::Packet& first, const ExternalPayload& payload) {
  wire::Packet whole = first;
  whole.more = payload.last_more;
  whole.ack_request = payload.last_ack_request;
  whole.solicited = payload.last_solicited;
  return whole;
}

std::span<const std::byte> bytes_of(const wire::Packet& first, const ExternalPayload& payload) {
  return {payload.bytes,
          size_t{first.payload_bytes} * payload.packets_behind + payload.last_payload_bytes};
}

}  // namespace

void make_bundle(rte_mbuf& packet, uint32_t packets_behind, const BundleEnd& end) {
  ExternalPayload& payload = payload_in(packet);
  payload.packets_behind = static_cast<uint16_t>(packets_behind);
  payload.last_payload_bytes = end.payload_bytes;
  payload.last_more = end.more;
  payload.last_ack_request = end.ack_request;
  payload.last_solicited = end.solicited;
  packet.ol_flags |= bundle_flag();
}

bool step_bundle(rte_mbuf* packet, PayloadReferences& stock) {
  if (!is_bundle(packet)) return false;
  if (has_bundled_packets(packet)) {
    step_bundled(packet, stock);
    return true;
  }
  ExternalPayload& payload = payload_in(*packet);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  wire::Packet p = valid_headers(packet);
  payload.bytes += p.payload_bytes;
  p.psn += 1;
  p.reth.va += p.payload_bytes;
  p.cont = true;
  if (--payload.packets_behind == 0) {
    packet->ol_flags &= ~bundle_flag();
    p = whole_of(p, payload);
    p.payload_bytes = payload.last_payload_bytes;
    if (p.opcode != wire::Opcode::kSend) p.reth.length_bytes = p.payload_bytes;
  }
  const auto flow =
      wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  packet->pkt_len = uint32_t{packet->data_len} + p.payload_bytes;
  return true;
}

// Whether packets towards `peer` may leave in bundles.
bool Nic::Impl::sends_bundles(int peer) const {
  return settings.segmentation && !adds_icrc && !tx_stage &&
         (peer == kLoopbackPeer || port.carries_bundles());
}

// Why not, for people; null: they do.
const char* Nic::Impl::why_no_bundles() const {
  if (!settings.segmentation) return "as configured";
  if (!port.carries_bundles()) return "the port sends packets";
  if (adds_icrc) return "ICRC";
  return tx_stage ? "impairments" : nullptr;
}

// `first` and so many packets behind it. False: no buffer.
bool Nic::Impl::emit_bundle(QpContext& qp, const wire::FlowTemplate& flow,
                            const wire::Packet& first, uint32_t packets_behind,
                            const BundleEnd& end, const MappedPayload& payload) {
  rte_mbuf* packet = build_external(flow, first, payload);
  if (packet == nullptr) return false;
  make_bundle(*packet, packets_behind, end);
  packet->port = static_cast<uint16_t>(qp.peer);
  counters.add(Counter::tx_bundles);
  enqueue(packet, qp.peer);
  return true;
}

// As much of a chunk as lies in one piece of mapped memory and `budget` packets of the turn allow.
// Returns how many of these it took, 0 where a bundle can't be made.
uint32_t Nic::Impl::send_bundle(QpContext& qp, SendProgress& progress, uint32_t budget) {
  const SendDescriptor& d = progress.descriptor;
  const Sge& sge = progress.sges[progress.sge_index];
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t rest = d.length_bytes - progress.sent_bytes;
  const uint32_t in_sge = sge.length_bytes - progress.sge_offset;
  uint32_t count = in_sge >> mtu_shift;
  // Immediate data and a key to invalidate need a header that only the last packet has.
  const bool ends_plainly =
      d.op == SendOp::kWrite || d.op == SendOp::kSend || (d.flags & kSendMore);
  if (in_sge >= rest)
    count = ends_plainly ? (rest + qp.mtu_bytes - 1) >> mtu_shift : (rest - 1) >> mtu_shift;
  count = std::min(count, budget * kBundlePacketsPerTurnPacket);
  if (count < 2) return 0;
  const uint32_t bytes = std::min(rest, count << mtu_shift);
  MemoryRegionEntry* region = local_region(qp, qp.pd, sge.lkey, sge.addr, sge.length_bytes, 0);
  const std::byte* payload =
      region == nullptr ? nullptr : mapped_address(*region, sge.addr + progress.sge_offset, bytes);
  if (payload == nullptr || !prepare_flows(qp)) return 0;
  const wire::Packet first = next_packet(qp, progress);
  const bool ends_chunk = bytes == rest, more = !ends_chunk || (d.flags & kSendMore) != 0;
  const BundleEnd end{.payload_bytes = static_cast<uint16_t>(bytes - ((count - 1) << mtu_shift)),
                      .more = more,
                      .ack_request = ends_chunk && (d.flags & kSendAckRequest) != 0,
                      .solicited = !more && (d.flags & kSendSolicited) != 0};
  if (!emit_bundle(qp, qp.request_flow, first, count - 1, end,
                   {payload, region, qp.packets.count()}))
    return 0;
  note_transmitted(qp, {first.psn + (count - 1), first.attempt, end.ack_request}, count,
                   (d.flags & kSendRetransmit) != 0);
  progress.sge_offset += bytes;
  progress.active = note_progress(progress, count, bytes);
  return turn_packets(count);
}

// The same of a READ's range.
uint32_t Nic::Impl::serve_read_bundle(QpContext& qp, ReadJob& job, uint32_t budget) {
  const int mtu_shift = std::countr_zero(qp.mtu_bytes);
  const uint32_t rest = job.request.length_bytes - job.sent_bytes;
  const uint32_t count =
      std::min((rest + qp.mtu_bytes - 1) >> mtu_shift, budget * kBundlePacketsPerTurnPacket);
  if (count < 2) return 0;
  const uint32_t bytes = std::min(rest, count << mtu_shift);
  const wire::Packet first = next_answer(qp, job);
  const RemoteRange range =
      remote_range(qp, job.rkey, job.va + first.reth.va, bytes, kAccessRemoteRead);
  const std::byte* payload =
      range.region == nullptr ? nullptr : mapped_address(*range.region, range.iova, bytes);
  if (payload == nullptr) return 0;
  const BundleEnd end{.payload_bytes = static_cast<uint16_t>(bytes - ((count - 1) << mtu_shift)),
                      .more = first.reth.va + bytes < job.total_bytes,
                      .ack_request = false,
                      .solicited = false};
  if (!emit_bundle(qp, qp.response_flow, first, count - 1, end,
                   {payload, range.region, qp.answers.count()}))
    return 0;
  job.sent_bytes += bytes;
  return turn_packets(count);
}

// Takes all packets of a bundle at once, where each would be the next one expected. False: nothing
// has happened.
bool Nic::Impl::receive_bundle(rte_mbuf* bundle) {
  end_train();
  if (received.parse(first_segment_of(bundle), bundle->pkt_len, false) != wire::ParseError::kNone)
    return false;
  const wire::Packet& first = received.packet();
  if (has_bundled_packets(bundle)) {
    if (first.opcode == wire::Opcode::kAck) return receive_acks(bundle);
    return first.opcode == wire::Opcode::kReadRequest
               ? receive_requests(bundle, bundled_in<BundledReads>(bundle))
               : receive_requests(bundle, bundled_requests(bundle));
  }
  QpContext* qp = first.dst_ip == settings.ip ? find_qp(raw(first.dest_qpn)) : nullptr;
  const bool answer = first.opcode == wire::Opcode::kReadResponse;
  if (qp == nullptr || !accepts_from(*qp, first.src_ip, first.src_port, answer)) return false;
  state_of(*qp->client).data_arrived = true;
  const ExternalPayload& payload = *external_payload(bundle);
  if (!(answer ? receive_response_bundle(*qp, first, payload)
               : receive_request_bundle(*qp, first, payload)))
    return false;
  counters.add(Counter::rx_bundles);
  return true;
}

bool Nic::Impl::receive_request_bundle(QpContext& qp, const wire::Packet& first,
                                       const ExternalPayload& payload) {
  wire::Packet whole = whole_of(first, payload);
  if (first.payload_bytes != qp.mtu_bytes) return false;
  return take_in_order(qp, whole, bytes_of(first, payload), 1u + payload.packets_behind);
}

// The same of one message of a bundle of them.
[[gnu::always_inline]] inline bool Nic::Impl::receive_bundled_request(
    wire::Packet& p, std::span<const std::byte> payload) {
  QpContext* const qp = find_qp(raw(p.dest_qpn));
  if (qp == nullptr || !accepts_from(*qp, p.src_ip, p.src_port, /*answer=*/false)) return false;
  state_of(*qp->client).data_arrived = true;
  return take_in_order(*qp, p, payload, 1);
}

// All requests of a bundle, the first of which is in `received`. What is not simply next is
// dispatched as a packet. False: it is not for us, and nothing has happened.
template <class Bundled>
bool Nic::Impl::receive_requests(rte_mbuf* bundle, Bundled& bundled) {
  if (received.packet().dst_ip != settings.ip) return false;
  wire::Packet p = received.packet();
  const auto ahead = [&](uint32_t i) {
    if (i < bundled.count) prefetch_qp(raw(bundled.all[i].dest_qpn), QpPart::kReceives);
  };
  for (uint32_t i = 0; i < kQpsAhead; ++i) ahead(i);
  if (!receive_bundled_request(p, payload_of(bundle, p))) dispatch_alone(p, bundle);
  while (bundled.waiting() != 0) {
    ahead(bundled.next + kQpsAhead);
    const auto& request = bundled.all[bundled.next];
    request.apply_to(p);
    if (!receive_bundled_request(p, request.contents())) {
      step_bundled(bundle, payload_references);
      dispatch_alone(p, bundle);
      continue;
    }
    bundled.pop();
    if constexpr (requires { request.payload(); }) payload_references.release(request.payload());
  }
  counters.add(Counter::rx_bundles);
  return true;
}

bool Nic::Impl::receive_response_bundle(QpContext& qp, const wire::Packet& first,
                                        const ExternalPayload& payload) {
  ReceiveWindow& window = qp.responses.window;
  if (first.payload_bytes != qp.mtu_bytes || first.response_epoch != qp.epoch ||
      window.has_hole() || window.classify(first.psn) != ReceiveWindow::Place::kExpected)
    return false;
  ResponseMiss miss = ResponseMiss::kNone;
  const LocalError error = place_response(qp, whole_of(first, payload), 1u + payload.packets_behind,
                                          bytes_of(first, payload), /*ahead=*/false, miss);
  if (miss != ResponseMiss::kNone || error != LocalError::kNone) return false;
  window.accept_in_order(1u + payload.packets_behind);
  report_responses(qp);
  return true;
}

// For impairments on arrival: each packet of a bundle as a buffer of its own. One that finds none
// is lost, as on a network.
void Nic::Impl::receive_apart(rte_mbuf* bundle) {
  bool more = true;
  while (more && is_bundle(bundle)) {
    if (rte_mbuf* single = rte_pktmbuf_alloc(pools.header); single != nullptr) {
      std::memcpy(rte_pktmbuf_mtod(single, std::byte*), rte_pktmbuf_mtod(bundle, std::byte*),
                  bundle->data_len);
      single->data_len = bundle->data_len;
      single->pkt_len = bundle->data_len;
      if (const ExternalPayload* payload = external_payload(bundle); payload != nullptr) {
        payload_references.acquire_again(*payload);
        attach_payload(*single, bundle->data_len, bundle->pkt_len - bundle->data_len,
                       {payload->bytes, payload->region, payload->packets});
      }
      single->port = bundle->port;
      receive_impaired(single);
    } else {
      counters.add(Counter::rx_no_buffer);
    }
    more = step_bundle(bundle, payload_references);
  }
  receive_impaired(bundle);
}

}  // namespace hostnic
