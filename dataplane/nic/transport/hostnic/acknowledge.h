// SPDX-License-Identifier: BSD-3-Clause
// ACKs, NAKs and credit: one per queue pair and burst (docs/transport.md rules 14, 15, 20).
//
// The NIC's lcore.
#pragma once

#include <algorithm>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/packet/ack_bundle.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class Acknowledger {
 public:
  Acknowledger(const NicSettings& settings, Egress& egress, Counters& counters)
      : settings_(settings), egress_(egress), counters_(counters) {
    list_.reserve(settings.nic_qps);
    next_.reserve(settings.nic_qps);
  }

  // Has an ACK sent at the end of the burst; it echoes `p`.
  void owe(QpContext& qp, const wire::Packet& p, bool duplicate);
  // Has an ACK sent that echoes nothing.
  void owe_plain(QpContext& qp);
  void send_all();
  // The peer repeats what has arrived: our answers may go where it is not.
  void doubt_peer(const QpContext& qp) { egress_.paths().doubt_neighbour(qp); }
  // Receives were posted to a queue pair whose peer waits for them: the peer is told.
  void credit_posted(QpContext& qp);
  void forget(QpContext& qp) {
    std::erase(list_, &qp);
    std::erase(next_, &qp);
    qp.on_ack_list = qp.ack_owed = false;
  }
  bool any_owed() const { return !list_.empty(); }
  size_t waiting() const { return std::max(list_.size(), next_.size()); }

  // Everything before the returned PSN has been received, for good. Under whole-message a message
  // that is complete may still wait to be placed (rule 8, execution in PSN order): the base covers
  // what is complete.
  Psn base(const QpContext& qp) const;
  // Returns an ACK that says: everything before `base` has been received. The caller fills in the
  // rest.
  wire::Packet make_ack(uint32_t dest_qpn, uint32_t src_qpn, Psn base, uint32_t msn) const;

 private:
  void send_ack(QpContext& qp, AckBundleBuilder& bundle);
  void fill_sack(QpContext& qp, wire::AckKind kind, wire::Sack& sack);
  bool add_ack(QpContext& qp, AckBundleBuilder& bundle);
  void watch_credit(QpContext& qp, uint32_t advertised);

  const NicSettings& settings_;
  Egress& egress_;
  Counters& counters_;
  std::vector<QpContext*> list_, next_;
};

}  // namespace hostnic
