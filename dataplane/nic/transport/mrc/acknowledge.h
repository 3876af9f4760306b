// SPDX-License-Identifier: BSD-3-Clause
// A responder of MRC answers its peer in two layers (docs/mrc.md): SACKs and NACKs say what has
// become of packets, transport ACKs what has become of operations. They leave at the end of a
// turn of the NIC, one of each kind for each queue pair; of packets that the network marked each
// gets its SACK, since each tells of a path.
//
// The NIC's lcore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// A moment as MRC's packets have it.
constexpr uint16_t mrc_timestamp(TimeNs now_ns) {
  return static_cast<uint16_t>(now_ns / wire::mrc::Timestamp::kUnitNs);
}

class MrcAcks {
 public:
  explicit MrcAcks(const TransportServices& nic);

  // Owes a SACK that answers this WRITE.
  void owe_sack(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers);
  // Owes a transport ACK of everything before the expected PSN; of a queue pair that is `fatal` it
  // is the NAK that it remembers.
  void owe_ack(QpContext& qp);
  // Owes a NACK of this WRITE, which is not taken.
  void owe_nack(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers,
                wire::mrc::NackReason reason);
  // Owes a NACK of this WRITE, whose payload a switch has cut off.
  void owe_trimmed_nack(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers);
  // Owes a probe's answer; one too many is not answered.
  void owe_probe_answer(QpContext& qp, const wire::Packet& p, const wire::mrc::Packet& headers);

  // Sends all that is owed. Returns for how many queue pairs.
  uint32_t send_all();
  void forget(QpContext& qp);
  bool any_owed() const { return !owed_.empty(); }
  size_t waiting() const { return owed_.size(); }

  // Sends a packet of a queue pair that carries no payload. Returns false if there is no room.
  bool send_control(QpContext& qp, const wire::FlowTemplate& flow, wire::mrc::Packet& headers);

 private:
  void add(QpContext& qp);
  bool send_owed(QpContext& qp);
  bool send_answer(QpContext& qp, wire::mrc::Packet& headers);
  bool send_sack(QpContext& qp);
  bool send_ack(QpContext& qp);
  bool send_nack(QpContext& qp);
  bool send_probe_answer(QpContext& qp);
  static void fill_sack(const QpContext& qp, const MrcAnswered& answered, wire::mrc::Packet& sack);

  Egress& egress_;
  Counters& counters_;
  std::vector<QpContext*> owed_;
};

}  // namespace hostnic
