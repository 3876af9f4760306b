// SPDX-License-Identifier: BSD-3-Clause
// Strong types for the numbers of RDMA: they do not convert into each other by accident.
// Host byte order throughout; only protocol/wire knows about the network's.
#pragma once

#include <cstdint>

namespace hostnic {

// Queue pair number, 24 bits: generation << 16 | index. 0 and 1 are the spec's special QPs and
// never allocated.
enum class Qpn : uint32_t {};
// Local or remote memory key: index, random tag, so that neighbours can't be guessed, and a bit
// about addresses (hostif/descriptors.h).
enum class MemoryKey : uint32_t {};
// IPv4 address in host byte order.
enum class Ipv4Address : uint32_t {};

constexpr uint32_t raw(Qpn v) { return static_cast<uint32_t>(v); }
constexpr uint32_t raw(MemoryKey v) { return static_cast<uint32_t>(v); }
constexpr uint32_t raw(Ipv4Address v) { return static_cast<uint32_t>(v); }

// The mask of a network: 10.1.2.0/24 has 24. `prefix_length` is 0 to 32.
constexpr Ipv4Address network_mask(uint32_t prefix_length) {
  return Ipv4Address{prefix_length == 0 ? 0 : ~uint32_t{0} << (32 - prefix_length)};
}
constexpr bool same_network(Ipv4Address a, Ipv4Address b, uint32_t prefix_length) {
  return ((raw(a) ^ raw(b)) & raw(network_mask(prefix_length))) == 0;
}
// Whether an address is one of 127.0.0.0/8, which never leaves a host.
constexpr bool is_loopback(Ipv4Address address) { return raw(address) >> 24 == 127; }

// Paths of a native connection at most: numbers that fit the lower four bits of its UDP source port
// (wire/flow_tag.h).
inline constexpr uint32_t kMostPaths = 16;
inline constexpr uint8_t kPathMask = kMostPaths - 1;

// Virtual address in the memory of the process that registered it. 64 bits on the wire.
using VirtualAddress = uint64_t;
// Nanoseconds of whatever clock the caller runs: CLOCK_MONOTONIC in programs, virtual time in the
// simulation.
using TimeNs = uint64_t;

}  // namespace hostnic
