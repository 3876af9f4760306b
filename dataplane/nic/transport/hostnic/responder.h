// SPDX-License-Identifier: BSD-3-Clause
// A request arrives at the responder: checked where it is the expected one, placed in any order,
// executed and completed in PSN order (docs/transport.md rules 5..13, 16, 19, 28).
//
// The NIC's lcore.
#pragma once

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/execute/request_executor.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/receive_queue.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/hostnic/acknowledge.h"
#include "dataplane/nic/transport/hostnic/read_service.h"
#include "dataplane/nic/transport/path_mtu.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/impair/adversary.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class Responder {
 public:
  Responder(const TransportServices& nic, Acknowledger& acks, ReadService& reads,
            AdvanceList& advance_list)
      : settings_(nic.settings),
        policy_(nic.settings.policy),
        policy_at_once_(nic.settings.adversary_seed == 0 ? policy_ : wire::Policy{0xff}),
        placement_(nic.placement),
        executor_(nic.executor()),
        receives_(nic.receives),
        reorder_(nic.reorder),
        reports_(nic.reports),
        acks_(acks),
        reads_(reads),
        advance_list_(advance_list),
        counters_(nic.counters),
        now_(nic.now) {}

  // Takes any packet of a request.
  void receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // Takes one packet, or several that belong together, as `p` says, if they are what comes next,
  // and nothing about them needs a packet. `p` then becomes the last of them. Returns false if
  // nothing has happened.
  bool take_in_order(QpContext& qp, wire::Packet& p, std::span<const std::byte> payload,
                     uint32_t packets);
  // Takes packets of one message that come together while others are missing: `whole` has the
  // headers of one packet that stands for all of them. Returns how many it has taken, from the
  // first on: all, all but the last, or none if one of them has to be looked at by itself.
  uint32_t take_run(QpContext& qp, const wire::Packet& whole, std::span<const std::byte> payload,
                    uint32_t packets);
  // Moves the window over everything received, processing the reorder buffer in PSN order (rule 8).
  void advance(QpContext& qp);
  // Ends what an adversary has begun and put off; nothing more of the connection is executed.
  void settle(QpContext& qp);
  // When something that an adversary has put off is due; UINT64_MAX: nothing is. Of a queue pair
  // that is to be advanced.
  TimeNs put_off_until_ns(const QpContext& qp) const;

 private:
  bool place_write(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  bool execute_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool refuses_on_purpose(const QpContext& qp, const wire::Packet& p) const;
  bool acknowledge_unseen(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool show_unseen(QpContext& qp, bool or_forget);
  bool put_off_atomic(QpContext& qp, const wire::Packet& p);
  TimeNs draw(impair::AdversaryDraw about, const QpContext& qp, const wire::Packet& p,
              uint32_t one_in, TimeNs most_ns) const;
  void place_write_early(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void hold_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool needs_a_packet(const QpContext& qp, const wire::Packet& p) const;
  uint32_t fill_hole(QpContext& qp, wire::Packet p, std::span<const std::byte> payload,
                     uint32_t packets);
  uint32_t take_ahead(QpContext& qp, wire::Packet p, std::span<const std::byte> payload,
                      uint32_t packets);
  void note_message(QpContext& qp, const wire::Packet& p);
  void note_messages(QpContext& qp, const wire::Packet& p, uint32_t packets);
  void receive_old_request(QpContext& qp, const wire::Packet& p);
  bool accept_ahead(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool needs_reorder_buffer(const wire::Packet& p) const;
  Outcome execute(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload,
                  bool ahead, uint32_t packets = 1);
  Outcome execute_write(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload,
                        bool ahead, uint32_t packets);
  Outcome execute_send(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload,
                       bool ahead, uint32_t packets);
  Outcome execute_read(QpContext& qp, const wire::Packet& p);
  Outcome execute_atomic(QpContext& qp, const wire::Packet& p);
  static bool has_too_many_reads(const QpContext& qp, const wire::Packet& p);
  bool reads_unanswered(const QpContext& qp) const;
  void refuse(QpContext& qp, const wire::Packet& p, const Outcome& outcome);
  void refuse_old_read(QpContext& qp, const wire::Packet& p, const Outcome& outcome);

  const NicSettings& settings_;
  const wire::Policy policy_;
  // That of packets which may be taken without a look at each: the same, but no packet's before an
  // adversary.
  const wire::Policy policy_at_once_;
  Placement& placement_;
  RequestExecutor executor_;
  ReceiveQueues& receives_;
  ReorderPool& reorder_;
  Reports& reports_;
  Acknowledger& acks_;
  ReadService& reads_;
  AdvanceList& advance_list_;
  Counters& counters_;
  const TimeNs& now_;
};

// Places the expected packet, if it is a WRITE that may be placed at once. Returns false if nothing
// has happened, and the request has still to be checked.
[[gnu::always_inline]] inline bool Responder::place_write(QpContext& qp, const wire::Packet& p,
                                                          std::span<const std::byte> payload) {
  if (p.opcode != wire::Opcode::kWriteOnly || payload.empty() || !fits_path_mtu(qp, p))
    return false;
  return executor_.place_write_at_once(
      qp, {.key = p.reth.key, .va = p.reth.va, .checked_bytes = payload.size(), .is_last = !p.more},
      {.psn = p.psn}, payload);
}

// Whether something about packets of a request needs a packet that arrives by itself. The first one
// in RTR causes an event; an adversary looks at each.
inline bool Responder::needs_a_packet(const QpContext& qp, const wire::Packet& p) const {
  const bool quiet = qp.state != QpState::kRtr || qp.comm_established;
  return !quiet || qp.fatal || p.policy != policy_at_once_ || congestion_experienced(p);
}

inline void Responder::note_messages(QpContext& qp, const wire::Packet& p, uint32_t packets) {
  if (likely(policy_ != wire::Policy::kWholeMessage)) return;
  for (uint32_t i = 0; i < packets; ++i)
    qp.messages.note(p.psn + i, i != 0 || p.cont, i + 1 != packets || p.more, p.attempt);
}

// Takes one packet, or several that belong together, as `p` says, if they are what comes next, and
// nothing about them needs a packet. `p` then becomes the last of them. Returns false if nothing
// has happened.
[[gnu::always_inline]] inline bool Responder::take_in_order(QpContext& qp, wire::Packet& p,
                                                            std::span<const std::byte> payload,
                                                            uint32_t packets) {
  ReceiveWindow& window = qp.requests.window;
  if (needs_a_packet(qp, p) || window.has_hole() ||
      window.classify(p.psn) != ReceiveWindow::Place::kExpected)
    return false;
  if (!place_write(qp, p, payload) && !execute(qp, p, payload, /*ahead=*/false).done())
    return false;
  window.accept_in_order(packets);
  if (!p.more) ++qp.msn;
  note_messages(qp, p, packets);
  p.psn += packets - 1;
  qp.unacknowledged += packets;
  if (p.ack_request || qp.unacknowledged >= kAckEvery) acks_.owe(qp, p, false);
  return true;
}

}  // namespace hostnic
