// SPDX-License-Identifier: BSD-3-Clause
// The native transport (docs/transport.md), as the NIC does it: RC packets that arrive in any
// order, and what RC work requests become. What a transport must do is in transport/transport.h.
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/client/client_list.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/hostnic/acknowledge.h"
#include "dataplane/nic/transport/hostnic/completer.h"
#include "dataplane/nic/transport/hostnic/read_service.h"
#include "dataplane/nic/transport/hostnic/request_sender.h"
#include "dataplane/nic/transport/hostnic/responder.h"
#include "dataplane/nic/transport/hostnic/time_wait.h"
#include "dataplane/nic/transport/transport.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/types.h"

namespace hostnic {

class HostnicTransport : public TransportDefaults {
 public:
  explicit HostnicTransport(const TransportServices& nic);

  // -- Packets that have arrived.
  [[gnu::always_inline]] static bool is_from_peer(const QpContext& qp, const wire::Packet& p,
                                                  bool answer) {
    return is_from_address(qp, p) && has_connection_tag(qp, p, answer) && names_peer(qp, p);
  }
  [[gnu::always_inline]] bool receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
    if (p.opcode == wire::Opcode::kAck) {
      completer_.receive_ack(qp, p.sack, p.aeth, p.unread_headers);
      return false;
    }
    ClientList::state_of(*qp.client).data_arrived = true;
    follow(qp, p, packet);
    return true;
  }
  // Takes a packet with a PSN.
  [[gnu::always_inline]] void follow(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
    if (is_answer(p.opcode)) {
      completer_.receive_response(qp, p, packet);
    } else {
      responder_.receive(qp, p, packet);
    }
  }
  // The functions of bundles are in bundle_receive.h.
  template <class Dispatch>
  bool receive_bundle(Dispatch& dispatch, rte_mbuf* bundle);
  // Has what is lost read in its turn, if it would have been taken for an answer: nothing else
  // comes of it (rule 18).
  void note_lost(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
    if (takes_from(qp, p, /*answer=*/true))
      completer_.note_response(qp, p, *external_payload(packet));
  }
  bool answer_stray(const wire::Packet& p) { return time_wait_.answer(p); }
  static std::optional<Psn> expected_psn(const QpContext& qp, const wire::Packet& p) {
    if (p.opcode == wire::Opcode::kAck) return {};
    return (is_answer(p.opcode) ? qp.responses : qp.requests).window.expected();
  }

  // -- What leaves.
  bool start(QpContext& qp, const SendDescriptor& d) {
    if (is_read_or_atomic(d.op)) completer_.begin_pull(qp, d);
    return true;
  }
  // With several paths messages go one by one, each by its own.
  uint32_t send_from_queue(ClientState& client, DescriptorQueue& queue, uint32_t budget) {
    if (unlikely(settings_.paths > 1)) return 0;
    return queue.front_op() == SendOp::kRead ? sender_.send_read_requests(client, queue, budget)
                                             : sender_.send_single_packets(client, queue, budget);
  }
  uint32_t send_several(QpContext& qp, SendProgress& progress, const SendBudget& budget) {
    return sender_.send_several(qp, progress, budget);
  }
  bool send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
    return sender_.send_one(qp, progress, blocked);
  }
  AnswerStep serve_answers(QpContext& qp, uint32_t place, const SendBudget& budget) {
    return reads_.serve(qp, place, budget);
  }
  void note_posted(QpContext& qp) { acks_.credit_posted(qp); }

  // -- The NIC's turn.
  // Advances the windows that a turn's budget stopped. Returns how many.
  uint32_t begin_turn();
  void end_receiving() { acks_.send_all(); }
  bool any_left() const { return !advance_list_.empty(); }
  // Nothing that is left waits for a time but before an adversary.
  TimeNs next_deadline_ns() const {
    return likely(settings_.adversary_seed == 0) ? UINT64_MAX : put_off_until_ns();
  }
  bool any_to_send() const { return acks_.any_owed(); }
  size_t waiting() const { return std::max(acks_.waiting(), advance_list_.waiting()); }

  void connect(QpContext& qp);
  void quiesce(QpContext& qp);

 private:
  static bool is_answer(wire::Opcode opcode) {
    return opcode == wire::Opcode::kReadResponse || opcode == wire::Opcode::kAtomicResponse;
  }
  // Whether a packet names the queue pair that it comes from as the connection's, if it names one:
  // a plain WRITE does not.
  static bool names_peer(const QpContext& qp, const wire::Packet& p) {
    return raw(p.src_qpn) == qp.dest_qpn || p.opcode == wire::Opcode::kWriteOnly;
  }
  // Whether a packet belongs to the connection of a queue pair of this transport in a state in
  // which nothing else matters.
  [[gnu::always_inline]] static bool takes_from(const QpContext& qp, const wire::Packet& p,
                                                bool answer) {
    return qp.transport == Transport::kHostnic && qp.state >= QpState::kRtr &&
           qp.state != QpState::kErr && is_from_peer(qp, p, answer);
  }
  TimeNs put_off_until_ns() const;
  bool receive_bundled_request(wire::Packet& p, std::span<const std::byte> payload);
  template <class Dispatch, class Bundled>
  bool receive_requests(Dispatch& dispatch, rte_mbuf* bundle, Bundled& bundled);
  template <class Dispatch>
  bool receive_acks(Dispatch& dispatch, rte_mbuf* bundle);

  const QpDirectory& qps_;
  PayloadReferences& references_;
  Counters& counters_;
  ReorderPool& reorder_;
  Placement& placement_;
  const NicSettings& settings_;
  AdvanceList advance_list_;
  Acknowledger acks_;
  ReadService reads_;
  TimeWait time_wait_;
  Responder responder_;
  Completer completer_;
  RequestSender sender_;
};
static_assert(NicTransport<HostnicTransport>);

}  // namespace hostnic
