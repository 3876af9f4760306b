// SPDX-License-Identifier: BSD-3-Clause
// Between libibverbs' structures and the driver's. Pure functions; nothing here knows about
// contexts or locks. Errors are errno values, 0 is success.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "protocol/expected.h"
#include "protocol/gid.h"
#include "protocol/hostif/control_message.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::abi {

// The number in an enumeration's place in a program's structure: it may be none of its values, and
// to load it as one would be undefined.
template <typename Enum>
uint32_t number_in(const Enum& given) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number = 0;
  std::memcpy(&number, &given, sizeof(number));
  return number;
}

// ---- addresses

Gid to_gid(const ibv_gid& gid);
ibv_gid from_gid(const Gid& gid);
// The group that a GID names, as an IPv4 address; nothing if it names none. IPv4-mapped GIDs of
// 224.0.0.0/4 (RoCEv2's way) and ff0e::ffff:a.b.c.d (RoCEv1's) are that address. All others that
// start with ff get one in 239.0.0.0/8, made of a hash of the GID: the same everywhere, and
// another GID's by accident only.
std::optional<Ipv4Address> group_from_gid(const ibv_gid& gid);
// The service of a queue pair type; nothing for types that there are none of here.
std::optional<QpType> qp_type(const ibv_qp_type& type);
// Who knows by which numbers a NIC names hosts (protocol/gid.h): an open device.
class HostNumbers {
 public:
  virtual ~HostNumbers() = default;
  // An error is an errno value.
  virtual Expected<Ipv4Address, int> number_of(const Gid& host) = 0;
};

// The host to which an address vector leads, seen from a NIC; nothing when it names none that is
// reachable (no GRH, as RoCE demands one). A NIC that has a LID, made of its address, takes a LID
// for the address in its own /16 network.
std::optional<Gid> destination_of(const ibv_ah_attr& av, const DeviceInfo& device);

// Converts the path of an address handle, to a host or a group; QPN and Q_Key come with each work
// request. Returns EINVAL for a port or GID index that does not exist, a host that is unreachable,
// or reachable from no address of that index (IPv4 from IPv6, or a GID that nothing can leave
// from).
int to_ud_address(const ibv_ah_attr& av, const DeviceInfo& device, HostNumbers& numbers,
                  driver::UdAddress& out);
// Finds the way back to where a datagram came from, its sender also if it came through a group:
// `grh` is the receive's first 40 bytes. Returns EINVAL if there is none, or it was not for us.
int to_return_path(const ibv_wc& wc, const ibv_grh& grh, uint8_t port, const DeviceInfo& device,
                   ibv_ah_attr& out);

// ---- MTUs

// The bytes of an MTU; 0 for a value outside the enum.
uint32_t mtu_bytes_from_enum(const ibv_mtu& mtu);
// The largest MTU that is not above `bytes`.
ibv_mtu mtu_enum_from_bytes(uint32_t bytes);

// ---- work requests and completions

// Room for the scatter-gather list of one request on its way to the driver.
using SgeBuffer = std::array<Sge, kMaxSge>;

// Converts a work request; `request.sges` points into `sges`. Returns EINVAL for an unknown opcode,
// too many SGEs, or inline data where there is none to send.
int to_send_request(const ibv_send_wr& wr, SgeBuffer& sges, driver::SendRequest& request);
int to_recv_request(const ibv_recv_wr& wr, SgeBuffer& sges, driver::RecvRequest& request);
// A RoCEv2 datagram's completion says in its service level which network header came with it
// (Annex A17.4.5.1), as mlx5 fills it: UDP is bit 3, IPv4 is 2 in the low bits, IPv6 is 1. Only
// datagrams have a GRH.
inline constexpr uint8_t kServiceLevelUdpIpv4 = 8 | 2, kServiceLevelUdpIpv6 = 8 | 1;
inline uint8_t service_level_of(const driver::Completion& completion) {
  if ((completion.flags & driver::kWcGrh) == 0) return 0;
  return (completion.flags & driver::kWcIpv6) != 0 ? kServiceLevelUdpIpv6 : kServiceLevelUdpIpv4;
}
void to_wc(const driver::Completion& completion, ibv_wc& wc);

// ---- queue pairs

driver::QpCaps to_qp_caps(const ibv_qp_cap& cap);
ibv_qp_cap from_qp_caps(const driver::QpCaps& caps);
// Converts attributes; returns EINVAL for an enum out of range, a port or GID index that does not
// exist, an unreachable address, a path MTU above the device's.
int to_qp_attr(const ibv_qp_attr& attr, uint32_t mask, const DeviceInfo& device,
               HostNumbers& numbers, driver::QpAttr& out);
void from_qp_attr(const driver::QpAttr& attr, const driver::QpCaps& caps, ibv_qp_attr& out);

// ---- memory

// Keep the flags that matter to the NIC, relaxed ordering among them; hints, other optional ones
// (rdma-core: bits 20 to 29) and ZERO_BASED, which is the caller's business, are taken off. Return
// EINVAL for unknown flags. The rights to FLUSH, an operation that the device does not have, are
// EOPNOTSUPP for a region and taken off for a queue pair, as with adapters without it.
int to_region_access(unsigned int access, uint32_t& out);
int to_qp_access(unsigned int access, uint32_t& out);

}  // namespace hostnic::abi
