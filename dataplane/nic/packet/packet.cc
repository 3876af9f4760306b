// SPDX-License-Identifier: BSD-3-Clause
// Packet buffers: pools (rule 33), copies (rule 31), and the in-process wire's way of telling
// whether a packet ends in an ICRC.
#include "dataplane/nic/packet/packet.h"

#include <rte_errno.h>
#include <rte_mbuf_dyn.h>
#include <rte_net_crc.h>
#include <rte_string_fns.h>

#include <algorithm>
#include <cstring>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/packet/digest_table.h"
#include "protocol/wire/icrc.h"
#include "protocol/wire/mrc/packet.h"

namespace hostnic {

namespace {

uint32_t crc32(const std::byte* data, size_t bytes) {
  return rte_net_crc_calc(data, static_cast<uint32_t>(bytes), RTE_NET_CRC32_ETH);
}

// The PSN of a packet of this process.
Psn psn_of(rte_mbuf* packet) {
  const auto* bth = rte_pktmbuf_mtod_offset(packet, const std::byte*, wire::kFlowBytes);
  return wire::BthView(std::span<const std::byte, wire::kBthBytes>(bth, wire::kBthBytes)).psn();
}

size_t covered_bytes(const wire::Packet& p) { return wire::icrc_covered_bytes(p); }

// Registers a flag; a name that is registered already gets the same flag again. Returns 0 if none
// is left.
uint64_t register_mbuf_flag(const char* name) {
  rte_mbuf_dynflag description{};
  rte_strscpy(description.name, name, sizeof(description.name));
  const int bit = rte_mbuf_dynflag_register(&description);
  return bit < 0 ? uint64_t{0} : uint64_t{1} << bit;
}

}  // namespace

bool register_mbuf_flags() {
  if (mbuf_flags.icrc != 0) return true;
  mbuf_flags = {.external = register_mbuf_flag("hostnic_external"),
                .bundle = register_mbuf_flag("hostnic_bundle"),
                .icrc = register_mbuf_flag("hostnic_icrc"),
                .lost = register_mbuf_flag("hostnic_lost"),
                .resent = register_mbuf_flag("hostnic_resent"),
                .impaired = register_mbuf_flag("hostnic_impaired"),
                .trimmed = register_mbuf_flag("hostnic_trimmed")};
  mbuf_flags.set_aside = mbuf_flags.lost | mbuf_flags.trimmed;
  return mbuf_flags.external != 0 && mbuf_flags.bundle != 0 && mbuf_flags.icrc != 0 &&
         mbuf_flags.lost != 0 && mbuf_flags.resent != 0 && mbuf_flags.impaired != 0 &&
         mbuf_flags.trimmed != 0;
}

wire::ParseError parse_packet(rte_mbuf* packet, wire::Packet& headers) {
  return wire::parse(first_segment_of(packet), packet->pkt_len,
                     (packet->ol_flags & icrc_flag()) != 0, headers);
}

wire::Packet valid_headers(rte_mbuf* packet) {
  wire::Packet headers;
  parse_packet(packet, headers);
  return headers;
}

bool trimmed_headers(rte_mbuf* packet, wire::Packet& headers) {
  return wire::parse_bth(first_segment_of(packet), packet->pkt_len, false, headers) ==
         wire::ParseError::kNone;
}

wire::Packet held_headers(rte_mbuf* packet, wire::Dialect dialect) {
  wire::Packet p;
  const bool has_icrc = (packet->ol_flags & icrc_flag()) != 0;
  wire::parse_bth(first_segment_of(packet), packet->pkt_len, has_icrc, p);
  wire::parse_extensions(dialect, first_segment_of(packet), has_icrc, p);
  return p;
}

rte_mbuf* copy_packet(rte_mbuf* packet, rte_mempool* pool) {
  rte_mbuf* copy = rte_pktmbuf_alloc(pool);
  if (copy == nullptr || copy_packet_into(packet, copy)) return copy;
  rte_pktmbuf_free(copy);
  return nullptr;
}

bool copy_packet_into(rte_mbuf* packet, rte_mbuf* copy) {
  if (packet->pkt_len > rte_pktmbuf_tailroom(copy)) return false;
  auto* out = rte_pktmbuf_mtod(copy, std::byte*);
  std::memcpy(out, rte_pktmbuf_mtod(packet, const std::byte*), packet->data_len);
  if (const ExternalPayload* external = external_payload(packet); external != nullptr) {
    const uint32_t payload_bytes = packet->pkt_len - packet->data_len;
    copy_from_memory(out + packet->data_len, external->bytes, payload_bytes);
    if (copy_is_void(external->bytes, payload_bytes)) return false;
    if (external->digests != nullptr)
      external->digests->note_copied(psn_of(packet), {out + packet->data_len, payload_bytes});
  }
  copy->data_len = static_cast<uint16_t>(packet->pkt_len);
  copy->pkt_len = packet->pkt_len;
  copy->port = packet->port;
  copy->hash.usr = packet->hash.usr;
  copy->ol_flags |= packet->ol_flags & (icrc_flag() | resent_flag() | impaired_flag());
  return true;
}

void add_icrc_in_place(rte_mbuf* packet) {
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  wire::Packet p;
  if (wire::parse({frame, packet->data_len}, packet->pkt_len, false, p) != wire::ParseError::kNone)
    return;
  const auto flow =
      wire::flow_of(std::span<const std::byte, wire::kFlowBytes>(frame, wire::kFlowBytes));
  std::array<uint64_t, wire::kMaxSackWords> words;
  for (size_t i = 0; p.opcode == wire::Opcode::kAck && i < p.sack.word_count; ++i)
    words[i] = wire::sack_word(p, i);
  wire::mrc::Packet mrc;
  if (wire::dialect_of(p.opcode) == wire::Dialect::kMrc) {
    mrc = wire::mrc::headers_at(p.unread_headers);
    mrc.payload_bytes = p.payload_bytes;
    p.mrc = &mrc;
  }
  wire::build(flow, p, true, words, {frame, wire::kMaxHeaderBytes});
  finish_icrc(frame, p);
  const uint32_t bytes = p.header_bytes + p.payload_bytes + wire::pad_bytes(p.payload_bytes) +
                         static_cast<uint32_t>(wire::kIcrcBytes);
  packet->data_len = static_cast<uint16_t>(bytes);
  packet->pkt_len = bytes;
  packet->ol_flags |= icrc_flag();
}

bool icrc_valid(rte_mbuf* packet, const wire::Packet& headers) {
  auto* ip = rte_pktmbuf_mtod_offset(packet, std::byte*, wire::kEthernetBytes);
  const size_t covered = covered_bytes(headers);
  if (wire::kEthernetBytes + covered + wire::kIcrcBytes > packet->data_len) return false;
  return icrc_of(ip, covered) == wire::load_icrc(ip + covered);
}

uint32_t icrc_of(std::byte* ip, size_t covered_bytes) {
  return wire::icrc_in_place(ip, covered_bytes, crc32);
}

uint32_t icrc_of_ipv6(std::byte* ip, size_t covered_bytes) {
  return wire::icrc_ipv6_in_place(ip, covered_bytes, crc32);
}

void finish_icrc(std::byte* frame, const wire::Packet& headers) {
  std::byte* ip = frame + wire::kEthernetBytes;
  const size_t covered = covered_bytes(headers);
  const uint32_t pad = wire::pad_bytes(headers.payload_bytes);
  std::memset(ip + covered - pad, 0, pad);
  wire::store_icrc(ip + covered, icrc_of(ip, covered));
}

rte_mbuf* copy_front(rte_mbuf* bundle, rte_mempool* pool, PayloadReferences& references) {
  rte_mbuf* single = rte_pktmbuf_alloc(pool);
  if (single == nullptr) return nullptr;
  std::memcpy(rte_pktmbuf_mtod(single, std::byte*), rte_pktmbuf_mtod(bundle, std::byte*),
              bundle->data_len);
  single->data_len = bundle->data_len;
  single->pkt_len = bundle->data_len;
  if (const ExternalPayload* payload = external_payload(bundle); payload != nullptr) {
    references.acquire_again(*payload);
    attach_payload(*single, bundle->data_len, bundle->pkt_len - bundle->data_len,
                   {payload->bytes, payload->region, payload->packets, payload->digests});
  }
  single->port = bundle->port;
  single->ol_flags |= bundle->ol_flags & (lost_flag() | resent_flag());
  return single;
}

}  // namespace hostnic
