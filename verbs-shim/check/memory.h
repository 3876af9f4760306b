// SPDX-License-Identifier: BSD-3-Clause
// What requests and receives have to do with memory: regions, rights, and contents.
#pragma once

#include <cstdint>
#include <optional>

#include "verbs-shim/check/shadow.h"

namespace hostnic::check {

// Looks at the SGEs of a post: keys, bounds, rights. `writes`: the device writes there. What is
// good is kept in `pieces`. Holds no lock.
struct Use {
  QpShadow* qp = nullptr;  // null: a shared receive queue's
  const ibv_context* context = nullptr;
  const ibv_pd* pd = nullptr;
  const char* what = "";
  bool writes = false;
};
void look_at_sges(const Use& use, const ibv_sge* sges, uint32_t count, Pieces& pieces);

// Takes the digest of a request that is about to be posted.
void take_digest(QpShadow& qp, SendEntry& entry);
// A request that has completed, and whose memory has been changed since it was posted, is reported;
// no lock is held.
bool has_changed(QpShadow& qp, const SendEntry& entry);
void report_change(QpShadow& qp, const SendEntry& entry);
// A request that has failed: whether its memory is no more.
void look_for_unmapped(QpShadow& qp, const SendEntry& entry);

// Memory that a completion says was written by a device.
void note_inbound(const Pieces& pieces);
uint64_t inbound_count();

// Requests and receives that use a region which is about to go.
void look_for_use(const Region& region);

// The process begins again, as a forked child.
void begin_memory_in_child();

}  // namespace hostnic::check
