// SPDX-License-Identifier: BSD-3-Clause
// What is known of the answers that a queue pair has given to READs, by PSN: whether they are on
// their way, what they said, or that the peer has placed them (docs/transport.md rule 18).
//
// The responder's lcore gives a queue pair a table and looks into it (qp/read_order.h). Where the
// receiver is in this process, answers stay in the memory until it reads them, in the order in
// which they arrive: it notes here what they have said, on its own lcore.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/nic/packet/digest.h"
#include "dataplane/nic/packet/qp_packets.h"
#include "protocol/psn.h"

namespace hostnic {

class DigestTable {
 public:
  // A table has room for `window` answers, a power of two, and lives as long as the process:
  // answers that refer to it may be out after its NIC is gone. `secret` lives as long.
  DigestTable(uint32_t window, const DigestSecret& secret)
      : places_(std::make_unique<std::atomic<uint64_t>[]>(window)),
        mask_(window - 1),
        secret_(secret) {}

  // -- For the receiver of answers that are out, on any lcore, before it lets go of the packet.
  // Notes that it has placed answers: they will be dropped when they come again.
  void note_placed(Psn first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) set(first + i, kPlaced);
  }
  // Reads the payload of an answer that it does not place, at most DigestSecret::kMostBytes, and
  // notes what it says.
  void note_read(Psn psn, std::span<const std::byte> memory);
  // Does so where the payload has been copied.
  void note_copied(Psn psn, std::span<const std::byte> copy) { set(psn, digest_of(copy, secret_)); }

  // -- For the responder's lcore.
  void set(Psn psn, uint64_t digest) {
    place(psn).store(digest ^ psn.value(), std::memory_order_relaxed);
  }
  // Notes that answers leave whose payload is read later.
  void note_out(Psn first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) set(first + i, kOut);
  }
  // Whether something is known of the answer with this PSN, or of one a window from it.
  bool knows(Psn psn) const { return place(psn).load(std::memory_order_relaxed) != 0; }
  bool is_out(Psn psn) const { return says(psn, kOut); }
  // Whether an answer that is given again may say this: what it said the first time, or whatever it
  // likes where the peer has placed it. A peer with a larger window than ours has answers share
  // places: the PSN tells them apart, also where they say the same.
  bool may_say(Psn psn, uint64_t digest) const { return says(psn, digest) || says(psn, kPlaced); }
  void forget(Psn first, uint32_t count) {
    for (uint32_t i = 0; i < count && i <= mask_; ++i)
      place(first + i).store(0, std::memory_order_relaxed);
  }
  void forget_all() { forget(Psn(0), mask_ + 1); }
  // Makes the table that of a queue pair whose answers `answers` counts.
  void begin(const PacketCount* answers) {
    answers_ = answers;
    forget_all();
  }
  // Whether answers may be out that refer to the table. Exact on the lcore of its queue pair; a
  // count that belongs to another queue pair by now says yes too often.
  bool is_referred_to() const { return answers_ != nullptr && answers_->any(); }
  uint32_t window() const { return mask_ + 1; }

 private:
  // No payload has these digests, but for one in 2^64.
  static constexpr uint64_t kOut = 0x6f75746f75746f75, kPlaced = 0x706c616365646964;

  std::atomic<uint64_t>& place(Psn psn) const { return places_[psn.value() & mask_]; }
  bool says(Psn psn, uint64_t digest) const {
    return place(psn).load(std::memory_order_relaxed) == (digest ^ psn.value());
  }

  std::unique_ptr<std::atomic<uint64_t>[]> places_;
  uint32_t mask_;
  const DigestSecret& secret_;
  const PacketCount* answers_ = nullptr;  // counts are never freed
};

}  // namespace hostnic
