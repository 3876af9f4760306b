// SPDX-License-Identifier: BSD-3-Clause
// Connections in time-wait: they ended here while the peer may still wait for an ACK.
//
// The last ACK of a connection can be lost like any packet, and its queue pair is often gone a
// moment later: a program that has received its last message exits. Its peer repeats packets that
// arrived long ago, hears nothing, and would end in RETRY_EXC_ERR for a message that was received.
// On lossless fabrics that hardly happens; here it is an everyday event. So the NIC remembers, for
// a while, up to where an ended connection had received, and says so again to whoever asks. As
// TCP does, but nothing of the queue pair is kept: no memory, no context, no QPN.
//
// Bounded: one remembered connection per slot, the newest. The NIC's lcore only.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/transport/hostnic/acknowledge.h"
#include "protocol/psn.h"
#include "protocol/wire/packet.h"

namespace hostnic {

struct TimeWaitConnection {
  uint32_t qpn = 0;  // 0: the slot is free
  uint32_t dest_qpn = 0;
  uint32_t dest_ip = 0;
  int peer = 0;                       // Port::peer_of, or kLoopbackPeer
  uint16_t incoming_request_tag = 0;  // which connection of that QPN
  wire::FlowTemplate response_flow;
  Psn base;  // every PSN before it was received
  uint32_t msn = 0;
  uint32_t recv_sn_limit = 0;  // the credit that the peer was told: what was used up
  uint64_t until_ns = 0;
  uint64_t answered_ns = 0;  // when it was last answered: one answer a turn is enough
};

class TimeWaitTable {
 public:
  // Connections are remembered for longer than programs commonly let a peer be silent: timeout 18
  // and retry_cnt 7 are 8.6 s.
  static constexpr uint64_t kRememberNs = 10'000'000'000;
  static constexpr uint32_t kSlots = 4096;

  void add(const TimeWaitConnection& connection) { slot(connection.qpn) = connection; }

  // The connection that a request belongs to; null: none that is remembered.
  TimeWaitConnection* find(const wire::Packet& request, uint64_t now_ns) {
    TimeWaitConnection& c = slot(raw(request.dest_qpn));
    const bool same =
        c.qpn == raw(request.dest_qpn) && c.dest_ip == raw(request.src_ip) &&
        wire::has_flow_tag(request, c.incoming_request_tag) &&
        (raw(request.src_qpn) == c.dest_qpn || request.opcode == wire::Opcode::kWriteOnly);
    return same && now_ns < c.until_ns ? &c : nullptr;
  }

 private:
  TimeWaitConnection& slot(uint32_t qpn) { return slots_[qpn & (kSlots - 1)]; }

  std::vector<TimeWaitConnection> slots_ = std::vector<TimeWaitConnection>(kSlots);
};

// Remembers connections as they end, and answers their peers.
class TimeWait {
 public:
  TimeWait(Egress& egress, const Acknowledger& acks, Counters& counters, const TimeNs& now)
      : egress_(egress), acks_(acks), counters_(counters), now_(now) {}

  // Remembers the connection of the queue pair, which is over; its peer may not know yet.
  void enter(QpContext& qp);
  // Answers a request for a queue pair that is not there any more, or not in that connection.
  // Returns true if the request had arrived before, and the peer has been told. READs and atomics
  // are not answered: the memory or result that they wait for is gone. Nor is anything that had not
  // arrived: nobody is there to take it.
  bool answer(const wire::Packet& p);

 private:
  Egress& egress_;
  const Acknowledger& acks_;
  Counters& counters_;
  const TimeNs& now_;
  TimeWaitTable table_;
};

}  // namespace hostnic
