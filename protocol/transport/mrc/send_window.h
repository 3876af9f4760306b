// SPDX-License-Identifier: BSD-3-Clause
// The requester's half of MRC's reliability layer (docs/mrc.md, "Window"): which PSNs may leave,
// which have come according to SACKs, and which are missing. What has come is not what is done: a
// request completes when a transport ACK covers its last PSN, which is kept apart. Pure, one
// thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>

#include "protocol/psn.h"
#include "protocol/transport/mrc/arrival_window.h"
#include "protocol/transport/receive_window.h"
#include "protocol/wire/mrc/control_headers.h"

namespace hostnic::mrc {

class SendWindow {
 public:
  // Begins with `first` as the first PSN to send. `mpr_units` is what the responder can track, 1 to
  // kMaxMprUnits. `is_dynamic` says whether SACKs may change that, which both ends have agreed
  // upon.
  void reset(Psn first, uint8_t mpr_units, bool is_dynamic) {
    assert(mpr_units != 0 && mpr_units <= kMaxMprUnits);
    *this = SendWindow{};
    una_ = next_ = end_ = done_ = base_ = first;
    mpr_units_ = mpr_units;
    is_dynamic_ = is_dynamic;
  }

  // The oldest PSN that is not known to have come.
  Psn una() const { return una_; }
  // The first PSN that has never left.
  Psn next() const { return next_; }
  // The first PSN that no transport ACK covers: requests before it are done.
  Psn done() const { return done_; }
  uint8_t mpr_units() const { return mpr_units_; }

  // How many PSNs may leave for the first time. None, where the window has shrunk below what is
  // out.
  uint32_t room() const { return static_cast<uint32_t>(std::max(distance(next_, limit()), 0)); }
  // Whether a PSN that is out may be repeated now: it lies inside the responder's window, also if
  // that has shrunk.
  bool may_repeat(Psn psn) const {
    return distance(una_, psn) >= 0 && before(psn, next_) && before(psn, limit());
  }
  // Takes the next PSN, for which there must be room().
  Psn take() {
    assert(room() != 0);
    const Psn psn = next_;
    next_ += 1;
    return psn;
  }

  // Whether a PSN that is out is known to have come.
  bool has_come(Psn psn) const {
    return before(psn, una_) || (before(psn, end_) && bits_.test(psn));
  }

  struct SackResult {
    // False: the SACK speaks of PSNs that never left, or left ages ago, and nothing has changed.
    bool is_valid = false;
    uint32_t newly_come = 0;  // PSNs that were not known to have come
  };
  // Takes what a SACK says. One that is older than what is known adds what it can. Calls come(psn)
  // for each PSN that was not known to have come.
  SackResult on_sack(const wire::mrc::Seth& sack) {
    return on_sack(sack, [](Psn) {});
  }
  template <class Come>
  SackResult on_sack(const wire::mrc::Seth& sack, const Come& come) {
    const Psn expected = sack.cumulative_psn + 1;
    if (before(next_, expected) || distance(expected, una_) > kOldestSack) return {};
    uint64_t bits = sack.bitmap;
    const Psn from = sack.bitmap_psn();
    // The highest bit names a PSN that has left, or the SACK is no answer to what was sent.
    if (bits != 0 && !before(from + static_cast<uint32_t>(63 - std::countl_zero(bits)), next_))
      return {};
    SackResult result{true, advance_to(expected, come)};
    for (; bits != 0; bits &= bits - 1) {
      const Psn psn = from + static_cast<uint32_t>(std::countr_zero(bits));
      if (before(psn, una_) || has_come(psn)) continue;
      bits_.set(psn);
      ++ahead_;
      ++result.newly_come;
      come(psn);
      if (before(end_, psn + 1)) end_ = psn + 1;
    }
    skip_what_has_come();
    if (distance(base_, expected) >= 0) {
      base_ = expected;
      if (is_dynamic_ && sack.mpr_units != 0)
        mpr_units_ = std::min<uint8_t>(sack.mpr_units, kMaxMprUnits);
    }
    return result;
  }

  // Takes a transport ACK of this PSN: operations up to it succeeded. Returns how many PSNs it
  // covers that none before did; 0 for an old one, or one of a PSN that never left. Calls come(psn)
  // as on_sack() does.
  uint32_t on_transport_ack(Psn psn) {
    return on_transport_ack(psn, [](Psn) {});
  }
  template <class Come>
  uint32_t on_transport_ack(Psn psn, const Come& come) {
    const Psn done = psn + 1;
    if (!before(done_, done) || before(next_, done)) return 0;
    const auto covered = static_cast<uint32_t>(distance(done_, done));
    done_ = done;
    advance_to(done, come);
    // Where the window's size may change, its edge is a SACK's to move: an ACK does not say the
    // size.
    if (!is_dynamic_ && before(base_, done)) base_ = done;
    return covered;
  }

  // Takes it that the responder's window begins at `expected` at least, whether or not a SACK has
  // said so: for who would rather be refused than wait for one that was lost.
  void open_from(Psn expected) {
    if (before(base_, expected) && !before(next_, expected)) base_ = expected;
  }

  // Calls `each(psn)` for each PSN that is missing while a later one has come, oldest first, at
  // most `most` times.
  template <class Each>
  void for_each_missing(uint32_t most, const Each& each) const {
    if (ahead_ == 0) return;
    for (Psn psn = una_; before(psn, end_) && most != 0; psn += 1) {
      if (bits_.test(psn)) continue;
      each(psn);
      --most;
    }
  }

 private:
  // A SACK from further back is not one of this connection's, and offsets from there would wrap.
  static constexpr int32_t kOldestSack = 1 << 20;

  // The first PSN that lies outside the responder's window.
  Psn limit() const { return base_ + mpr_units_ * wire::mrc::kMprUnitPsns; }

  // Makes all before `expected` have come; returns how many of them were not known to.
  template <class Come>
  uint32_t advance_to(Psn expected, const Come& come) {
    uint32_t newly_come = 0;
    for (; before(una_, expected); una_ += 1) {
      if (ahead_ != 0 && bits_.test(una_)) {
        bits_.clear(una_);
        --ahead_;
      } else {
        ++newly_come;
        come(una_);
      }
    }
    skip_what_has_come();
    if (before(end_, una_)) end_ = una_;
    return newly_come;
  }
  void skip_what_has_come() {
    for (; ahead_ != 0 && bits_.test(una_); una_ += 1) {
      bits_.clear(una_);
      --ahead_;
    }
  }

  Psn una_, next_;
  Psn base_;  // where the responder's window begins, by the newest SACK
  Psn end_;   // at and after it nothing is known to have come
  Psn done_;
  uint32_t ahead_ = 0;  // bits set
  uint8_t mpr_units_ = 1;
  bool is_dynamic_ = false;
  PsnBits bits_;
};

}  // namespace hostnic::mrc
