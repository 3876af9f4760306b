// SPDX-License-Identifier: BSD-3-Clause
// A port around a port that makes the network worse on purpose, in either direction, as an
// impairment spec says (docs/impairments.md). Without a spec it passes everything by.
//
// Nothing leaks into the NIC or the port: both see packets that a network could have made.
//
// The NIC's lcore. Allocates in set() alone, which a user asks for.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <optional>

#include "dataplane/nic/egress/impaired_arrivals.h"
#include "dataplane/nic/egress/impaired_departures.h"
#include "dataplane/nic/egress/port_stage.h"
#include "protocol/types.h"

namespace hostnic {

class ImpairedPort final : public PortStage {
 public:
  ImpairedPort(Port& port, const MbufPools& pools, PayloadReferences& references,
               Counters& counters, const impair::PathPlan& plan = {})
      : PortStage(port),
        arrivals_(port, {pools, references, counters, now_, plan}),
        departures_(port, {pools, references, counters, now_, plan}) {}

  // Replaces the impairments of one direction. What the old impairments held back goes on at once.
  void set(impair::Direction direction, const impair::Spec& spec, uint64_t seed) {
    if (direction == impair::Direction::kRx)
      arrivals_.set(spec, seed);
    else
      departures_.set(spec, seed);
  }
  // What the impairments of a direction have done; nothing where there are none.
  std::optional<impair::Counters> impairment_counters(impair::Direction direction) const {
    return (direction == impair::Direction::kRx ? arrivals_.packets() : departures_.packets())
        .counters();
  }
  void clear_counters() {
    arrivals_.packets().clear_counters();
    departures_.packets().clear_counters();
  }
  // Has packets captured that impairments lose, and those that they change told of; null: not.
  void set_tap(PacketTap* tap) {
    arrivals_.packets().set_tap(tap);
    departures_.packets().set_tap(tap);
  }

  // Sets the clock, at the start of each turn.
  void set_time(TimeNs now_ns) { now_ = now_ns; }
  // Sends the packets that are due. Called at the end of each turn.
  void advance() {
    if (!departures_.idle()) departures_.send_due();
  }
  // When the port has something to do by itself; UINT64_MAX: never.
  TimeNs next_deadline_ns() const {
    return std::min(arrivals_.packets().next_deadline_ns(),
                    departures_.packets().next_deadline_ns());
  }
  // The number of packets that the impairments of both directions hold back.
  uint32_t held() const { return arrivals_.packets().held() + departures_.packets().held(); }
  // Whether packets go on as soon as somebody asks: then the lcore should not sleep.
  bool has_ready() const { return arrivals_.has_ready() || departures_.has_ready(); }

  PortCapabilities capabilities() const override {
    PortCapabilities can = port_.capabilities();
    can.keeps_order = can.keeps_order && !departures_.packets().holds_back();
    return can;
  }
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override {
    return arrivals_.idle() ? port_.receive(queue, packets, max)
                            : arrivals_.receive(queue, packets, max);
  }
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override {
    return departures_.idle() ? port_.transmit(peer, packets, count)
                              : departures_.transmit(peer, packets, count);
  }

 private:
  TimeNs now_ = 0;
  ImpairedArrivals arrivals_;
  ImpairedDepartures departures_;
};

}  // namespace hostnic
