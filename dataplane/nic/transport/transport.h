// SPDX-License-Identifier: BSD-3-Clause
// What a transport is to the NIC: how the packets of a queue pair are taken, and what its work
// requests become. hostnic/ is the native one (docs/transport.md), for RC; roce/ is the standard's
// RC (docs/roce.md); unreliable/ are UC and UD, as the standard has them.
//
// A transport owns its lists, and its part of QpContext. It is handed the parts below it (egress,
// placement, receive queues, reorder buffers, reports), and is called by dispatch alone; egress
// never calls one. Calls are resolved when compiled: no virtual function, no std::function per
// packet.
//
// A transport is added in these places:
//   protocol/wire/opcode.h                 its opcodes and their service, if they are not there
//   protocol/impair/classify.h             what they are to impairments
//   protocol/hostif/descriptors.h          QpType, or what else chooses it for a queue pair
//   transport/NAME/, with a meson.build    the transport; qp/qp_context.h: what it keeps per QP
//   meson.build                            that folder
//   protocol/transport_kind.h              Transport
//   transport/transport.h                  the functions behind it
//   nic_core.h, nic.cc                     NicShard's member of it, and with_transport()
//   verbs-shim/driver/requester/           the other half: what requester.h lists
#pragma once

#include <rte_mbuf.h>

#include <concepts>
#include <cstdint>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/client/client_state.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Whether a number from a client is a type of queue pair.
constexpr bool is_qp_type(QpType type) {
  return type == QpType::kRc || type == QpType::kUc || type == QpType::kUd;
}

// The dialect that a queue pair's packets are in.
constexpr wire::Dialect dialect_of(Transport transport) {
  return transport == Transport::kHostnic ? wire::Dialect::kHostnic : wire::Dialect::kRocev2;
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

template <class T>
concept NicTransport = requires(T transport, QpContext& qp, const wire::Packet& p, rte_mbuf* packet,
                                SendProgress& progress, const SendDescriptor& d, SendBudget budget,
                                uint32_t place, bool& blocked) {
  // Takes a packet of the queue pair's connection, whose opcode belongs to its service. The buffer
  // stays the caller's.
  transport.receive(qp, p, packet);
  // Begins a descriptor that has been taken. Returns false if the queue pair may not send it; it is
  // discarded then.
  { transport.start(qp, d) } -> std::same_as<bool>;
  // Sends the next packets of the descriptor, more than one of them. Returns how many packets of
  // the budget they took; 0 where nothing of that kind comes next.
  { transport.send_several(qp, progress, budget) } -> std::same_as<uint32_t>;
  // Sends the next packet. Returns false if the descriptor is finished (or failed), or `blocked` by
  // the port or missing buffers.
  { transport.send_one(qp, progress, blocked) } -> std::same_as<bool>;
  // Sends the next packets of what the queue pair has in its client's line of answers (answers/).
  { transport.serve_answers(qp, place, budget) } -> std::same_as<AnswerStep>;
  // Starts the connection anew, from RESET or INIT to RTR. What all transports have is set before.
  transport.connect(qp);
  // Ends the connection: nothing of the queue pair is left in the transport's lists.
  transport.quiesce(qp);
};

}  // namespace hostnic
