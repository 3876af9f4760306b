// SPDX-License-Identifier: BSD-3-Clause
// A capture of what a NIC sends and receives, and of what it decides: a record for each packet in a
// ring that `hostnic capture` reads (protocol/hostif/capture_ring.h). While nobody captures there
// is no tap, and the NIC looks once per burst for that.
//
// A packet's verdict is what the NIC's counters say has changed while it was dispatched, so that
// records and counters agree by construction. Packets that arrive are recorded when they are
// dispatched, behind impairments; those that leave when the port takes them, behind impairments,
// too; those that impairments lose when they are lost. Bundles and trains are shown as the packets
// that they stand for, each with the payload that lay in its memory at that moment.
//
// The NIC's lcore. Never waits, allocates nothing: what finds no room in the ring is counted.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/limits.h"
#include "protocol/hostif/capture_ring.h"
#include "protocol/impair/spec.h"
#include "protocol/impair/stage.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class PacketTap {
 public:
  using Clock = TimeNs (*)();
  struct Settings {
    uint32_t snap_bytes = kMaxSnapBytes;  // bytes kept of a packet
    uint32_t nic_index = 0;
    Clock clock = nullptr;  // of CLOCK_MONOTONIC; null: the time of the NIC's turn
  };

  // Memory as CaptureWriter wants it, which outlives the tap.
  PacketTap(CaptureHeader& header, const CaptureIndex& index, std::byte* records,
            const Settings& settings)
      : header_(header), writer_(header, index, records), settings_(settings) {}
  PacketTap(const PacketTap&) = delete;
  PacketTap& operator=(const PacketTap&) = delete;

  // The first and the last call: notes the NIC's counters, and that nothing follows.
  void begin(const Counters& counters);
  void end(const Counters& counters);
  // Sets the clock, at the start of each turn.
  void set_time(TimeNs now_ns) { turn_ns_ = now_ns; }

  // A program with queue pairs has died.
  void note_death(uint32_t pid) {
    const uint64_t before = header_.last_death.load(std::memory_order_relaxed);
    header_.last_death.store(capture_death(death_count(before) + 1, pid),
                             std::memory_order_release);
  }

  // -- Packets that are dispatched, one at a time.
  // What became of one, as its queue pair says afterwards.
  struct Outcome {
    uint8_t qp_state = kCaptureNoState;
    bool has_expected = false;
    uint32_t expected_psn = 0;
  };
  // The packet at the front of a buffer is dispatched next; it has been.
  void begin_received(rte_mbuf* packet, const Counters& counters);
  void end_received(const Counters& counters, const Outcome& outcome);

  // -- Packets that leave: all of some buffers, at most kBurst, of which the port then takes the
  // first `sent`.
  void begin_sent(rte_mbuf** packets, uint16_t count);
  void end_sent(uint16_t sent);

  // -- Packets that meet impairments, one at a time. What is not lost is recorded where it goes.
  void begin_impaired(impair::Direction direction, rte_mbuf* packet);
  void end_impaired(std::span<const impair::Loss> losses);
  // Says of a packet that goes on what was done to it, by which rule (from 1).
  void mark_impaired(impair::Direction direction, rte_mbuf* packet, CaptureImpairment what,
                     uint8_t rule) const;

 private:
  // The packet at the front of a buffer, in pieces.
  struct Pieces {
    std::span<const std::byte> headers, payload;
  };
  static Pieces front_of(rte_mbuf* packet);
  TimeNs now() const { return settings_.clock != nullptr ? settings_.clock() : turn_ns_; }
  CaptureRecord* record(CaptureDirection direction, rte_mbuf* packet, const Pieces& pieces);
  void record_all_of(rte_mbuf* packet);
  void record_message_bundle(rte_mbuf* bundle);
  void record_bundled(rte_mbuf* bundle);
  void record_built(rte_mbuf* bundle, const wire::FlowTemplate& flow, const wire::Packet& p,
                    std::span<const std::byte> payload);
  void publish() {
    if (!dispatching_) writer_.publish();
  }

  CaptureHeader& header_;
  CaptureWriter writer_;
  const Settings settings_;
  TimeNs turn_ns_ = 0;
  // The packet that is being dispatched: what leaves meanwhile is recorded behind it, and published
  // with it.
  bool dispatching_ = false;
  CaptureRecord* received_ = nullptr;
  std::array<uint64_t, kCounterCount> before_{};
  std::array<CaptureWriter::Mark, kBurst> sent_marks_;  // before each buffer
  uint16_t sent_count_ = 0;
  CaptureWriter::Mark impaired_mark_;
  CaptureRecord* impaired_ = nullptr;
  CaptureDirection impaired_direction_ = CaptureDirection::kReceived;
};

}  // namespace hostnic
