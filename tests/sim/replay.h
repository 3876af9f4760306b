// SPDX-License-Identifier: BSD-3-Clause
// The recordings of a genuine RoCEv2 peer (tests/data/rxe/) once more, with a NIC of ours in place
// of one end: the other end's frames come from the recording, in their order and when ours has said
// what they answer. Only what names the ends is rewritten: addresses, queue pair, keys, virtual
// addresses. What completes, and what is in memory afterwards, is what was recorded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/nic/packet/packet.h"
#include "protocol/wire/icrc.h"
#include "tests/sim/pair.h"
#include "tests/support/rxe_recording.h"

namespace hostnic::sim::replaying {

using driver::Completion;
using recording::kBufferBytes;
using recording::Recording;
using wire::Opcode;
using wire::Packet;
using Bytes = std::vector<uint8_t>;

inline constexpr size_t kIp = wire::kEthernetBytes, kBth = wire::kFlowBytes;
inline constexpr size_t kExtensions = kBth + wire::kBthBytes;
inline constexpr uint32_t kPsnMask = 0xffffff;
inline constexpr uint32_t kOperandOffset = 0x8000;  // in B's buffer, of atomics: kOperand at first
inline constexpr uint64_t kOperand = 41;
inline constexpr uint8_t kFill = 0xee;  // of B's buffer
inline constexpr uint32_t kReceiveBytes = 64 * 1024;
// Longer than what an answer takes, and than the RNR timer, shorter than the ACK timeout.
inline constexpr uint64_t kPatienceNs = 20 * kMillisecond;

inline bool is_write(Opcode opcode) {
  return (opcode >= Opcode::kRcWriteFirst && opcode <= Opcode::kRcWriteOnlyImm) ||
         (opcode >= Opcode::kUcWriteFirst && opcode <= Opcode::kUcWriteOnlyImm);
}
inline bool is_atomic(Opcode opcode) {
  return opcode == Opcode::kRcCompareSwap || opcode == Opcode::kRcFetchAdd;
}
inline bool is_plain_ack(const Packet& p) {
  return p.opcode == Opcode::kRcAck && p.aeth.kind == wire::AckKind::kAck;
}

// What A asked for, put together from its frames.
struct Request {
  SendOp op = SendOp::kSend;
  Packet first;   // its first packet
  Bytes payload;  // SEND and WRITE
  uint32_t imm_data = 0, invalidate_rkey = 0;
};

inline SendOp op_of(const wire::OpcodeInfo& info, bool write) {
  if (info.opcode == Opcode::kRcReadRequest) return SendOp::kRead;
  if (info.opcode == Opcode::kRcCompareSwap) return SendOp::kCompareSwap;
  if (info.opcode == Opcode::kRcFetchAdd) return SendOp::kFetchAdd;
  if (info.has_ieth) return SendOp::kSendInv;
  if (write) return info.has_imm ? SendOp::kWriteImm : SendOp::kWrite;
  return info.has_imm ? SendOp::kSendImm : SendOp::kSend;
}

inline uint32_t packets_of(uint32_t bytes, uint32_t mtu_bytes) {
  return std::max(1u, (bytes + mtu_bytes - 1) / mtu_bytes);
}

inline std::vector<Request> requests_of(const Recording& recording) {
  std::map<uint32_t, const recording::Frame*> by_psn;  // from the first PSN on
  for (const recording::Frame& frame : recording.frames) {
    if (frame.from_a && wire::opcode_info(frame.packet.opcode).is_request)
      by_psn.emplace((frame.packet.psn.value() - recording.a.sq_psn) & kPsnMask, &frame);
  }
  std::vector<Request> requests;
  uint32_t next = 0;  // what is before it is the rest of a READ, asked for again
  for (const auto& [number, frame] : by_psn) {
    const Packet& p = frame->packet;
    if (number < next) continue;
    const bool read = p.opcode == Opcode::kRcReadRequest;
    next = number + (read ? packets_of(p.reth.length_bytes, recording.path_mtu_bytes) : 1);
    // In the standard's dialect, which WRITE Only is in here.
    const wire::OpcodeInfo& info = *wire::find_opcode(wire::Dialect::kRocev2, p.opcode);
    if (!info.cont) requests.push_back({.first = p});
    Request& request = requests.back();
    request.op = op_of(info, is_write(p.opcode));
    const auto* const payload =
        reinterpret_cast<const uint8_t*>(frame->bytes.data()) + p.header_bytes;
    request.payload.insert(request.payload.end(), payload, payload + p.payload_bytes);
    if (info.has_imm) request.imm_data = p.imm_data;
    if (info.has_ieth) request.invalidate_rkey = p.invalidate_rkey;
  }
  return requests;
}

// One end is ours, on host 0; of the peer, on host 1, there is a queue pair that hears nothing.
class Replay {
 public:
  Replay(const Recording& recording, bool as_a, QpType type)
      : recording_(recording),
        as_a_(as_a),
        world(settings(recording)),
        memory(kBufferBytes, kFill),
        spare(kBufferBytes) {
    ours = world.make_endpoint(0, end(type, as_a ? recording.a : recording.b));
    peer_ = world.make_endpoint(1, end(type, as_a ? recording.b : recording.a));
    key = ours->host->add_mr(memory, kAllAccess | kAccessMwBind);
    spare_key = ours->host->add_mr(spare);
    world.to_rtr(*ours, *peer_);
    world.to_rts(*ours);
    world.cut(1, true);
    world.wire().set_tap([this](uint32_t from, uint32_t, rte_mbuf* packet) {
      if (from == 0) note(packet);
    });
    std::memcpy(memory.data() + kOperandOffset, &kOperand, sizeof kOperand);
  }
  ~Replay() {
    world.wire().set_tap(nullptr);
    if (world.failed() || testing::Test::HasFailure()) ADD_FAILURE() << world.report();
  }

