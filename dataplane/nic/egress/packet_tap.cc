// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/packet_tap.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"

namespace hostnic {

static_assert(kCounterCount <= kMaxCaptureCounters);

namespace {

using impair::Direction;

// Counters that say nothing about the packet that is dispatched, but about what else the NIC does
// meanwhile, or about every packet.
constexpr bool tells_of_packet(Counter counter) {
  if (counts_repeats(counter)) return false;
  switch (counter) {
    case Counter::tx_packets:
    case Counter::tx_bytes:
    case Counter::rx_packets:
    case Counter::rx_bytes:
    case Counter::retransmitted_packets:
    case Counter::tx_bundles:
    case Counter::rx_bundles:
    case Counter::bundle_parts:
    case Counter::rx_no_buffer:
    case Counter::tx_no_buffer:
    case Counter::tx_unresolved:
    case Counter::descriptors:
    case Counter::descriptors_discarded:
    case Counter::meta_reports:
    case Counter::driver_wakeups:
      return false;
    default:
      return true;
  }
}

// What was done to a packet on its way through impairments, in mbuf::hash.usr of packets that have
// impaired_flag(): whose impairments they were, since packets of one NIC may arrive at another.
struct ImpairedMark {
  uint8_t nic_and_direction;
  uint8_t what;  // CaptureImpairment
  uint8_t rule;
  uint8_t reserved;
};
static_assert(sizeof(ImpairedMark) == sizeof(uint32_t));

ImpairedMark mark_of(rte_mbuf* packet) {
  ImpairedMark mark;
  std::memcpy(&mark, &packet->hash.usr, sizeof(mark));
  return mark;
}

uint8_t owner_of(uint32_t nic_index, bool transmit) {
  return static_cast<uint8_t>(nic_index << 1 | (transmit ? 1 : 0));
}

uint8_t impairment_of(const impair::Loss& loss) {
  const uint8_t copy = loss.is_copy ? kImpairedCopy : 0;
  switch (loss.reason) {
    case impair::Loss::Reason::kRate:
      return copy | kImpairedRateDropped;
    case impair::Loss::Reason::kQueue:
      return copy | kImpairedQueueDropped;
    case impair::Loss::Reason::kRule:
      break;
  }
  return copy | kImpairedDropped;
}

}  // namespace

void PacketTap::begin(const Counters& counters) {
  for (size_t i = 0; i < kCounterCount; ++i)
    header_.at_start[i] = counters.get(static_cast<Counter>(i));
}

void PacketTap::end(const Counters& counters) {
  for (size_t i = 0; i < kCounterCount; ++i)
    header_.at_end[i] = counters.get(static_cast<Counter>(i));
  header_.ended.store(1, std::memory_order_release);
}

PacketTap::Pieces PacketTap::front_of(rte_mbuf* packet) {
  Pieces pieces{first_segment_of(packet), {}};
  // In a bundle of packets of many messages without payload pkt_len is data_len.
  if (const ExternalPayload* payload = external_payload(packet); payload != nullptr)
    pieces.payload = {payload->bytes, packet->pkt_len - packet->data_len};
  return pieces;
}

// Prepares a record of one packet. Returns null if there was no room.
CaptureRecord* PacketTap::record(CaptureDirection direction, rte_mbuf* packet,
                                 const Pieces& pieces) {
  const auto packet_bytes = static_cast<uint32_t>(pieces.headers.size() + pieces.payload.size());
  const uint32_t captured = std::min(packet_bytes, settings_.snap_bytes);
  CaptureRecord* const record = writer_.prepare(captured);
  if (record == nullptr) return nullptr;
  record->time_ns = now();
  record->packet_bytes = packet_bytes;
  record->direction = direction;
  const bool sent = direction == CaptureDirection::kSent;
  if ((packet->ol_flags & (icrc_flag() | trimmed_flag())) != 0) record->flags |= kCaptureAsItIs;
  if (sent && (packet->ol_flags & resent_flag()) != 0) record->flags |= kCaptureRetransmit;
  if (sent) record->flags |= kCaptureAtTransmit;
  if ((packet->ol_flags & impaired_flag()) != 0) {
    const ImpairedMark mark = mark_of(packet);
    if (mark.nic_and_direction == owner_of(settings_.nic_index, sent)) {
      record->impaired = mark.what;
      record->rule = mark.rule;
    }
  }
  std::byte* const out = bytes_behind(*record);
  const size_t of_headers = std::min<size_t>(captured, pieces.headers.size());
  std::memcpy(out, pieces.headers.data(), of_headers);
  if (captured > of_headers)
    copy_from_memory(out + of_headers, pieces.payload.data(), captured - of_headers);
  return record;
}

// ---- what arrives

void PacketTap::begin_received(rte_mbuf* packet, const Counters& counters) {
  received_ = record(CaptureDirection::kReceived, packet, front_of(packet));
  dispatching_ = true;
  for (size_t i = 0; i < kCounterCount; ++i) before_[i] = counters.get(static_cast<Counter>(i));
}

void PacketTap::end_received(const Counters& counters, const Outcome& outcome) {
  dispatching_ = false;
  if (received_ != nullptr) {
    uint8_t changes = 0;
    for (size_t i = 0; i < kCounterCount && changes < kMaxCaptureChanges; ++i) {
      const uint64_t by = counters.get(static_cast<Counter>(i)) - before_[i];
      if (by == 0 || !tells_of_packet(static_cast<Counter>(i))) continue;
      received_->changes[changes++] = {static_cast<uint16_t>(i), 0,
                                       static_cast<uint32_t>(std::min<uint64_t>(by, UINT32_MAX))};
    }
    received_->change_count = changes;
    received_->qp_state = outcome.qp_state;
    received_->expected_psn = outcome.expected_psn;
    if (outcome.has_expected) received_->flags |= kCaptureHasExpected;
    received_ = nullptr;
  }
  publish();
}

// ---- what leaves

void PacketTap::begin_sent(rte_mbuf** packets, uint16_t count) {
  assert(count <= sent_marks_.size());
  sent_count_ = count;
  for (uint16_t i = 0; i < count; ++i) {
    sent_marks_[i] = writer_.mark();
    if (!is_lost(packets[i])) record_all_of(packets[i]);
  }
}

void PacketTap::end_sent(uint16_t sent) {
  if (sent < sent_count_) writer_.rewind(sent_marks_[sent]);
  publish();
}

void PacketTap::record_all_of(rte_mbuf* packet) {
  record(CaptureDirection::kSent, packet, front_of(packet));
  if (!is_bundle(packet)) return;
  if (has_bundled_packets(packet))
    record_bundled(packet);
  else
    record_message_bundle(packet);
}

// Records the packets behind the first of a bundle of one message, as cut_bundle() would make them.
void PacketTap::record_message_bundle(rte_mbuf* bundle) {
  const ExternalPayload& payload = *external_payload(bundle);
  const wire::Packet first = valid_headers(bundle);
  const auto flow = wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(
      first_segment_of(bundle).first(wire::kFlowBytes)));
  for (uint32_t i = 1; i <= payload.packets_behind; ++i) {
    wire::Packet p = i == payload.packets_behind ? whole_of(first, payload) : first;
    const uint64_t offset = uint64_t{i} * first.payload_bytes;
    p.psn += i;
    p.reth.va += offset;
    p.cont = true;
    if (i == payload.packets_behind) {
      p.payload_bytes = payload.last_payload_bytes;
      if (p.opcode != wire::Opcode::kSend) p.reth.length_bytes = p.payload_bytes;
    }
    record_built(bundle, flow, p, {payload.bytes + offset, p.payload_bytes});
  }
}

