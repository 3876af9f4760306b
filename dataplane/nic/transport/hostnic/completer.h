// SPDX-License-Identifier: BSD-3-Clause
// What comes back to the requester: ACKs (into the QpStatus, for the driver to act on) and READ or
// atomic answers, which are placed here; and what has to be known of requests that have left.
//
// The NIC's lcore.
#pragma once

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/reports.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/advance_list.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// The last of several packets of one queue pair that have left.
struct Transmitted {
  Psn psn;
  uint8_t attempt = 0;
  bool ack_request = false;
};

class Completer {
 public:
  Completer(const TransportServices& nic, AdvanceList& advance_list)
      : settings_(nic.settings),
        placement_(nic.placement),
        reorder_(nic.reorder),
        reports_(nic.reports),
        advance_list_(advance_list),
        counters_(nic.counters),
        now_(nic.now) {}

  // -- What arrives.
  void receive_ack(QpContext& qp, const wire::Sack& sack, wire::Aeth aeth,
                   const std::byte* sack_words);
  // Takes an answer to a READ or an atomic.
  void receive_response(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  // Takes answers of a bundle, `first` and those behind it. Returns how many it has taken, from the
  // first on: all, all but the last, or none if one of them has to be looked at by itself. `whole`
  // has the headers of one packet that stands for all of them.
  uint32_t receive_response_bundle(QpContext& qp, const wire::Packet& first,
                                   const wire::Packet& whole, const ExternalPayload& payload,
                                   std::span<const std::byte> bytes);
  // Notes for the peer what was read of an answer, which the network may have lost: that it has
  // been placed, or else what it says.
  void note_response(QpContext& qp, const wire::Packet& p, const ExternalPayload& payload);
  // Moves the window over everything received (rule 8, execution in PSN order).
  void advance(QpContext& qp);
  // Has the response window made visible to the driver.
  void report_responses(QpContext& qp);

  // -- What leaves.
  // The epoch of a READ or atomic that leaves. Only a newer one counts: the rings overtake each
  // other, and an older descriptor's answers are simply stale.
  void begin_pull(QpContext& qp, const SendDescriptor& d);
  // Notes that `packets` packets of requests have left; `cause`: why once more.
  void note_transmitted(QpContext& qp, Transmitted last, uint32_t packets, RepeatCause cause);
  void note_transmitted(QpContext& qp, const wire::Packet& last, uint32_t packets,
                        RepeatCause cause) {
    note_transmitted(qp, Transmitted{last.psn, last.attempt, last.ack_request}, packets, cause);
  }
  // Whether the driver knows that the peer has the packet of a request: the work request may be
  // complete then, and its memory deregistered, while a repetition that turned out to be needless
  // still waits here. The driver's word counts, and not the NIC's own: answers acknowledge, too.
  static bool is_acknowledged(const QpContext& qp, Psn psn);
  // Notes a local error: the driver learns the PSN, and everything at or after it is discarded
  // until RESET (rule 28, after an error).
  void fail_send(QpContext& qp, Psn psn, LocalError error);

 private:
  enum class ResponseMiss : uint8_t {
    kNone,
    kNobodys,  // the READ is no longer, or not yet, in its slot
    kNotNow,
  };
  // Answers that follow each other.
  struct Answers {
    uint32_t packets = 1;
    std::span<const std::byte> payload;
    bool ahead = false;
    bool watched = false;  // the payload lies in memory that a program may write to
  };
  void take_response(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  LocalError place_response(QpContext& qp, const wire::Packet& p, const Answers& answers,
                            ResponseMiss& miss);
  uint32_t take_responses_ahead(QpContext& qp, wire::Packet p, std::span<const std::byte> bytes,
                                uint32_t packets);
  void merge_sack_word(QpContext& qp, std::array<uint64_t, kBitmapWords>& sack, Psn first,
                       uint64_t bits);
  void note_echo(QpContext& qp, const wire::Sack& sack);
  static void forget_stamps(QpContext& qp, Transmitted again);
  void take_refusal(QpContext& qp, const wire::Packet& p);
  void fail_response(QpContext& qp, const wire::Packet& p, LocalError error);
  void start_epoch(QpContext& qp, uint8_t epoch, Psn keep_until);

  const NicSettings& settings_;
  Placement& placement_;
  ReorderPool& reorder_;
  Reports& reports_;
  AdvanceList& advance_list_;
  Counters& counters_;
  const TimeNs& now_;
};

inline void Completer::note_transmitted(QpContext& qp, Transmitted last, uint32_t packets,
                                        RepeatCause cause) {
  if (unlikely(cause != RepeatCause::kNone))
    qp.note_sent_again(counters_, cause, packets, last.psn, now_);
  const Psn next = last.psn + 1;
  const bool repeated = distance(qp.transmitted, next) <= 0;
  if (!repeated) {
    qp.note_sent_first(now_);
    qp.transmitted = next;
    qp.status->transmitted_psn.store(next.value(), std::memory_order_release);
  }
  if (!last.ack_request) {
    if (unlikely(repeated && qp.stamps_used != 0)) forget_stamps(qp, last);
    return;
  }
  // A stamp that waits for its ACK stays: were the newest to replace it, a long queue, in which
  // many wait, would never be measured.
  if (qp.stamps_used == qp.stamps.size() || now_ == 0) return;
  ++qp.stamps_used;
  for (auto& stamp : qp.stamps) {
    if (stamp.used()) continue;
    stamp = {last.psn, last.attempt, now_};
    break;
  }
}

}  // namespace hostnic
