// SPDX-License-Identifier: BSD-3-Clause
// Survival of SIGBUS on client memory. A client may truncate a file that hostnicd maps, or punch a
// hole into it, for which no page is left (huge pages, a full tmpfs) or none is made
// (hole_guard.h); the next access by an lcore then raises SIGBUS. The guard puts anonymous memory
// there, marks the client and lets the lcore go on; the control thread drops the client. A SIGBUS
// anywhere else is our own bug and aborts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hostnic {

// Installs the process-wide handler. Called once, before lcores start. Returns false with errno on
// failure.
bool install_sigbus_guard();

// Declares [start, start + length_bytes) to be client memory in pages of `page_bytes`.
// `client_gone` must stay valid until the range is removed. Returns false if the table is full,
// which has room for kClientMappings of registered memory and for the segments of 4,096 clients.
// [any thread]
inline constexpr size_t kClientMappings = 16384;
inline constexpr size_t kSegmentRanges = 3 * 4096;
inline constexpr size_t kSigbusRanges = kClientMappings + kSegmentRanges;
bool add_sigbus_range(std::byte* start, uint64_t length_bytes, uint64_t page_bytes,
                      std::atomic<bool>* client_gone);
// Removes a range that nobody accesses any more, before it is unmapped. [any thread]
void remove_sigbus_range(std::byte* start);

}  // namespace hostnic