void PacketTap::record_bundled(rte_mbuf* bundle) {
  wire::Packet p = valid_headers(bundle);
  auto flow = wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(
      first_segment_of(bundle).first(wire::kFlowBytes)));
  with_bundled(bundle, p.opcode, [&](const auto& bundled) {
    for (uint32_t i = bundled.next; i < bundled.count; ++i) {
      const auto& entry = bundled.all[i];
      entry.apply_to(p);
      wire::store_be16(flow.bytes.data() + wire::train_detail::kSrcPort, p.src_port);
      if constexpr (requires { entry.contents(); })
        record_built(bundle, flow, p, entry.contents());
      else
        record_built(bundle, flow, p, {});
    }
  });
}

void PacketTap::record_built(rte_mbuf* bundle, const wire::FlowTemplate& flow,
                             const wire::Packet& p, std::span<const std::byte> payload) {
  std::array<std::byte, wire::kMaxHeaderBytes> headers;
  const size_t header_bytes = wire::build(flow, p, false, {}, headers);
  record(CaptureDirection::kSent, bundle, {std::span(headers).first(header_bytes), payload});
}

// ---- impairments

void PacketTap::begin_impaired(Direction direction, rte_mbuf* packet) {
  impaired_mark_ = writer_.mark();
  impaired_direction_ =
      direction == Direction::kTx ? CaptureDirection::kSent : CaptureDirection::kReceived;
  impaired_ = record(impaired_direction_, packet, front_of(packet));
}

void PacketTap::end_impaired(std::span<const impair::Loss> losses) {
  if (losses.empty()) return writer_.rewind(impaired_mark_);
  CaptureRecord* record = impaired_;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (i != 0) {
      // A copy was lost as well: its record has the same packet.
      const CaptureRecord* const first = impaired_;
      if (first == nullptr) {
        writer_.miss();
        continue;
      }
      record = writer_.prepare(first->captured_bytes);
      if (record == nullptr) continue;
      record->time_ns = first->time_ns;
      record->packet_bytes = first->packet_bytes;
      record->direction = first->direction;
      record->flags = first->flags;
      std::memcpy(bytes_behind(*record), first + 1, first->captured_bytes);
    }
    if (record == nullptr) continue;
    record->impaired = impairment_of(losses[i]);
    record->rule = losses[i].rule;
  }
  publish();
}

void PacketTap::mark_impaired(Direction direction, rte_mbuf* packet, CaptureImpairment what,
                              uint8_t rule) const {
  ImpairedMark mark{owner_of(settings_.nic_index, direction == Direction::kTx), what, rule, 0};
  if ((packet->ol_flags & impaired_flag()) != 0) {
    const ImpairedMark before = mark_of(packet);
    if (before.nic_and_direction == mark.nic_and_direction) mark.what |= before.what;
  }
  std::memcpy(&packet->hash.usr, &mark, sizeof(mark));
  packet->ol_flags |= impaired_flag();
}

}  // namespace hostnic
