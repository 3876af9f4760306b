// SPDX-License-Identifier: BSD-3-Clause
// Packets of one message that come together, as a bundle or what is left of one, while others are
// missing: what Responder::receive() does with each is done once for all of them.
#include "dataplane/nic/transport/hostnic/responder.h"

namespace hostnic {

uint32_t Responder::take_run(QpContext& qp, const wire::Packet& whole,
                             std::span<const std::byte> payload, uint32_t packets) {
  const ReceiveWindow& window = qp.requests.window;
  if (needs_a_packet(qp, whole) || !window.misses_all(whole.psn, packets)) return 0;
  if (whole.psn != window.expected()) return take_ahead(qp, whole, payload, packets);
  return window.has_hole() ? fill_hole(qp, whole, payload, packets) : 0;
}

// Takes the expected packets, behind which others have come.
uint32_t Responder::fill_hole(QpContext& qp, wire::Packet p, std::span<const std::byte> payload,
                              uint32_t packets) {
  if (execute(qp, p, payload, /*ahead=*/false, packets).kind != Outcome::kDone) return 0;
  qp.requests.window.accept_in_order(packets);
  if (!p.more) ++qp.msn;
  note_messages(qp, p, packets);
  advance(qp);
  p.psn += packets - 1;
  acks_.owe(qp, p, false);
  return packets;
}

// Takes packets ahead of the expected PSN, except for a message's last one: that one waits in the
// reorder buffer, or has to leave word there (rule 10, tails wait).
uint32_t Responder::take_ahead(QpContext& qp, wire::Packet p, std::span<const std::byte> payload,
                               uint32_t packets) {
  if (policy_ == wire::Policy::kGoBackN) return 0;
  if (!p.more) {
    payload = payload.first(size_t{--packets} * p.payload_bytes);
    p.more = true;
    p.ack_request = p.solicited = false;
  }
  if (packets == 0 || needs_reorder_buffer(p)) return 0;
  if (p.opcode == wire::Opcode::kSend && serial_distance(qp.recv_next_sn, p.reth.key) < 0) return 0;
  if (execute(qp, p, payload, /*ahead=*/true, packets).kind != Outcome::kDone) return 0;
  ReceiveWindow& window = qp.requests.window;
  counters_.add(Counter::out_of_sequence, packets);
  if (!window.has_hole()) counters_.add(Counter::packet_seq_err);
  window.set_run(p.psn, packets);
  note_messages(qp, p, packets);
  p.psn += packets - 1;
  acks_.owe(qp, p, false);
  return packets;
}

}  // namespace hostnic
