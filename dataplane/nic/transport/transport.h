// SPDX-License-Identifier: BSD-3-Clause
// What a transport is to the NIC: how the packets of a queue pair are taken, and what its work
// requests become. hostnic/ is the native one (docs/transport.md), for RC; roce/ is the standard's
// RC (docs/roce.md); mrc/ is Multipath Reliable Connection (docs/mrc.md); unreliable/ are UC and
// UD, as the standard has them.
//
// A transport owns its lists, its timers, and its part of QpContext. It is handed the parts below
// it (transport_services.h), and is called by dispatch alone, through nic/transports.h; egress
// never calls one. Calls are resolved when compiled: no virtual function, no std::function per
// packet.
//
// A transport is added in these places:
//   protocol/wire/opcode.h, the opcodes.h of its dialect   its opcodes and their service
//   protocol/impair/classify.h          what they are to impairments
//   protocol/transport_kind.h           Transport
//   protocol/hostif/descriptors.h       what chooses it for a queue pair
//   transport/NAME/, with a meson.build the transport; qp/qp_context.h: what it keeps per QP
//   meson.build                         that folder
//   nic/transports.h                    its member, and its lines
//   verbs-shim/driver/requester/        the other half: what requester.h lists
#pragma once

#include <rte_mbuf.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/client/descriptor_queue.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/transport/dcqcn.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Whether a number from a client is a type of queue pair.
constexpr bool is_qp_type(QpType type) {
  return type == QpType::kRc || type == QpType::kUc || type == QpType::kUd;
}

// The dialect that a queue pair's packets are in.
constexpr wire::Dialect dialect_of(Transport transport) {
  if (transport == Transport::kHostnic) return wire::Dialect::kHostnic;
  return transport == Transport::kMrc ? wire::Dialect::kMrc : wire::Dialect::kRocev2;
}

// The service that the opcodes of a queue pair's packets must belong to.
constexpr wire::Service service_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return wire::Service::kReliable;
    case QpType::kUc:
      return wire::Service::kUnreliable;
    case QpType::kUd:
      break;
  }
  return wire::Service::kDatagram;
}

// Whether connections of hosts that speak `spoken` to each other have flow tags: native NICs put
// them on RC and UC (docs/transport.md), the standard has none.
constexpr bool has_flow_tags(Transport spoken) { return spoken == Transport::kHostnic; }

// Whether a packet is from the address that the queue pair is connected with.
inline bool is_from_address(const QpContext& qp, const wire::Packet& p) {
  return raw(p.src_ip) == qp.dest_ip;
}

// Whether a packet has the flow tag of the connection.
[[gnu::always_inline]] inline bool has_connection_tag(const QpContext& qp, const wire::Packet& p,
                                                      bool answer) {
  return wire::has_flow_tag(p, answer ? qp.incoming_response_tag : qp.incoming_request_tag);
}

// What answers for a transport that has nothing of the kind. A transport's function of the same
// name stands in front of it.
struct TransportDefaults {
  // -- Packets that have arrived.
  // Whether a packet is of the connection that the queue pair has now.
  static bool is_from_peer(const QpContext& qp, const wire::Packet& p, bool /*answer*/) {
    return is_from_address(qp, p);
  }
  // Takes a packet that differs from the one before in PSN and address only, for which receive()
  // returned true.
  static void follow(QpContext&, const wire::Packet&, rte_mbuf*) {}
  // Takes the packets of a bundle, of which the first is in `dispatch.received`. Returns false if
  // packets are left, which then are all that is in the buffer. `dispatch` is the core's
  // (receive.cc), for what needs more.
  template <class Dispatch>
  static bool receive_bundle(Dispatch&, rte_mbuf*) {
    return false;
  }
  // Notes that the network has lost a packet whose payload lies in memory here.
  static void note_lost(QpContext&, const wire::Packet&, rte_mbuf*) {}
  // Takes a packet of the connection whose payload a switch has cut off: of `p` addresses, source
  // port, queue pair and PSN are there, of `packet` the headers that were left.
  static void receive_trimmed(QpContext&, const wire::Packet&, rte_mbuf*) {}
  // Answers a packet of a connection that is no more. Returns false if it knows none.
  static bool answer_stray(const wire::Packet&) { return false; }
  // The PSN that it expects next of those that the packet's is one of, for captures.
  static std::optional<Psn> expected_psn(const QpContext&, const wire::Packet&) { return {}; }

