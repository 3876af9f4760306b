// SPDX-License-Identifier: BSD-3-Clause
// READs and atomics at their target: answered by the NIC from the mapped memory, without the
// target's process (rules 1, 16..19).
//
// On the virtual wire and on the udp port answers are not copied here but external, in the memory,
// so what they say is read later, one after the other: when they are placed, on the udp port when
// they are sent (or when they are first delayed, buffered or copied). Of what a full socket did not
// take the udp port reads everything again next time, in the same order. For the requester that is
// as good as when they were built, as long as no later answer is read earlier: what can't be
// external, and what an atomic does, waits until no external answer of the queue pair is out, but
// for what is given again; and where impairments hold back some answers and not others, none is
// external (rules 18, 31).
//
// The NIC's lcore.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/nic/answers/answer_lines.h"
#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/egress.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/packet/copy_blocks.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "dataplane/nic/transport/transport_services.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Notes that a READ or atomic has been answered to its end.
inline void note_read_answered(QpContext& qp, uint32_t read_number) {
  if (serial_distance(qp.reads_answered, read_number + 1) > 0) qp.reads_answered = read_number + 1;
}

class ReadService {
 public:
  explicit ReadService(const TransportServices& nic);

  void begin_connection(QpContext& qp) { digests_.begin_connection(qp.read_order); }
  // Queues a range; returns false if too many of its client's wait already, and the requester pulls
  // again; or if it has done so in a newer epoch and would drop the answers.
  bool queue(QpContext& qp, const wire::Packet& p);
  void answer_atomic(QpContext& qp, const wire::Packet& p, uint64_t result);
  // Sends the next packets of a job (AnswerLines).
  AnswerStep serve(QpContext& qp, uint32_t place, const SendBudget& budget);
  void forget(QpContext& qp);

 private:
  // A range of READ answers, or an atomic's answer, that still has to leave.
  struct ReadJob {
    wire::ReadEth request;
    uint32_t total_bytes = 0;
    uint32_t rkey = 0;
    VirtualAddress va = 0;
    uint32_t sent_bytes = 0;
    uint8_t path = 0;  // by which it was asked for, and the answers go
    bool is_atomic = false;
    bool is_lost = false;  // its memory can't be read any more
    uint64_t atomic_result = 0;
    bool refused = false;

    ReadOrder::Read read(uint16_t mtu_bytes) const {
      return {request.read_number, rkey, va, total_bytes,
              Psn(request.first_response_psn.value() - request.offset_bytes / mtu_bytes)};
    }
  };

  // The next packets of a range, and their bytes.
  struct Range {
    uint32_t packets = 0, bytes = 0;
  };

  bool is_void(const QpContext& qp, const ReadJob& job) const;
  uint32_t serve_job(QpContext& qp, ReadJob& job, const SendBudget& budget, AnswerStep& step);
  wire::Packet next_answer(const QpContext& qp, const ReadJob& job) const;
  uint32_t serve_read(QpContext& qp, ReadJob& job, const SendBudget& budget);
  uint32_t serve_read_bundle(QpContext& qp, ReadJob& job, const SendBudget& budget);
  uint32_t serve_read_train(QpContext& qp, ReadJob& job, const SendBudget& budget);
  bool reads_now(const ReadOrder& order, bool again) const;
  static bool may_be_placed_yet(const QpContext& qp, Psn psn);
  std::optional<uint32_t> digest_skipped(QpContext& qp, uint32_t budget);
  uint32_t serve_in_bulk(QpContext& qp, ReadJob& job, const SendBudget& budget);
  // The payload of `packets` answers from `first` on, which is read when they are placed. From now
  // on they are on their way.
  static MappedPayload out_payload(const QpContext& qp, Psn first, uint32_t packets,
                                   const std::byte* bytes, MemoryRegionEntry* region) {
    DigestTable* const digests = qp.read_order.table();
    if (digests != nullptr) digests->note_out(first, packets);
    return {bytes, region, qp.answers.count(), digests};
  }
  rte_mbuf* build_answer(QpContext& qp, const wire::Packet& p, const RemoteRange& range, bool again,
                         bool& lost);
  bool note_digest(ReadOrder& order, Psn psn, uint64_t digest, bool again);
  std::span<const std::byte> copied_payload(const wire::Packet& p, const rte_mbuf* packet) const;
  uint32_t serve_copies(QpContext& qp, ReadJob& job, const SendBudget& budget, bool again);
  static Range next_range(const QpContext& qp, const ReadJob& job, const SendBudget& budget,
                          uint32_t most);
  const std::byte* address_of(QpContext& qp, const ReadJob& job, uint64_t offset, uint32_t bytes,
                              MemoryRegionEntry** region = nullptr);
  bool emit_range(QpContext& qp, ReadJob& job, const wire::Packet& first, Range range,
                  const MappedPayload& payload);
  uint32_t emit_packets(QpContext& qp, ReadJob& job, Range range, const std::byte* bytes,
                        MemoryRegionEntry* block);
  uint32_t refuse(const QpContext& qp, ReadJob& job);
  bool send_atomic_response(QpContext& qp, const wire::ReadEth& request, uint64_t result);

  const NicSettings& settings_;
  AnswerLines& lines_;
  Egress& egress_;
  Placement& placement_;
  Counters& counters_;
  DigestTables digests_;
  CopyBlocks copies_;
  std::vector<std::byte> scratch_;
  std::vector<ReadJob> jobs_ = std::vector<ReadJob>(kReadJobs);  // by place
};

}  // namespace hostnic
