// SPDX-License-Identifier: BSD-3-Clause
// How much of everything there is: all that a NIC keeps is bounded, and most of it by these.
#pragma once

#include <cstdint>

namespace hostnic {

inline constexpr uint32_t kBurst = 32;              // packets that are received or sent by one call
inline constexpr uint32_t kMaxBundlePackets = 128;  // packets that a bundle stands for
inline constexpr uint32_t kRxBudget = 256;          // packets received per turn
// Packets per client, ring and turn: few, so that what they need is still in the cache when they
// arrive.
inline constexpr uint32_t kTxBudget = 32;
inline constexpr uint32_t kAdvanceBudget = 64;  // packets per QP and turn that are taken out of the
                                                // reorder buffer (rule 8)
inline constexpr uint32_t kAckEvery = 64;       // most packets accepted without an ACK (rule 20)
// READ answers that wait; one client may have half of them, and less while others have some.
inline constexpr uint32_t kReadJobs = 2048;
// Slots of an output queue for ACKs and atomics alone: data that a slow port keeps back never
// starves them.
inline constexpr uint32_t kAckReserve = 16;
// Data packets that may wait in an output queue.
inline constexpr uint32_t kOutputRoom = 2 * kBurst - kAckReserve;
inline constexpr uint32_t kMaxClients = 4096;
inline constexpr uint32_t kEarlyWriteCapacity = 65536;
inline constexpr uint32_t kReorderBlocks = 1024;
inline constexpr uint32_t kMaxPeers = 64;
inline constexpr int kLoopbackPeer = kMaxPeers;  // in mbuf::port and QpContext::peer
// Packets or descriptors whose queue pair's context is prefetched ahead: enough to hide a memory
// access, few enough to stay in the cache.
inline constexpr uint32_t kQpsAhead = 3;

}  // namespace hostnic
