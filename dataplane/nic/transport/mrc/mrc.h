// SPDX-License-Identifier: BSD-3-Clause
// Multipath Reliable Connection, as the NIC does it (docs/mrc.md): WRITEs whose packets each choose
// a path by their entropy value, are placed in any order, acknowledged in two layers and repeated
// one by one. What a transport must do is in transport/transport.h.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/mrc/acknowledge.h"
#include "dataplane/nic/transport/mrc/completer.h"
#include "dataplane/nic/transport/mrc/endpoint.h"
#include "dataplane/nic/transport/mrc/responder.h"
#include "dataplane/nic/transport/packetizer.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/transport_services.h"

namespace hostnic {

class MrcTransport : public TransportDefaults {
 public:
  explicit MrcTransport(const TransportServices& nic);

  // -- Packets that have arrived. They come in no trains.
  bool receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // A switch has cut off a WRITE's payload: its PSN is refused at once, and goes again.
  void receive_trimmed(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool answer_stray(const wire::Packet& p) { return endpoint_.receive(p); }
  static std::optional<Psn> expected_psn(const QpContext& qp, const wire::Packet& p) {
    if (!wire::opcode_info(p.opcode).has_payload) return {};
    return qp.requests.window.expected();
  }

  // -- What leaves.
  // WRITEs only: drivers refuse what else there is when it is posted.
  bool start(QpContext& qp, const SendDescriptor& d) {
    if (qp.mrc == nullptr || (d.op != SendOp::kWrite && d.op != SendOp::kWriteImm)) return false;
    if (!qp.mrc->is_sending) begin_sending(qp);
    return true;
  }
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked);

  // -- The NIC's turn.
  uint32_t begin_turn();
  uint32_t end_turn() { return acks_.send_all(); }
  TimeNs next_deadline_ns() const {
    return std::min(completer_.next_probe_ns(), endpoint_.next_deadline_ns());
  }
  bool any_left() const { return !advance_list_.empty(); }
  bool any_to_send() const { return acks_.any_owed(); }
  size_t waiting() const {
    return std::max({acks_.waiting(), advance_list_.waiting(), completer_.waiting()});
  }

  void connect(QpContext& qp);
  void quiesce(QpContext& qp);
  static void forget(QpContext& qp) { qp.mrc.reset(); }

  MrcEndpoint& endpoint() { return endpoint_; }
  const MrcEndpoint& endpoint() const { return endpoint_; }

 private:
  void begin_sending(QpContext& qp) const;
  static bool skip_what_has_come(const QpContext& qp, SendProgress& progress);

  const NicSettings& settings_;
  Egress& egress_;
  Packetizer& packetizer_;
  const TimeNs& now_;
  AdvanceList advance_list_;
  MrcAcks acks_;
  MrcResponder responder_;
  MrcCompleter completer_;
  MrcEndpoint endpoint_;
};
static_assert(NicTransport<MrcTransport>);

}  // namespace hostnic
