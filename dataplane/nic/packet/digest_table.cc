// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/digest_table.h"

#include <array>

namespace hostnic {

void DigestTable::note_read(Psn psn, std::span<const std::byte> memory) {
  alignas(64) std::array<std::byte, DigestSecret::kMostBytes> copy;
  set(psn, copy_and_digest(copy.data(), memory, secret_));
}

}  // namespace hostnic
