// SPDX-License-Identifier: BSD-3-Clause
// What memory contains, in one number.
#pragma once

#include <cstdint>
#include <optional>

namespace hostnic::check {

// Which bytes are looked at: all, up to kFullBytes at each end, or samples of longer pieces.
enum class Thoroughness : uint8_t { kSampled, kFull };
inline constexpr uint64_t kFullBytes = 1 << 20;

// The digest of a piece, mixed with that of the pieces before it; nothing if it can't be read, as
// where nothing is mapped. `choice` varies which samples are taken: the same one compares.
std::optional<uint64_t> digest(uint64_t before, uint64_t address, uint64_t bytes,
                               Thoroughness thoroughness, uint64_t choice);
// Whether the page of this address can be read. A system call, which leaves errno as it is.
bool is_readable(uint64_t address);

}  // namespace hostnic::check
