// SPDX-License-Identifier: BSD-3-Clause
// What comes back to a requester of MRC: SACKs, NACKs, transport ACKs, answers to probes; and what
// it knows of its paths. It tells the driver which packets have come and which operations are done,
// and how much the congestion window lets be on its way; the driver decides what goes again.
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
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/mrc/acknowledge.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/types.h"
#include "protocol/wire/mrc/packet.h"

namespace hostnic {

class MrcCompleter {
 public:
  MrcCompleter(const TransportServices& nic, MrcAcks& acks);

  void receive_sack(QpContext& qp, const wire::mrc::Packet& sack);
  void receive_nack(QpContext& qp, const wire::mrc::Packet& nack);
  void receive_ack(QpContext& qp, const wire::mrc::Packet& ack);

  // A packet is about to leave again. If a timeout has called for it, and it is the descriptor's
  // first, the path by which it went last is assumed to be bad; if it was found missing, that
  // counts against the path.
  void note_repetition(QpContext& qp, Psn psn, RepeatCause cause, bool is_first);
  // The path that the packet went by last, which a repetition avoids.
  static uint32_t path_of(const QpContext& qp, Psn psn) { return qp.mrc->ledger.path_of(psn); }
  // A packet has left by the path, which EntropySet::next() has said.
  void note_transmitted(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                        uint32_t path);
  void fail_send(QpContext& qp, Psn psn, LocalError error);

  // Sends probes that are due. Returns how many.
  uint32_t send_probes();
  TimeNs next_probe_ns() const { return next_probe_ns_; }
  void forget(QpContext& qp);
  size_t waiting() const { return probing_.size(); }

 private:
  void take_bitmap(QpContext& qp, const wire::mrc::Seth& seth, Psn come_before);
  static void note_left(QpContext& qp);
  void note_come(QpContext& qp, Psn psn);
  void tell_losses(QpContext& qp);
  void tell_loss(QpContext& qp, Psn psn);
  void lose_path(QpContext& qp, uint32_t path);
  void note_timeout(QpContext& qp, Psn psn);
  void take_path(QpContext& qp, const wire::mrc::Packet& sack);
  void take_probe_answer(QpContext& qp, const wire::mrc::Packet& sack);
  void take_trimmed(QpContext& qp, const wire::mrc::Packet& nack);
  void take_congestion(QpContext& qp, const wire::mrc::Packet& sack, uint32_t newly_come);
  void publish_window(QpContext& qp);
  void watch_paths(QpContext& qp);
  bool send_probe(QpContext& qp);

  const NicSettings& settings_;
  Egress& egress_;
  Reports& reports_;
  Counters& counters_;
  const TimeNs& now_;
  MrcAcks& acks_;
  std::vector<QpContext*> probing_;  // of whose paths some are assumed to be bad
  TimeNs next_probe_ns_ = UINT64_MAX;
};

}  // namespace hostnic