  // The recorded frame, as the peer would send it to us.
  void inject(const recording::Frame& frame) {
    auto bytes = frame.bytes;
    const auto ip = std::span(bytes).subspan<kIp, wire::kIpv4Bytes>();
    wire::store_be32(ip.data() + wire::ipv4_offset::kSrc, raw(address_of(1)));
    wire::store_be32(ip.data() + wire::ipv4_offset::kDst, raw(address_of(0)));
    wire::store_be16(ip.data() + wire::ipv4_offset::kChecksum, 0);
    wire::store_be16(ip.data() + wire::ipv4_offset::kChecksum,
                     static_cast<uint16_t>(~wire::ipv4_sum(ip)));
    wire::store_be24(&bytes[kBth + wire::bth_offset::kDestQp], ours->qpn());
    rename(bytes, *wire::find_opcode(wire::Dialect::kRocev2, frame.packet.opcode));
    const auto covered = std::span(bytes).subspan(kIp, bytes.size() - kIp - wire::kIcrcBytes);
    wire::store_icrc(&bytes[bytes.size() - wire::kIcrcBytes], wire::icrc_reference(covered));
    rte_mbuf* const packet = rte_pktmbuf_alloc(world.pools().data);
    ASSERT_NE(packet, nullptr);
    std::memcpy(rte_pktmbuf_append(packet, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    packet->ol_flags |= icrc_flag();
    world.wire().inject(0, packet);
  }

  // How often ours has sent a packet of the peer's PSN numbering.
  uint32_t sent_times(uint32_t psn) const {
    return static_cast<uint32_t>(
        std::ranges::count_if(sent, [psn](const Sent& s) { return s.packet.psn.value() == psn; }));
  }
  void settle() { world.run_for(50 * kMicrosecond); }

  struct Sent {
    Packet packet;
    Bytes payload;
  };

 private:
  static WorldSettings settings(const Recording& recording) {
    WorldSettings settings;
    settings.mtu_bytes = recording.path_mtu_bytes;
    settings.always_icrc = true;
    settings.transport = Transport::kRoce;
    return settings;
  }
  QpSettings end(QpType type, const recording::Side& side) const {
    QpSettings settings;
    settings.type = type;
    settings.psn = side.sq_psn;
    settings.caps.max_send_wr = settings.caps.max_recv_wr = 256;
    if (type == QpType::kUd) settings.qkey = recording_.frames.front().packet.qkey;
    return settings;
  }
  void note(rte_mbuf* packet) {
    std::vector<std::byte> bytes(packet->pkt_len);
    const void* const data = rte_pktmbuf_read(packet, 0, packet->pkt_len, bytes.data());
    if (data != bytes.data()) std::memcpy(bytes.data(), data, bytes.size());
    Sent one;
    if (wire::parse_bth(bytes, bytes.size(), true, one.packet) != wire::ParseError::kNone ||
        wire::parse_extensions(wire::Dialect::kRocev2, bytes, true, one.packet) !=
            wire::ParseError::kNone) {
      world.fail("ours sent what is no RoCEv2");
      return;
    }
    const auto* const payload =
        reinterpret_cast<const uint8_t*>(bytes.data()) + one.packet.header_bytes;
    one.payload.assign(payload, payload + one.packet.payload_bytes);
    sent.push_back(std::move(one));
  }
  uint32_t our_name_of(uint32_t rkey) const {
    if (rkey == recording_.b.rkey) return key;
    return rkey == recording_.window_rkey ? window_key : rkey;
  }
  // Keys and addresses of B's memory become those of ours. RETH and AtomicETH begin alike.
  void rename(std::vector<std::byte>& bytes, const wire::OpcodeInfo& info) const {
    static_assert(wire::reth_offset::kVa == 0 && wire::reth_offset::kKey == 8);
    std::byte* const at = &bytes[kExtensions];
    if (info.has_reth || info.has_atomic_eth) {
      wire::store_be64(at, wire::load_be64(at) - recording_.b.va + memory.address());
      wire::store_be32(at + 8, our_name_of(wire::load_be32(at + 8)));
    } else if (info.has_ieth) {
      wire::store_be32(at, our_name_of(wire::load_be32(at)));
    }
  }

  const Recording& recording_;
  bool as_a_;
  std::unique_ptr<Endpoint> peer_;

 public:
  World world;
  Memory memory, spare;  // `spare`: what is sent, what READs return, where SENDs land
  std::unique_ptr<Endpoint> ours;
  uint32_t key = 0, spare_key = 0, window_key = 0;
  std::vector<Sent> sent;
};

}  // namespace hostnic::sim::replaying