  // -- What leaves.
  // Sends messages straight from the head of a client's queue, which is not empty, and charges the
  // client for them. Returns how many; 0 where something else comes first.
  static uint32_t send_from_queue(ClientState&, DescriptorQueue&, uint32_t /*budget*/) { return 0; }
  // Sends the next packets of the descriptor, more than one of them. Returns how many packets of
  // the budget they took; 0 where nothing of that kind comes next.
  static uint32_t send_several(const QpContext&, const SendProgress&, const SendBudget&) {
    return 0;
  }
  // Sends the next packets of what the queue pair has in its client's line of answers (answers/).
  static AnswerStep serve_answers(const QpContext&, uint32_t /*place*/, const SendBudget&) {
    return {.then = AnswerStep::Then::kOver};
  }
  // Takes note that receives were posted to a queue pair whose peer waits for them.
  static void note_posted(QpContext&) {}

  // -- The NIC's turn. The first and the last return how much they have done.
  // What was left from the turn before, and what is due.
  static uint32_t begin_turn() { return 0; }
  // All that has arrived in this turn has been received.
  static void end_receiving() {}
  // All has been sent that clients have asked for in this turn.
  static uint32_t end_turn() { return 0; }
  // When begin_turn() has something to do if nothing arrives; UINT64_MAX: never.
  static TimeNs next_deadline_ns() { return UINT64_MAX; }
  // Whether begin_turn() has something to do at once.
  static bool any_left() { return false; }
  // Whether something waits to leave.
  static bool any_to_send() { return false; }
  // How many queue pairs are in the longest of its lists.
  static size_t waiting() { return 0; }

  // -- Queue pairs.
  // Sends again after an error that ended sending only (SQE to RTS), from `next` on.
  static void restart(QpContext&, Psn /*next*/) {}
  // Forgets what is kept of a connection that has been quiesced: another begins, maybe of another
  // transport.
  static void forget(QpContext&) {}
  // The request that ended the connection, with what its message's first packet said.
  static RefusedRequest refused_request(const QpContext& qp) { return qp.refused; }
  // The rate that congestion has left to answers.
  static std::optional<DcqcnRate> answer_rate(const QpContext&, TimeNs) { return {}; }
};

// The calls that a transport must have an answer of its own to.
template <class T>
concept NicTransport = std::derived_from<T, TransportDefaults> &&
    requires(T transport, QpContext& qp, const wire::Packet& p, rte_mbuf* packet,
             SendProgress& progress, const SendDescriptor& d, bool& blocked) {
  // Takes a packet of the queue pair's connection, whose opcode belongs to its service. The buffer
  // stays the caller's. Returns whether follow() may take those that follow in the same segment
  // train.
  { transport.receive(qp, p, packet) } -> std::same_as<bool>;
  // Begins a descriptor that has been taken. Returns false if the queue pair may not send it; it is
  // discarded then.
  { transport.start(qp, d) } -> std::same_as<bool>;
  // Sends the next packet. Returns false if the descriptor is finished (or failed), or `blocked` by
  // the port or missing buffers.
  { transport.send_one(qp, progress, blocked) } -> std::same_as<bool>;
  // Starts the connection anew, from RESET or INIT to RTR. What all transports have is set before.
  transport.connect(qp);
  // Ends the connection: nothing of the queue pair is left in the transport's lists.
  transport.quiesce(qp);
};

}  // namespace hostnic
