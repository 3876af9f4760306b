// SPDX-License-Identifier: BSD-3-Clause
// Pieces that were registered before their pages had come into the mirror (memory_region.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/memory/client_memory.h"

namespace hostnic {

// The address of bytes of a late piece, of which there is one at least. Null: not all slices that
// they lie in are filled; these are wanted from now on. The lcore.
std::byte* late_address(const MappedPiece& piece, uint64_t offset, uint64_t length_bytes);

// The address of bytes of a piece, if they can be reached by one now. Null: they are reached
// through the mem fd, or the piece is late and the bytes are not there yet.
inline std::byte* address_now(const MappedPiece& piece, uint64_t offset, uint64_t length_bytes) {
  if (piece.host != nullptr) return piece.host + offset;
  return piece.is_late() ? late_address(piece, offset, length_bytes) : nullptr;
}

}  // namespace hostnic
