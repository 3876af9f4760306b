// SPDX-License-Identifier: BSD-3-Clause
// Decides about packets of one direction, as an impairment spec says (docs/impairments.md), and
// does to them what was decided.
//
// Packets are impaired one by one, those of bundles, too, but these get no buffers for it: what is
// let through of a bundle goes on in bundles, and only what is held back, changed or doubled
// becomes a packet of its own. What waits here refers to no client's memory (rule 31): a packet
// that is held back is copied first.
//
// The NIC's lcore. Allocates in replace() alone, which a user asks for.
#pragma once

#include <rte_mbuf.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/packet_tap.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/pools.h"
#include "protocol/impair/bundle_passage.h"
#include "protocol/impair/stage.h"
#include "protocol/impair/switch_spec.h"
#include "protocol/types.h"

namespace hostnic {

// What impairments need of their NIC.
struct ImpairmentServices {
  const MbufPools& pools;
  PayloadReferences& references;
  Counters& counters;
  const TimeNs& now;
  impair::PathPlan plan;  // of the switch that the NIC hangs on
};

class ImpairedPackets final : private impair::PacketOps {
 public:
  // Takes what goes on.
  class Outlet {
   public:
    virtual void let_go(rte_mbuf* buffer) = 0;
    // Lets go what is due in front of the next packet of a bundle, which otherwise would have to
    // wait behind it, and so become a packet of its own.
    virtual void let_due_go() = 0;

   protected:
    ~Outlet() = default;
  };

  ImpairedPackets(impair::Direction direction, Outlet& outlet, const ImpairmentServices& nic)
      : direction_(direction), outlet_(outlet), nic_(nic) {}
  ~ImpairedPackets();
  ImpairedPackets(const ImpairedPackets&) = delete;
  ImpairedPackets& operator=(const ImpairedPackets&) = delete;

  // Replaces the impairments. Returns what the old ones held back.
  std::vector<rte_mbuf*> replace(const impair::Spec& spec, uint64_t seed);
  bool any() const { return stage_ != nullptr; }
  // Whether packets may be held back, or be there twice: more than lost.
  bool holds_back() const { return holds_back_; }
  // Decides what becomes of the packets of a buffer, and lets go what goes on.
  void impair(rte_mbuf* buffer);
  // Takes packets that were held back and are due.
  size_t pop(std::span<void*> due) { return stage_ == nullptr ? 0 : stage_->pop(due, nic_.now); }
  // Appends a buffer, or if it is answers to READs a copy of each. What is lost has been read now,
  // and is done with.
  void copy_answers(rte_mbuf* buffer, std::vector<rte_mbuf*>& out);

  // What the impairments have done; nothing where there are none.
  std::optional<impair::Counters> counters() const;
  void clear_counters();
  TimeNs next_deadline_ns() const;
  // The number of packets that are held back.
  uint32_t held() const;
  // Has packets captured that are lost, and those that are changed told of; null: not.
  void set_tap(PacketTap* tap) { tap_ = tap; }

 private:
  // A bundle whose packets are being decided about: PacketOps are asked about the current one.
  struct Passing {
    rte_mbuf* bundle;
    const impair::BundlePassage* passage;
  };

  rte_mbuf* copy_answer(rte_mbuf* packet);
  void mark_for_tap(void* packet, CaptureImpairment what);
  void impair_packet(rte_mbuf* packet);
  bool pass_captured(rte_mbuf* packet, bool stays);
  void impair_in_runs(rte_mbuf* bundle);
  void impair_bundled(rte_mbuf* bundle);
  void take_apart(rte_mbuf* bundle);
  rte_mbuf* copy_run(rte_mbuf* bundle, impair::PacketRun run);
  rte_mbuf* copy_passing();
  void lose(rte_mbuf* buffer);
  impair::PacketInfo describe(rte_mbuf* packet) const;
  impair::PacketInfo describe(const wire::Packet& p, uint32_t bytes) const;

  // The functions of impair::PacketOps.
  void* clone(void* packet) override;
  void* detach(void* packet) override;
  void held_back(void* packet) override;
  void corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) override;
  bool mark(void* packet) override;
  void release(void* packet) override;

  const impair::Direction direction_;
  Outlet& outlet_;
  const ImpairmentServices nic_;
  std::unique_ptr<impair::ImpairmentStage> stage_;
  bool holds_back_ = false;
  PacketTap* tap_ = nullptr;
  Passing passing_{};
};

}  // namespace hostnic
