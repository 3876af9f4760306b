// SPDX-License-Identifier: BSD-3-Clause
// The packets of a bundle, one after the other, on their way through an impairment stage. Each
// one's fate is decided as if it had come alone, without a buffer for it: what goes on at once and
// unchanged stays together in runs, and only what the stage keeps, changes or doubles becomes a
// packet of its own. Pure; one thread.
#pragma once

#include <cstdint>

#include "protocol/impair/stage.h"

namespace hostnic::impair {

// Packets of a bundle that follow each other, the first of which has the number 0.
struct PacketRun {
  uint32_t first = 0, count = 0;
};

class BundlePassage {
 public:
  BundlePassage(ImpairmentStage& stage, uint32_t packets) : stage_(stage), packets_(packets) {}

  bool done() const { return next_ == packets_; }
  // The number of the packet that is being decided about: the one that PacketOps are asked about
  // without a buffer.
  uint32_t current() const { return next_; }

  // Decides about the packets that are left, up to one that does not go on at once, or behind which
  // the network delivers another. Returns the run that goes on, which may be empty. The caller lets
  // it go, and then pops what the stage has due, before it calls again: what comes behind that
  // would have to wait otherwise. `describe(number)` is called only if it matters.
  template <class Describe>
  PacketRun next_run(TimeNs now, Describe&& describe) {
    PacketRun run{next_, 0};
    while (!done()) {
      const bool passes = stage_.pass(nullptr, now, [&] { return describe(next_); });
      ++next_;
      run.count += passes;
      if (!passes || stage_.has_due(now)) break;
    }
    return run;
  }

 private:
  ImpairmentStage& stage_;
  uint32_t packets_, next_ = 0;
};

}  // namespace hostnic::impair
