// SPDX-License-Identifier: BSD-3-Clause
// A packet in its buffer: headers, payload, ICRC, copies.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <span>

#include "dataplane/nic/packet/external_payload.h"
#include "protocol/wire/packet.h"

namespace hostnic {

inline std::span<const std::byte> first_segment_of(rte_mbuf* packet) {
  return {rte_pktmbuf_mtod(packet, const std::byte*), packet->data_len};
}
// Parses the headers of a received packet.
wire::ParseError parse_packet(rte_mbuf* packet, wire::Packet& headers);
// Parses the headers of a packet that waits in a slot: they were valid, or it would not be there.
wire::Packet valid_headers(rte_mbuf* packet);
// The headers of a packet that is held, in the dialect of its queue pair: they were valid when it
// arrived.
wire::Packet held_headers(rte_mbuf* packet, wire::Dialect dialect);
// The headers that are left of a packet whose payload a switch has cut off (trimmed_flag()):
// addresses, source port, traffic class, opcode, destination QP and PSN; nothing else is there.
// Returns false if they are not what a packet of ours has.
bool trimmed_headers(rte_mbuf* packet, wire::Packet& headers);
// The payload of a received packet: contiguous, behind the headers or external.
inline std::span<const std::byte> payload_of(rte_mbuf* packet, const wire::Packet& headers) {
  const ExternalPayload* external = external_payload(packet);
  return {external != nullptr
              ? external->bytes
              : rte_pktmbuf_mtod_offset(packet, const std::byte*, headers.header_bytes),
          headers.payload_bytes};
}
// Copies a packet into one segment from the pool of copies, still without or with ICRC as the
// original. Returns null if there is no buffer.
rte_mbuf* copy_packet(rte_mbuf* packet, rte_mempool* pool);
// Copies a packet into an empty buffer. Returns false if it does not fit.
bool copy_packet_into(rte_mbuf* packet, rte_mbuf* copy);
// Gives a packet of one segment without ICRC its pad and ICRC.
void add_icrc_in_place(rte_mbuf* packet);
// Whether the ICRC that the packet ends in is there and right.
bool icrc_valid(rte_mbuf* packet, const wire::Packet& headers);
// The ICRC of `covered_bytes` from the IPv4 header on, by the fastest code of this processor; they
// and the 8 bytes before them are changed meanwhile (wire::icrc_in_place()).
uint32_t icrc_of(std::byte* ip, size_t covered_bytes);
// As icrc_of(), of a packet with an IPv6 header.
uint32_t icrc_of_ipv6(std::byte* ip, size_t covered_bytes);
// Appends pad and ICRC behind the payload of a frame whose headers were built for them.
void finish_icrc(std::byte* frame, const wire::Packet& headers);
// Copies the first packet of a bundle into a buffer of its own, with its own reference to external
// payload. Returns null if there is no buffer.
rte_mbuf* copy_front(rte_mbuf* bundle, rte_mempool* pool, PayloadReferences& references);

}  // namespace hostnic
