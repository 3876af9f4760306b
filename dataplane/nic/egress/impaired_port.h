// SPDX-License-Identifier: BSD-3-Clause
// A port around a NIC's port that makes the network worse on purpose, in either direction, as an
// impairment spec says (docs/impairments.md). Without a spec it passes everything by.
//
// Packets are impaired one by one, those of bundles, too, but these get no buffers for it: what is
// let through of a bundle goes on in bundles, and only what is held back, changed or doubled
// becomes a packet of its own. What waits here refers to no client's memory (rule 31): a packet
// that is held back is copied first. Nothing leaks into the NIC or the port: both see packets that
// a network could have made.
//
// The NIC's lcore. Allocates in set() alone, which a user asks for.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/loopback_port.h"
#include "dataplane/nic/egress/packet_tap.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet_queue.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/port.h"
#include "protocol/impair/bundle_passage.h"
#include "protocol/impair/stage.h"
#include "protocol/types.h"

namespace hostnic {

class ImpairedPort final : public Port, private impair::PacketOps {
 public:
  ImpairedPort(LoopbackPort& port, const MbufPools& pools, PayloadReferences& references,
               Counters& counters)
      : port_(port), pools_(pools), references_(references), counters_(counters) {}
  ~ImpairedPort() override;
  ImpairedPort(const ImpairedPort&) = delete;
  ImpairedPort& operator=(const ImpairedPort&) = delete;

  // Replaces the impairments of one direction. What the old impairments held back goes on at once.
  void set(impair::Direction direction, const impair::Spec& spec, uint64_t seed);
  // What the impairments of a direction have done; nothing where there are none.
  std::optional<impair::Counters> impairment_counters(impair::Direction direction) const;
  void clear_counters();

  // Has packets captured that impairments lose, and those that they change told of; null: not.
  void set_tap(PacketTap* tap) { tap_ = tap; }

  // Sets the clock, at the start of each turn.
  void set_time(TimeNs now_ns) { now_ = now_ns; }
  // Sends the packets that are due. Called at the end of each turn.
  void advance() {
    if (tx_stage_ != nullptr || !departures_.empty()) send_due();
  }
  // When the port has something to do by itself; UINT64_MAX: never.
  TimeNs next_deadline_ns() const;
  // The number of packets inside the impairment stages of both directions.
  uint32_t held() const;
  // Whether packets go on as soon as somebody asks: then the lcore should not sleep.
  bool has_ready() const;

  PortCapabilities capabilities() const override { return port_.capabilities(); }
  int own_peer() const { return port_.own_peer(); }
  // Whether packets that leave may be held back, or be there twice: more than lost.
  bool holds_back_sent() const { return holds_back_sent_; }
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override {
    return rx_stage_ == nullptr && arrived_.empty() ? port_.receive(queue, packets, max)
                                                    : receive_impaired(queue, packets, max);
  }
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override {
    return tx_stage_ == nullptr && departures_.empty() ? port_.transmit(peer, packets, count)
                                                       : transmit_impaired(peer, packets, count);
  }
  int peer_of(uint32_t ip) const override { return port_.peer_of(ip); }
  int peers() const override { return port_.peers(); }
  int join(uint32_t group) override { return port_.join(group); }
  void leave(uint32_t group) override { port_.leave(group); }
  bool backlog() const override { return port_.backlog(); }
  bool announces_room() const override { return port_.announces_room(); }
  std::string describe() const override { return port_.describe(); }

 private:
  // Packets that have been let go, towards one peer. Behind the room for packets there is some for
  // the parts of one bundle.
  struct Departures {
    static constexpr uint32_t kRoom = 2 * kBurst;
    uint32_t count = 0;
    std::array<rte_mbuf*, kRoom + kMaxBundlePackets> packets;
    uint32_t room() const { return count < kRoom ? kRoom - count : 0; }
  };
  // A bundle whose packets are being decided about: PacketOps are asked about the current one.
  struct Passing {
    rte_mbuf* bundle;
    const impair::BundlePassage* passage;
  };

  uint16_t receive_impaired(uint16_t queue, rte_mbuf** packets, uint16_t max);
  void take_arrivals(uint16_t queue, size_t wanted);
  rte_mbuf* copy_answer(rte_mbuf* packet);
  void copy_answers(rte_mbuf* buffer, std::vector<rte_mbuf*>& out);
  impair::ImpairmentStage* stage_of(impair::Direction direction) const {
    return (direction == impair::Direction::kRx ? rx_stage_ : tx_stage_).get();
  }
  void mark_for_tap(void* packet, CaptureImpairment what) {
    if (tap_ != nullptr && packet != nullptr)
      tap_->mark_impaired(direction_, static_cast<rte_mbuf*>(packet), what,
                          stage_of(direction_)->rule_at_work());
  }
  bool holds_back(impair::Direction direction) const {
    return direction == impair::Direction::kRx ? holds_back_arrived_ : holds_back_sent_;
  }
  void impair(impair::Direction direction, rte_mbuf* buffer);
  void impair_packet(impair::Direction direction, rte_mbuf* packet);
  bool pass_captured(impair::Direction direction, rte_mbuf* packet, bool stays);
  void impair_in_runs(impair::Direction direction, rte_mbuf* bundle);
  void impair_bundled(impair::Direction direction, rte_mbuf* bundle);
  void take_apart(impair::Direction direction, rte_mbuf* bundle);
  rte_mbuf* copy_run(rte_mbuf* bundle, impair::PacketRun run);
  rte_mbuf* copy_passing();
  void let_go(impair::Direction direction, rte_mbuf* buffer);
  void lose(impair::Direction direction, rte_mbuf* buffer);
  void let_due_go(impair::Direction direction);
  uint16_t transmit_impaired(uint16_t peer, rte_mbuf** packets, uint16_t count);
  bool has_room(size_t peer);
  void depart(rte_mbuf* packet);
  bool send(size_t peer);
  bool depart_due();
  void send_due();
  impair::PacketInfo describe(impair::Direction direction, rte_mbuf* packet) const;

  // The functions of impair::PacketOps.
  void* clone(void* packet) override;
  void* detach(void* packet) override;
  void held_back(void* packet) override;
  void corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) override;
  bool mark(void* packet) override;
  void release(void* packet) override;

  LoopbackPort& port_;
  const MbufPools& pools_;
  PayloadReferences& references_;
  Counters& counters_;
  TimeNs now_ = 0;
  std::unique_ptr<impair::ImpairmentStage> rx_stage_, tx_stage_;
  bool holds_back_arrived_ = false, holds_back_sent_ = false;
  PacketTap* tap_ = nullptr;
  impair::Direction direction_ = impair::Direction::kRx;  // of the packet that is captured
  Passing passing_{};
  PacketQueue arrived_;                 // let through, and not taken yet
  PacketQueue released_;                // packets that replaced impairments had kept, to be sent
  std::vector<Departures> departures_;  // by peer, while there are any
};

}  // namespace hostnic
