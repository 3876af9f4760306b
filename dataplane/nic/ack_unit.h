// ACKs of many queue pairs in one buffer: with thousands of queue pairs each message has an ACK of
// its own, and a buffer, its headers and their judgement cost more than what the ACK says. Where
// units may travel (unit.h), plain ACKs to one peer that are due in one turn follow the first of
// them, an ordinary packet, as values behind its headers. They are packets all the same: counted,
// judged one by one, and made into packets again where somebody needs them. The lcore that has the
// buffer.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <utility>

#include "dataplane/nic/borrowed_payload.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// An ACK without a bitmap that differs from the one in front in this.
struct AckFollower {
  Qpn dest_qpn{}, src_qpn{};
  uint32_t msn = 0;
  uint16_t src_port = 0;
  wire::Sack sack;

  // Turns the headers of any ACK of the unit into this one's.
  void apply_to(wire::Packet& ack) const {
    ack.dest_qpn = dest_qpn;
    ack.src_qpn = src_qpn;
    ack.aeth.msn = msn;
    ack.src_port = src_port;
    ack.sack = sack;
    ack.psn = sack.base;
  }
};

// Behind the headers in the buffer of a unit of ACKs.
struct AckFollowers {
  uint32_t next = 0, count = 0;  // [next, count) have not been turned into packets
  std::array<AckFollower, 10> acks;

  uint32_t waiting() const { return count - next; }
  bool full() const { return count == acks.size(); }
};

inline constexpr uint16_t kAckFollowersOffset = 128;  // from where the headers begin
static_assert(wire::kFlowBytes + wire::kBthBytes + wire::kNethBytes + wire::kAethBytes +
                  wire::kSackEthBytes <=
              kAckFollowersOffset);
// What a buffer must hold.
inline constexpr uint32_t kAckUnitBytes = kAckFollowersOffset + sizeof(AckFollowers);

// A unit that borrows no payload is one of ACKs.
inline bool is_ack_unit(const rte_mbuf* packet) {
  return (packet->ol_flags & (unit_flag() | borrowed_flag())) == unit_flag();
}
inline AckFollowers& ack_followers(rte_mbuf* packet) {
  return *rte_pktmbuf_mtod_offset(packet, AckFollowers*, kAckFollowersOffset);
}

// The ACKs of one turn to one peer, before they leave.
class AckUnit {
 public:
  // A plain ACK that was built as a packet of its own. `flow`: its addresses.
  void begin(rte_mbuf* packet, int peer, const wire::FlowTemplate& flow) {
    packet_ = packet;
    peer_ = peer;
    flow_ = &flow;
  }
  bool empty() const { return packet_ == nullptr; }
  int peer() const { return peer_; }
  // False: it can't follow the others, and nothing has happened.
  bool add(int peer, const wire::FlowTemplate& flow, const wire::Packet& ack);
  // The buffer, which is the caller's now.
  rte_mbuf* take() { return std::exchange(packet_, nullptr); }

 private:
  rte_mbuf* packet_ = nullptr;
  int peer_ = 0;
  const wire::FlowTemplate* flow_ = nullptr;
};

// Turns a unit of ACKs into its second packet and those behind it.
void step_ack_unit(rte_mbuf* packet);

}  // namespace hostnic
