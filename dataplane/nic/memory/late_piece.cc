// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/late_piece.h"

#include <atomic>

#include "protocol/hostif/memory_region.h"

namespace hostnic {

std::byte* late_address(const MappedPiece& piece, uint64_t offset, uint64_t length_bytes) {
  bool filled = true;
  const uint64_t begin = piece.slice_lead_bytes + offset;
  const uint64_t last = (begin + length_bytes - 1) / kSliceBytes;
  for (uint64_t i = begin / kSliceBytes; i <= last; ++i) {
    if (slice_state(piece.slices[i]) == SliceState::kFilled) continue;
    filled = false;
    // It may be filled just now; anything else that the client has put there is its own loss.
    auto aside = static_cast<uint8_t>(SliceState::kAside);
    std::atomic_ref(piece.slices[i])
        .compare_exchange_strong(aside, static_cast<uint8_t>(SliceState::kWanted),
                                 std::memory_order_relaxed);
  }
  return filled ? piece.late_host + offset : nullptr;
}

}  // namespace hostnic
