// SPDX-License-Identifier: BSD-3-Clause
// What a receiver under the whole-message policy has promised (docs/transport.md rule 30): it
// counts the packets of each message, and a message counts as received only when all of them came
// in one attempt. Until then none of them is acknowledged, and the sender repeats them all. This is
// the "receiver counter" scheme that the receiver-window paper compares with; selective repeat
// needs none of it.
//
// A message longer than half the window is promised in parts of half a window, or its sender would
// wait for ever. Owned by the NIC's lcore; no clock. reset() allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "protocol/hostif/segment.h"
#include "protocol/psn.h"

namespace hostnic {

class MessageArrivals {
 public:
  // Starts at `first`; `window` is a power of two up to kWindowLimit, in PSNs.
  void reset(Psn first, uint32_t window) {
    arrivals_.assign(window, Arrival{});
    promised_ = first;
    counted_ = 0;
  }

  // The first PSN of the oldest message that is not complete.
  Psn promised() const { return promised_; }

  // Notes a packet that the window has accepted, now or before: a repetition counts for its own
  // attempt.
  void note(Psn psn, bool cont, bool more, uint8_t attempt) {
    const int32_t offset = distance(promised_, psn);
    if (offset < 0 || offset >= static_cast<int32_t>(arrivals_.size())) return;
    if (offset < static_cast<int32_t>(counted_) && at(psn).attempt != attempt) counted_ = 0;
    at(psn) = {true, cont, more, attempt};
    while (front_complete()) {
      for (uint32_t i = 0; i < counted_; ++i) at(promised_ + i) = {};
      promised_ += counted_;
      counted_ = 0;
    }
  }

  // Promises everything before `end` all the same, because a NAK says so.
  void promise(Psn end) {
    while (before(promised_, end)) {
      at(promised_) = {};
      promised_ += 1;
      counted_ = 0;
    }
  }

  // As ReceiveWindow::sack_words(), but only with the bits of complete messages beyond promised().
  // Nothing at or after `end` has been received.
  uint32_t sack_words(Psn end, std::array<uint64_t, kBitmapWords>& out) const {
    uint32_t words = 0;
    const auto span = static_cast<uint32_t>(std::max(distance(promised_, end), 0));
    for (uint32_t start = 0; start < span;) {
      uint32_t count = 0;
      const bool complete = message_at(start, span, count);
      for (uint32_t i = start; complete && i < start + count; ++i) {
        while (words <= i / 64) out[words++] = 0;
        out[i / 64] |= uint64_t{1} << i % 64;
      }
      start += count;
    }
    return words;
  }

 private:
  struct Arrival {
    bool received = false;
    bool cont = false;  // not the first of its message
    bool more = false;
    uint8_t attempt = 0;
  };
  Arrival& at(Psn psn) { return arrivals_[psn.value() & (arrivals_.size() - 1)]; }
  const Arrival& at(Psn psn) const { return arrivals_[psn.value() & (arrivals_.size() - 1)]; }

  // Whether the oldest message is complete; counts on from where its last look stopped.
  bool front_complete() {
    const Arrival& first = at(promised_);
    while (counted_ < arrivals_.size() / 2) {
      const Arrival& a = at(promised_ + counted_);
      if (!a.received) return false;
      if (a.attempt != first.attempt) return false;
      ++counted_;
      if (!a.more) return true;
    }
    return true;
  }

  // Measures the message, or what there is of it, that begins `start` PSNs beyond promised(): its
  // length, and whether all of it came in one attempt.
  bool message_at(uint32_t start, uint32_t span, uint32_t& count) const {
    const Arrival& first = at(promised_ + start);
    bool whole = true;
    for (count = 1; start + count <= span; ++count) {
      const Arrival& a = at(promised_ + (start + count - 1));
      if (count != 1 && a.received && !a.cont)
        break;  // the next message begins: the end is
                // missing
      whole = whole && a.received && a.attempt == first.attempt;
      if (a.received && !a.more) return whole;
    }
    --count;
    return false;
  }

  std::vector<Arrival> arrivals_;
  Psn promised_;
  uint32_t counted_ = 0;  // PSNs of the oldest message known to be there
};

}  // namespace hostnic
