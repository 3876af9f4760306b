// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/sole_addresses.h"

namespace hostnic {

bool SoleAddresses::note(std::span<const MappedPiece> pieces) {
  if (has_moved_) return false;
  for (const MappedPiece& piece : pieces) {
    if (piece.by_mem_fd()) return false;
    const VirtualAddress beginning = piece.va - piece.space_offset;
    if (const auto known = beginnings_.find(piece.space_id); known != beginnings_.end()) {
      if (known->second != beginning) return false;
      continue;
    }
    if (beginnings_.size() == kMaxFiles) return false;
    beginnings_.emplace(piece.space_id, beginning);
  }
  return true;
}

}  // namespace hostnic
