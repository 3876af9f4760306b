// Packet buffers: pools (rule 33), copies (rule 31), and the in-process wire's way of telling
// whether a packet ends in an ICRC.
#include <rte_errno.h>
#include <rte_mbuf_dyn.h>
#include <rte_string_fns.h>

#include <algorithm>
#include <cstring>

#include "dataplane/nic/copy.h"
#include "dataplane/nic/impl.h"

namespace hostnic {

namespace {

// 0: none left. The same again for a name that is registered.
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
                .icrc = register_mbuf_flag("hostnic_icrc")};
  return mbuf_flags.external != 0 && mbuf_flags.bundle != 0 && mbuf_flags.icrc != 0;
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
  if (const ExternalPayload* external = external_payload(packet); external != nullptr)
    copy_from_memory(out + packet->data_len, external->bytes, packet->pkt_len - packet->data_len);
  copy->data_len = static_cast<uint16_t>(packet->pkt_len);
  copy->pkt_len = packet->pkt_len;
  copy->port = packet->port;
  copy->ol_flags |= packet->ol_flags & icrc_flag();
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
  wire::build(flow, p, true, words, {frame, wire::kMaxHeaderBytes});
  finish_icrc(frame, p);
  const uint32_t bytes = p.header_bytes + p.payload_bytes + wire::pad_bytes(p.payload_bytes) +
                         static_cast<uint32_t>(wire::kIcrcBytes);
  packet->data_len = static_cast<uint16_t>(bytes);
  packet->pkt_len = bytes;
  packet->ol_flags |= icrc_flag();
}

namespace {

// Data rooms end with space for pad and ICRC.
constexpr uint16_t kSmallRoom = RTE_PKTMBUF_HEADROOM + 640;
static_assert(RTE_PKTMBUF_HEADROOM + kAckBundleBytes <= kSmallRoom);
constexpr uint16_t kHeaderRoom = RTE_PKTMBUF_HEADROOM + kRequestBundleBytes;
static_assert(kHeaderRoom >= kSmallRoom && kRequestBundleBytes >= kReadBundleBytes);
constexpr unsigned kMaxCache = 256;

rte_mempool* make_pool(const std::string& name, double count, uint16_t private_bytes, uint32_t room,
                       int socket) {
  const auto buffers = static_cast<unsigned>(count);
  return rte_pktmbuf_pool_create(name.c_str(), buffers, std::min(kMaxCache, buffers / 2),
                                 private_bytes, static_cast<uint16_t>(room), socket);
}

}  // namespace

MbufPools create_mbuf_pools(const std::string& name_prefix, uint32_t mtu_bytes, double scale,
                            int socket) {
  const uint32_t packet_room =
      RTE_PKTMBUF_HEADROOM + mtu_bytes + static_cast<uint32_t>(wire::kMaxHeaderBytes) + 64;
  MbufPools pools;
  if (!register_mbuf_flags()) return pools;
  pools.header =
      make_pool(name_prefix + "_header", 16383 * scale, kExternalPayloadBytes, kHeaderRoom, socket);
  pools.data = make_pool(name_prefix + "_data", 8191 * scale, 0, packet_room, socket);
  pools.control = make_pool(name_prefix + "_control", 8191 * scale, 0, kSmallRoom, socket);
  pools.resend = make_pool(name_prefix + "_resend", 1023 * scale, 0, packet_room, socket);
  pools.copies = make_pool(name_prefix + "_copies", 8191 * scale, 0, packet_room, socket);
  if (pools.header == nullptr || pools.data == nullptr || pools.control == nullptr ||
      pools.resend == nullptr || pools.copies == nullptr) {
    const int error = rte_errno;
    free_mbuf_pools(pools);
    rte_errno = error;
  }
  return pools;
}

void free_mbuf_pools(MbufPools& pools) {
  for (rte_mempool* pool : {pools.header, pools.data, pools.control, pools.resend, pools.copies})
    rte_mempool_free(pool);
  pools = {};
}

}  // namespace hostnic
