// SPDX-License-Identifier: BSD-3-Clause
// Descriptors come out of the rings of clients, each in its turn, and go to the transport of their
// queue pair.
#include <rte_branch_prediction.h>

#include <cstring>

#include "dataplane/nic/nic_core.h"

namespace hostnic {

// One of a client's two rings, and how far it has been taken.
struct SendSource {
  RingEnd& ring;
  DescriptorQueue& queue;
  SendProgress& progress;
};

namespace {

// Whether a descriptor is one that a client may hand over at all, whatever the state of its QPs.
bool plausible(const SendDescriptor& d) {
  if (d.op < SendOp::kWrite || d.op > SendOp::kSendInv) return false;
  if (d.op == SendOp::kCreditNotify) return d.extra_elements == 0;
  if (d.length_bytes > kMaxChunkBytes) return false;
  if (is_read_or_atomic(d.op)) return d.extra_elements == 0;
  if ((d.flags & kSendInline) != 0) return d.length_bytes <= d.extra_elements * sizeof(RingElement);
  return d.sge_count <= kMaxSge && d.sge_count <= 1 + d.extra_elements * kSgesPerElement;
}

// Whether the queue has `elements` elements, taken from the ring if need be. Returns false also
// where the client has been dropped.
[[gnu::always_inline]] inline bool has_elements(ClientList& clients, ClientState& client,
                                                const SendSource& source, uint32_t elements) {
  bool bad_position = false;
  if (source.queue.fetch(source.ring, elements, bad_position)) return true;
  if (bad_position) clients.drop(client, DropReason::kRingPosition);
  return false;
}

}  // namespace

uint32_t NicShard::transmit_turn() {
  // READ answers and requests take turns at being first: on a slow port the other finds no room.
  answers_first = !answers_first;
  return clients.send_turn([this](ClientState& client) {
    const ClientTurn turn = transmit_client(client);
    if (turn.done != 0)
      client.channel->use->sent_bytes.store(client.share.sent_bytes(), std::memory_order_relaxed);
    return turn;
  });
}

ClientTurn NicShard::transmit_client(ClientState& client) {
  ClientTurn turn;
  if (answers_first) turn.done += transmit_answers(client);
  if (!ClientList::is_dropped(client)) {
    ClientChannel& channel = *client.channel;
    transmit_ring(client, {channel.urgent, client.urgents, client.urgent}, turn);
    // The urgent ring is served even in the middle of a chunk of the normal one: the rings keep
    // separate progress, so that retransmissions never wait.
    transmit_ring(client, {channel.sends, client.sends, client.normal}, turn);
  }
  if (!answers_first) turn.done += transmit_answers(client);
  turn.waits |= client.answer_line.count != 0;
  return turn;
}

// Sends answers that a client owes. Returns how much of a turn they are.
uint32_t NicShard::transmit_answers(ClientState& client) {
  return answer_lines.serve(client, [&](QpContext& qp, uint32_t place, uint32_t budget) {
    return transports.with(qp, [&](auto& transport) {
      return transport.serve_answers(qp, place, {budget, client.share});
    });
  });
}

// Sends the next packets of a descriptor, and charges its client for them. Returns how many packets
// of a turn they are; asking a port that has no room is one, too.
[[gnu::always_inline]] inline uint32_t NicShard::transmit_some(QpContext& qp,
                                                               SendProgress& progress,
                                                               uint32_t budget, SendShare& share,
                                                               bool& blocked) {
  const uint32_t packets_before = progress.sent_packets, bytes_before = progress.sent_bytes;
  const uint32_t done = transports.with(qp, [&](auto& transport) {
    const uint32_t several = transport.send_several(qp, progress, {budget, share});
    if (several != 0) return several;
    if (!transport.send_one(qp, progress, blocked) && !blocked) progress.active = false;
    return 1u;
  });
  if (const uint32_t packets = progress.sent_packets - packets_before; packets != 0) {
    const uint32_t bytes = progress.sent_bytes - bytes_before;
    share.charge(packets, bytes);
    qp.request_bytes += bytes;
  } else if (!blocked) {
    share.charge_refused();
  }
  return done;
}

// Serves a ring until it is empty, or something else ends the client's turn.
void NicShard::transmit_ring(ClientState& client, const SendSource& source, ClientTurn& turn) {
  SendProgress& progress = source.progress;
  SendShare& share = client.share;
  uint32_t done = 0;
  bool is_empty = false;
  while (done < kTxBudget && !share.spent()) {
    if (!progress.active) {
      is_empty = !has_elements(clients, client, source, 1);
      if (is_empty) break;
      const uint32_t small =
          unlikely(messages != nullptr)
              ? send_one_traced(client, source.queue)
              : transports.first_of([&](auto& transport) {
                  return transport.send_from_queue(client, source.queue, kTxBudget - done);
                });
      done += small;
      if (small != 0) continue;
      if (!take_descriptor(client, source)) break;
      if (!progress.active) {
        ++done;
        continue;
      }
    }
    QpContext* qp = qps.find(progress.descriptor.qpn);
    if (qp == nullptr) {
      share.charge_refused();
      ++done;
      progress.active = false;
      continue;
    }
    bool blocked = false;
    const uint64_t ticks = unlikely(messages != nullptr) ? MessageTap::ticks() : 0;
    done += transmit_some(*qp, progress, kTxBudget - done, share, blocked);
    if (unlikely(messages != nullptr)) messages->note_sent(*qp, ticks);
    if (blocked) {
      // Asking a full port once more is no work: it says when it has room. Nor is looking for
      // memory that somebody else brings, who may need this processor for it.
      if (port.announces_room() || progress.waits_for_memory) --done;
      break;
    }
  }
  turn.done += done;
  turn.waits |= !is_empty;
}

// Sends one message straight from the queue, if its transport does that: of more than one nobody
// would know whose they are.
uint32_t NicShard::send_one_traced(ClientState& client, DescriptorQueue& queue) {
  const uint64_t ticks = MessageTap::ticks();
  const uint32_t qpn = queue.front().qpn;
  const uint32_t sent = transports.first_of(
      [&](auto& transport) { return transport.send_from_queue(client, queue, 1); });
  const QpContext* const qp = sent == 0 ? nullptr : qps.find(qpn);
  if (qp != nullptr) messages->note_sent(*qp, ticks);
  return sent;
}

// Takes the next descriptor, which must be there, and its continuation elements. Returns false if
// the client was dropped.
bool NicShard::take_descriptor(ClientState& client, const SendSource& source) {
  SendProgress& progress = source.progress;
  SendDescriptor& d = progress.descriptor;
  counters.add(Counter::descriptors);
  d = source.queue.front();
  if (d.extra_elements > kMaxExtraElements || !plausible(d) ||
      !has_elements(clients, client, source, 1u + d.extra_elements)) {
    if (!ClientList::is_dropped(client)) clients.drop(client, DropReason::kBadDescriptor);
    return false;
  }
  std::memcpy(progress.extra.data(), source.queue.behind_front(),
              d.extra_elements * sizeof(RingElement));
  source.queue.pop(1u + d.extra_elements);
  QpContext* qp = qps.find(d.qpn);
  if (qp == nullptr || qp->client != client.channel) {
    discard(client);
    return true;
  }
  if (d.op == SendOp::kCreditNotify) {
    transports.with(*qp, [&](auto& transport) { transport.note_posted(*qp); });
    client.share.charge(1, 0);
    return true;
  }
  if (!start_descriptor(progress, *qp)) discard(client);
  return true;
}

void NicShard::discard(ClientState& client) {
  counters.add(Counter::descriptors_discarded);
  client.share.charge_refused();
}

// Begins a descriptor; returns false if the QP may not send, and then the descriptor is dropped.
bool NicShard::start_descriptor(SendProgress& progress, QpContext& qp) {
  const SendDescriptor& d = progress.descriptor;
  if (qp.state != QpState::kRts && qp.state != QpState::kSqd) return false;
  if (qp.send_failed && distance(qp.send_failed_psn, Psn(d.psn)) >= 0) return false;
  if ((d.flags & kSendRetransmit) != 0) egress.paths().doubt_neighbour(qp);
  if (!transports.with(qp, [&](auto& transport) { return transport.start(qp, d); })) return false;
  if (!is_read_or_atomic(d.op) && (d.flags & kSendInline) == 0) {
    progress.sge_count = d.sge_count;
    if (d.sge_count != 0) progress.sges[0] = d.sge0;
    if (d.sge_count > 1)
      std::memcpy(&progress.sges[1], progress.extra.data(), (d.sge_count - 1u) * sizeof(Sge));
  }
  if (d.op == SendOp::kRead) qp.request_bytes += d.length_bytes;
  progress.sent_bytes = progress.sent_packets = 0;
  progress.sge_index = progress.sge_offset = 0;
  progress.error = LocalError::kNone;
  progress.waits_for_memory = false;
  progress.active = true;
  return true;
}

}  // namespace hostnic
