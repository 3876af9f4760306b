// SPDX-License-Identifier: BSD-3-Clause
// InfiniBand communication management's messages (InfiniBand 12.6, 12.11; the IP header of Annex
// A11), as values in host byte order, and their conversion from and to the 256 bytes of a MAD.
// Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "protocol/gid.h"
#include "protocol/types.h"

namespace hostnic::cm {

inline constexpr size_t kMadBytes = 256;
// The queue pair that management datagrams go to and come from, and the Q_Key that they have.
inline constexpr uint32_t kManagementQpn = 1;
inline constexpr uint32_t kManagementQkey = 0x80010000;

using MadBytes = std::array<std::byte, kMadBytes>;
template <size_t Bytes>
using PrivateData = std::array<std::byte, Bytes>;

inline constexpr size_t kReqPrivateBytes = 92;
inline constexpr size_t kRepPrivateBytes = 196;
inline constexpr size_t kRtuPrivateBytes = 224;
inline constexpr size_t kRejPrivateBytes = 148;
inline constexpr size_t kRejInfoBytes = 72;
inline constexpr size_t kMraPrivateBytes = 222;
inline constexpr size_t kDreqPrivateBytes = 220;
inline constexpr size_t kDrepPrivateBytes = 224;
inline constexpr size_t kSidrReqPrivateBytes = 216;
inline constexpr size_t kSidrRepPrivateBytes = 136;
inline constexpr size_t kSidrRepInfoBytes = 72;

// The protocol's times: 4.096 us * 2^exponent, exponent of 5 bits.
constexpr TimeNs time_ns(uint32_t exponent) { return TimeNs{4096} << (exponent & 31); }

enum class RejectReason : uint16_t {
  kNoQp = 1,
  kNoResources = 3,
  kTimeout = 4,
  kInvalidCommunicationId = 6,
  kInvalidServiceId = 8,
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kConsumerDefined = 28,
};

// The message that an MRA or REJ is about.
enum class Concerned : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// One of the two paths in a REQ.
struct Path {
  uint16_t local_lid = 0xffff, remote_lid = 0xffff;  // RoCE has none
  Gid local_gid{}, remote_gid{};
  uint32_t flow_label = 0;  // 20 bits
  uint8_t packet_rate = 0;  // 6 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  uint8_t local_ack_timeout = 0;  // 5 bits
  bool operator==(const Path&) const = default;
};

enum class ServiceType : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };

struct Req {
  uint32_t local_id = 0;
  uint64_t service_id = 0;
  uint64_t local_guid = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint32_t local_eecn = 0, remote_eecn = 0;
  uint8_t remote_response_timeout = 0;  // 5 bits
  ServiceType transport = ServiceType::kRc;
  bool flow_control = false;
  uint32_t starting_psn = 0;
  uint8_t local_response_timeout = 0;  // 5 bits
  uint8_t retry_count = 0;             // 3 bits
  uint16_t pkey = 0xffff;
  uint8_t path_mtu = 0;  // enum ibv_mtu, 4 bits
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  uint8_t extended_transport = 0;  // 3 bits
  Path primary;
  Path alternate{.local_lid = 0, .remote_lid = 0, .hop_limit = 0};
  PrivateData<kReqPrivateBytes> private_data{};
  bool operator==(const Req&) const = default;
};

struct Rep {
  uint32_t local_id = 0, remote_id = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;
  uint32_t eecn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t target_ack_delay = 0;   // 5 bits
  uint8_t failover_accepted = 0;  // 2 bits
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  bool srq = false;
  uint64_t local_guid = 0;
  PrivateData<kRepPrivateBytes> private_data{};
  bool operator==(const Rep&) const = default;
};

struct Rtu {
  uint32_t local_id = 0, remote_id = 0;
  PrivateData<kRtuPrivateBytes> private_data{};
  bool operator==(const Rtu&) const = default;
};

struct Rej {
  uint32_t local_id = 0, remote_id = 0;
  Concerned concerned = Concerned::kReq;
  uint8_t info_bytes = 0;  // 7 bits; may say more than there is
  uint16_t reason = 0;
  PrivateData<kRejInfoBytes> info{};
  PrivateData<kRejPrivateBytes> private_data{};
  bool operator==(const Rej&) const = default;
};

struct Mra {
  uint32_t local_id = 0, remote_id = 0;
  Concerned concerned = Concerned::kReq;
  uint8_t service_timeout = 0;  // 5 bits
  PrivateData<kMraPrivateBytes> private_data{};
  bool operator==(const Mra&) const = default;
};

struct Dreq {
  uint32_t local_id = 0, remote_id = 0;
  uint32_t remote_qpn = 0;
  PrivateData<kDreqPrivateBytes> private_data{};
  bool operator==(const Dreq&) const = default;
};

struct Drep {
  uint32_t local_id = 0, remote_id = 0;
  PrivateData<kDrepPrivateBytes> private_data{};
  bool operator==(const Drep&) const = default;
};

struct SidrReq {
  uint32_t request_id = 0;
  uint16_t pkey = 0xffff;
  uint64_t service_id = 0;
  PrivateData<kSidrReqPrivateBytes> private_data{};
  bool operator==(const SidrReq&) const = default;
};

enum class SidrStatus : uint8_t { kSuccess = 0, kUnsupported = 1, kReject = 2, kNoQp = 3 };

struct SidrRep {
  uint32_t request_id = 0;
  uint8_t status = 0;
  uint8_t info_bytes = 0;
  uint32_t qpn = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  PrivateData<kSidrRepInfoBytes> info{};
  PrivateData<kSidrRepPrivateBytes> private_data{};
  bool operator==(const SidrRep&) const = default;
};

using Message = std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep>;

struct Mad {
  uint64_t transaction_id = 0;
  Message message;
  bool operator==(const Mad&) const = default;
};

// Parses a datagram; nothing for other classes, methods and attributes. Fields that mean nothing
// are not looked at.
std::optional<Mad> parse(std::span<const std::byte, kMadBytes> bytes);
// Builds a datagram, with reserved fields 0. Values that have more bits than their field are cut.
MadBytes build(const Mad& mad);

// ---- the IP addressing of RDMA connections: the first bytes of a REQ's and SIDR_REQ's private
// data

inline constexpr size_t kIpHeaderBytes = 36;

struct IpHeader {
  uint8_t ip_version = 4;
  uint16_t source_port = 0;
  // The ends, 16 bytes each; an IPv4 address is the last four of them, the others are 0.
  Gid source{}, destination{};
  bool operator==(const IpHeader&) const = default;
};

IpHeader make_ip_header(const Gid& source, uint16_t source_port, const Gid& destination);
// Parses the header; nothing for a version that is not known.
std::optional<IpHeader> parse_ip_header(std::span<const std::byte, kIpHeaderBytes> bytes);
void emit(const IpHeader& header, std::span<std::byte, kIpHeaderBytes> out);

// One of the header's ends, as the rest of the program has addresses: IPv4-mapped.
Gid address_of(const IpHeader& header, const Gid& end);

// The service id 0x0000000001PPxxxx: PP is the second byte of the port space (0x06 TCP, 0x11 UDP),
// xxxx the port.
constexpr uint64_t service_id(uint16_t port_space, uint16_t port) {
  return uint64_t{port_space} << 16 | port;
}

}  // namespace hostnic::cm
