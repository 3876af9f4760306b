// SPDX-License-Identifier: BSD-3-Clause
// MRC's packets in a simulation: those that pass, and those that no NIC has sent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "dataplane/nic/packet/packet.h"
#include "protocol/wire/mrc/packet.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {

inline WorldSettings mrc_world() {
  WorldSettings settings;
  settings.transport = Transport::kMrc;
  return settings;
}
inline bool is_mrc_write(wire::Opcode opcode) {
  return opcode >= wire::Opcode::kMrcWriteFirst && opcode <= wire::Opcode::kMrcWriteOnlyImm;
}

// What a packet on the wire is.
struct SeenMrc {
  wire::Packet p;
  wire::mrc::Packet headers;
};
inline void watch_mrc(Pair& pair, std::function<void(const SeenMrc&)> look) {
  pair.world.wire().set_tap([look = std::move(look)](uint32_t, uint32_t, rte_mbuf* packet) {
    SeenMrc seen;
    if (parse_packet(packet, seen.p) != wire::ParseError::kNone) return;
    if (wire::dialect_of(seen.p.opcode) != wire::Dialect::kMrc) return;
    seen.headers = wire::mrc::headers_at(seen.p.unread_headers);
    look(seen);
  });
}

struct MrcForgery {
  uint32_t source_host = 0;     // in whose name it comes
  bool to_near = false;         // else to the far end
  std::optional<uint32_t> qpn;  // else that of the end
  bool is_trimmed = false;
  uint16_t cut_bytes = 0;               // from the end, which the headers in front of BTH say
  uint16_t port = 0xc123;               // the UDP source port
  uint64_t run_ns = 20 * kMicrosecond;  // for so long afterwards
};

// A packet to one end that is not from the other's NIC, though it may say so.
inline void forge_mrc(Pair& pair, wire::mrc::Packet headers, const MrcForgery& forgery = {}) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pair.world.pools().data);
  ASSERT_NE(packet, nullptr);
  const uint32_t host = forgery.to_near ? 0 : 1;
  headers.dest_qpn = Qpn{forgery.qpn.value_or((forgery.to_near ? pair.near : pair.far)->qpn())};
  auto flow =
      wire::make_flow_template({}, {}, pair.world.host(forgery.source_host).nic().settings().ip,
                               pair.world.host(host).nic().settings().ip, forgery.port, 0);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  size_t bytes = wire::kFlowBytes + wire::mrc::header_bytes(headers) + headers.payload_bytes;
  std::memset(frame, 0xbd, bytes);
  wire::write_flow(flow, bytes - wire::kEthernetBytes, frame);
  wire::mrc::build(headers, false, {frame + wire::kFlowBytes, wire::mrc::kMaxHeaderBytes});
  if (forgery.cut_bytes != 0) {
    bytes -= forgery.cut_bytes;
    wire::set_ip_bytes({frame, bytes}, static_cast<uint16_t>(bytes - wire::kEthernetBytes));
  }
  packet->data_len = static_cast<uint16_t>(bytes);
  packet->pkt_len = packet->data_len;
  if (forgery.is_trimmed) packet->ol_flags |= trimmed_flag();
  pair.world.wire().inject(host, packet);
  pair.world.run_until([] { return false; }, forgery.run_ns, /*idle_is_a_bug=*/false);
}

inline wire::mrc::Packet forged_mrc_write(const Pair& pair, uint32_t psn, uint32_t key) {
  wire::mrc::Packet write;
  write.opcode = wire::mrc::Opcode::kWriteOnly;
  write.psn = Psn(psn);
  write.reth = {pair.remote.address(0), key, 64};
  write.payload_bytes = 64;
  return write;
}

}  // namespace hostnic::sim
