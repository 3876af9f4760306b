// SPDX-License-Identifier: BSD-3-Clause
// What a NIC knows of one client between turns: what it has taken of its rings, and what it still
// has to tell it. The NIC's lcore.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/client/client_channel.h"
#include "dataplane/nic/client/deficit_round_robin.h"
#include "dataplane/nic/client/descriptor_queue.h"
#include "dataplane/nic/packet/qp_packets.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/types.h"

namespace hostnic {

// A descriptor that is being packetised.
struct SendProgress {
  bool active = false;
  bool waits_for_memory = false;  // the next packet could not be built for that, and is tried again
  LocalError error = LocalError::kNone;  // why the next packet can't be built
  SendDescriptor descriptor;
  std::array<std::byte, kMaxExtraElements * 64> extra;  // SGEs or inline bytes
  std::array<Sge, kMaxSge> sges;
  uint32_t sge_count = 0;
  uint32_t sent_bytes = 0;
  uint32_t sent_packets = 0;
  // The place that the next byte comes from.
  uint32_t sge_index = 0, sge_offset = 0;
};

// The answer to ERR, RESET or destroy. It waits until nothing refers to memory that the QP's work
// requests name: what the rings held for it has been discarded, and its packets have been consumed
// (rule 32).
struct DeferredAnswer {
  CommandResponse response;
  QpPackets packets;
  uint32_t sends_until = 0, urgent_until = 0;  // ring positions when the command was taken
  TimeNs answer_by_ns = 0;
  // The queue pair's context, which may be gone: for whom the mem fd's helper works.
  const void* context_begin = nullptr;
  const void* context_end = nullptr;
};

// Limits how often a poller is brought to a free core. Each migration takes somebody off a core for
// a moment, so migrations may not go on; but a program that runs for milliseconds needs them as it
// starts and as it ends.
class MigrationAllowance {
 public:
  // The earliest time of the next migration.
  TimeNs next_ns() const {
    return std::max(again_ns_, spent_until_ns_ - std::min(spent_until_ns_, kSavedNs));
  }
  void take(TimeNs now) {
    again_ns_ = now + kAgainNs;
    spent_until_ns_ = std::max(spent_until_ns_, now) + kOneNs;
  }

 private:
  // One migration in kOneNs is allowed, and kSavedNs' worth may be saved up; the poller has
  // kAgainNs to show what a migration was for before the next.
  static constexpr uint64_t kOneNs = 5'000'000, kSavedNs = 3 * kOneNs, kAgainNs = 500'000;

  TimeNs again_ns_ = 0, spent_until_ns_ = 0;
};

// What a turn of a client allows a descriptor to send.
struct SendBudget {
  uint32_t packets;
  const SendShare& share;
};

// The answers to READs that a client owes, in line: places of AnswerLines.
struct AnswerLine {
  uint32_t first = 0, last = 0, count = 0;
  uint32_t jobs = 0;  // how many of them are jobs
};

struct ClientState {
  ClientChannel* channel = nullptr;
  SendShare share;
  AnswerLine answer_line;
  DescriptorQueue urgents, sends;
  SendProgress urgent, normal;
  std::vector<DeferredAnswer> deferred;
  // A command that ends sending and waits for what is still to be sent; those behind it wait as
  // well. When it was last looked at; 0: there is none.
  Command held;
  TimeNs held_seen_ns = 0;
  bool answered = false;        // a command response was written in this turn
  bool data_arrived = false;    // requests or answers came, since delivered_to() was called
  bool reports_unseen = false;  // metas were written since the driver was last known awake
  uint32_t reports_taken = 0;   // position in the ring up to which the driver had taken them
  TimeNs untaken_since_ns = 0;  // since then there have been untaken reports, and none was taken
  MigrationAllowance poller_migrations;  // bounds how often the poller is moved
  TimeNs wake_due_ns = UINT64_MAX;  // wake the service thread then unless it drained the reports
  std::vector<uint32_t> qpns;
  static constexpr uint64_t kHeldTurnNs = 2'000'000;
  TimeNs next_look_at_held_ns() const { return held_seen_ns + kHeldTurnNs; }
  // Counts the time since the held command was last looked at, and says whether it has waited for
  // long enough. A turn counts for 2 ms at most: without a processor the NIC has sent nothing
  // meanwhile. What is still to be sent may wait for memory that a helper reads, or that is being
  // filled, by threads that have to get a processor first. Not so while the client changes its
  // mappings: it may need the answer for that.
  bool held_for_long(TimeNs now) {
    constexpr uint64_t kMostNs = 100'000'000, kMostForMemoryNs = 500'000'000;
    held_for_ns += std::min<uint64_t>(now - held_seen_ns, kHeldTurnNs);
    held_seen_ns = now;
    const bool waits_for_memory =
        (normal.active && normal.waits_for_memory) || (urgent.active && urgent.waits_for_memory);
    const bool mappings_change =
        channel->header().memory_gate.closed.load(std::memory_order_relaxed) != 0;
    return held_for_ns >= (waits_for_memory && !mappings_change ? kMostForMemoryNs : kMostNs);
  }
  bool served = false;       // looked at each turn
  TimeNs last_work_ns = 0;   // if served: when the client was last seen to have work
  uint64_t held_for_ns = 0;  // for how long the held command had waited when it was looked at
};

}  // namespace hostnic
