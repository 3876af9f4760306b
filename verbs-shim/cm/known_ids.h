// SPDX-License-Identifier: BSD-3-Clause
// The rdma_cm ids of this process: what is needed of them when hostnicd is gone, and whom they were
// to reach. Without hostnicd each id that had a device hears DEVICE_REMOVAL once, and can be
// destroyed, as when the kernel loses a device.
// hostnicd knows everything else about them (dataplane/daemon/rdma_cm/cm_agent.h).
//
// Any thread. A forked child has its parent's ids as they were.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hostnic::cm_device {

constexpr size_t kAddressBytes = 28;  // of a sockaddr_in6

// Remembers what a command that is about to be carried out says about ids: another thread may have
// its event before this one has its answer.
void note_written(uint32_t command, std::span<const std::byte> bytes);

// Remembers what a command that hostnicd carried out says about ids. `file` is hostnicd's name of
// the file it was written to. It throws std::bad_alloc.
void note_carried_out(uint64_t file, uint32_t command, std::span<const std::byte> bytes,
                      std::span<const std::byte> response);

// The next id of `file` that has not heard that hostnicd is gone, or none.
std::optional<rdma_ucm_event_resp> take_removal(uint64_t file);

// The socket address that an id of `file` was to be resolved to; all zeros: none is known.
std::array<std::byte, kAddressBytes> destination_of(uint64_t file, uint32_t handle);

// Forgets an id, when hostnicd is gone. Returns how many events the program was given for it, for
// which librdmacm awaits acknowledgement. Returns none if there is no such id of this file.
std::optional<uint32_t> forget_id(uint64_t file, uint32_t handle);

// The ids' lock is held from before a fork until after it, on both sides.
void lock_ids_across_fork();
void unlock_ids_after_fork();

}  // namespace hostnic::cm_device
