// SPDX-License-Identifier: BSD-3-Clause
// Everything that left any port, as headers: what directed tests look at when memory and
// completions don't tell.
#pragma once

#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "dataplane/simulation/world.h"

namespace hostnic::sim {

struct SentPacket {
  TimeNs at_ns;
  uint32_t from, to;
  wire::Packet headers;  // without its bitmap
  std::vector<uint64_t> sack;
};

class Recorder {
 public:
  explicit Recorder(World& world) : world_(world) {
    world.wire().set_tap([this](uint32_t from, uint32_t to, rte_mbuf* packet) {
      SentPacket sent{world_.now(), from, to, {}, {}};
      const std::span<const std::byte> first(rte_pktmbuf_mtod(packet, const std::byte*),
                                             packet->data_len);
      const bool has_icrc =
          !world_.settings().link.is_wire || (packet->ol_flags & icrc_flag()) != 0;
      if (wire::parse(first, packet->pkt_len, has_icrc, sent.headers) != wire::ParseError::kNone)
        return;
      if (sent.headers.opcode == wire::Opcode::kAck) {
        for (uint32_t i = 0; i < sent.headers.sack.word_count; ++i)
          sent.sack.push_back(wire::sack_word(sent.headers, i));
      }
      sent.headers.unread_headers = nullptr;
      packets.push_back(std::move(sent));
    });
  }
  ~Recorder() { world_.wire().set_tap(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  template <class Wanted>
  std::vector<SentPacket> from(uint32_t host, Wanted&& wanted) const {
    std::vector<SentPacket> some;
    for (const SentPacket& sent : packets)
      if (sent.from == host && wanted(sent.headers)) some.push_back(sent);
    return some;
  }
  std::vector<SentPacket> acks_of(uint32_t host) const {
    return from(host, [](const wire::Packet& p) { return p.opcode == wire::Opcode::kAck; });
  }
  std::vector<SentPacket> of(uint32_t host, wire::Opcode opcode) const {
    return from(host, [opcode](const wire::Packet& p) { return p.opcode == opcode; });
  }

  std::vector<SentPacket> packets;

 private:
  World& world_;
};

}  // namespace hostnic::sim
