// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/cm/mad.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "protocol/wire/bytes.h"

namespace hostnic::cm {
namespace {

using namespace wire;

// The fields of the common MAD header (InfiniBand 13.4.3).
constexpr uint8_t kBaseVersion = 1, kCmClass = 7, kCmClassVersion = 2, kMethodSend = 3;
constexpr size_t kHeaderBytes = 24;
constexpr size_t kTransactionOffset = 8, kAttributeOffset = 16;
constexpr size_t kBodyBytes = kMadBytes - kHeaderBytes;

enum Attribute : uint16_t {
  kAttributeReq = 0x10,
  kAttributeMra,
  kAttributeRej,
  kAttributeRep,
  kAttributeRtu,
  kAttributeDreq,
  kAttributeDrep,
  kAttributeSidrReq,
  kAttributeSidrRep,
};

// A message has one description of its layout, its walk_ function below: a Reader or a Writer goes
// along it. A field is `bits` bits of a big-endian integer of up to four bytes.
struct Bits {
  size_t offset;  // of the integer's first byte
  size_t bytes;
  uint32_t shift;
  uint32_t bits;
};

uint32_t load_big(const std::byte* at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | load_u8(at + i);
  return value;
}

class Reader {
 public:
  explicit Reader(const std::byte* body) : body_(body) {}
  template <typename T>
  void bits(const Bits& where, T& value) const {
    const uint32_t mask = where.bits == 32 ? UINT32_MAX : (1u << where.bits) - 1;
    value = static_cast<T>(load_big(body_ + where.offset, where.bytes) >> where.shift & mask);
  }
  void quad(size_t offset, uint64_t& value) const { value = load_be64(body_ + offset); }
  template <size_t Bytes>
  void bytes(size_t offset, std::array<std::byte, Bytes>& value) const {
    std::memcpy(value.data(), body_ + offset, Bytes);
  }

 private:
  const std::byte* body_;
};

class Writer {
 public:
  explicit Writer(std::byte* body) : body_(body) {}
  template <typename T>
  void bits(const Bits& where, const T& value) const {
    const uint32_t mask = where.bits == 32 ? UINT32_MAX : (1u << where.bits) - 1;
    const uint32_t placed = (static_cast<uint32_t>(value) & mask) << where.shift;
    for (size_t i = 0; i < where.bytes; ++i) {
      std::byte& byte = body_[where.offset + i];
      byte |= static_cast<std::byte>(placed >> 8 * (where.bytes - 1 - i));
    }
  }
  void quad(size_t offset, const uint64_t& value) const { store_be64(body_ + offset, value); }
  template <size_t Bytes>
  void bytes(size_t offset, const std::array<std::byte, Bytes>& value) const {
    std::memcpy(body_ + offset, value.data(), Bytes);
  }

 private:
  std::byte* body_;
};

constexpr Bits whole(size_t offset, size_t bytes) {
  return {offset, bytes, 0, static_cast<uint32_t>(8 * bytes)};
}
// A field of 24 bits, whose integer has the byte behind it, too.
constexpr Bits upper24(size_t offset) { return {offset, 4, 8, 24}; }
constexpr Bits part(size_t offset, uint32_t shift, uint32_t bits) {
  return {offset, 1, shift, bits};
}

// ---- layouts: InfiniBand 12.6

template <typename Io, typename P>
void walk_path(const Io& io, size_t at, P& path) {
  io.bits(whole(at, 2), path.local_lid);
  io.bits(whole(at + 2, 2), path.remote_lid);
  io.bytes(at + 4, path.local_gid);
  io.bytes(at + 20, path.remote_gid);
  io.bits({at + 36, 4, 12, 20}, path.flow_label);
  io.bits({at + 36, 4, 0, 6}, path.packet_rate);
  io.bits(whole(at + 40, 1), path.traffic_class);
  io.bits(whole(at + 41, 1), path.hop_limit);
  io.bits(part(at + 42, 4, 4), path.service_level);
  io.bits(part(at + 42, 3, 1), path.subnet_local);
  io.bits(part(at + 43, 3, 5), path.local_ack_timeout);
}

template <typename Io, typename M>
void walk_req(const Io& io, M& m) {
  io.bits(whole(0, 4), m.local_id);
  io.quad(8, m.service_id);
  io.quad(16, m.local_guid);
  io.bits(whole(28, 4), m.qkey);
  io.bits(upper24(32), m.qpn);
  io.bits(whole(35, 1), m.responder_resources);
  io.bits(upper24(36), m.local_eecn);
  io.bits(whole(39, 1), m.initiator_depth);
  io.bits(upper24(40), m.remote_eecn);
  io.bits(part(43, 3, 5), m.remote_response_timeout);
  io.bits(part(43, 1, 2), m.transport);
  io.bits(part(43, 0, 1), m.flow_control);
  io.bits(upper24(44), m.starting_psn);
  io.bits(part(47, 3, 5), m.local_response_timeout);
  io.bits(part(47, 0, 3), m.retry_count);
  io.bits(whole(48, 2), m.pkey);
  io.bits(part(50, 4, 4), m.path_mtu);
  io.bits(part(50, 3, 1), m.rdc_exists);
  io.bits(part(50, 0, 3), m.rnr_retry_count);
  io.bits(part(51, 4, 4), m.max_cm_retries);
  io.bits(part(51, 3, 1), m.srq);
  io.bits(part(51, 0, 3), m.extended_transport);
  walk_path(io, 52, m.primary);
  walk_path(io, 96, m.alternate);
  io.bytes(140, m.private_data);
}

template <typename Io, typename M>
void walk_ids(const Io& io, M& m) {
  io.bits(whole(0, 4), m.local_id);
  io.bits(whole(4, 4), m.remote_id);
}

template <typename Io, typename M>
void walk_rep(const Io& io, M& m) {
  walk_ids(io, m);
  io.bits(whole(8, 4), m.qkey);
  io.bits(upper24(12), m.qpn);
  io.bits(upper24(16), m.eecn);
  io.bits(upper24(20), m.starting_psn);
  io.bits(whole(24, 1), m.responder_resources);
  io.bits(whole(25, 1), m.initiator_depth);
  io.bits(part(26, 3, 5), m.target_ack_delay);
  io.bits(part(26, 1, 2), m.failover_accepted);
  io.bits(part(26, 0, 1), m.flow_control);
  io.bits(part(27, 5, 3), m.rnr_retry_count);
  io.bits(part(27, 4, 1), m.srq);
  io.quad(28, m.local_guid);
  io.bytes(36, m.private_data);
}

// The layout of RTU and DREP.
template <typename Io, typename M>
void walk_plain(const Io& io, M& m) {
  walk_ids(io, m);
  io.bytes(8, m.private_data);
}

template <typename Io, typename M>
void walk_rej(const Io& io, M& m) {
  walk_ids(io, m);
  io.bits(part(8, 6, 2), m.concerned);
  io.bits(part(9, 1, 7), m.info_bytes);
  io.bits(whole(10, 2), m.reason);
  io.bytes(12, m.info);
  io.bytes(84, m.private_data);
}

template <typename Io, typename M>
void walk_mra(const Io& io, M& m) {
  walk_ids(io, m);
  io.bits(part(8, 6, 2), m.concerned);
  io.bits(part(9, 3, 5), m.service_timeout);
  io.bytes(10, m.private_data);
}

template <typename Io, typename M>
void walk_dreq(const Io& io, M& m) {
  walk_ids(io, m);
  io.bits(upper24(8), m.remote_qpn);
  io.bytes(12, m.private_data);
}

template <typename Io, typename M>
void walk_sidr_req(const Io& io, M& m) {
  io.bits(whole(0, 4), m.request_id);
  io.bits(whole(4, 2), m.pkey);
  io.quad(8, m.service_id);
  io.bytes(16, m.private_data);
}

template <typename Io, typename M>
void walk_sidr_rep(const Io& io, M& m) {
  io.bits(whole(0, 4), m.request_id);
  io.bits(whole(4, 1), m.status);
  io.bits(whole(5, 1), m.info_bytes);
  io.bits(upper24(8), m.qpn);
  io.quad(12, m.service_id);
  io.bits(whole(20, 4), m.qkey);
  io.bytes(24, m.info);
  io.bytes(96, m.private_data);
}

static_assert(140 + kReqPrivateBytes == kBodyBytes && 36 + kRepPrivateBytes == kBodyBytes);
static_assert(8 + kRtuPrivateBytes == kBodyBytes && 84 + kRejPrivateBytes == kBodyBytes);
static_assert(10 + kMraPrivateBytes == kBodyBytes && 12 + kDreqPrivateBytes == kBodyBytes);
static_assert(16 + kSidrReqPrivateBytes == kBodyBytes && 96 + kSidrRepPrivateBytes == kBodyBytes);

// Chooses the message's layout.
template <typename Io>
struct Walk {
  Io io;
  template <typename M>
  void operator()(M& m) const {
    using Plain = std::remove_const_t<M>;
    if constexpr (std::is_same_v<Plain, Req>) {
      walk_req(io, m);
    } else if constexpr (std::is_same_v<Plain, Rep>) {
      walk_rep(io, m);
    } else if constexpr (std::is_same_v<Plain, Rej>) {
      walk_rej(io, m);
    } else if constexpr (std::is_same_v<Plain, Mra>) {
      walk_mra(io, m);
    } else if constexpr (std::is_same_v<Plain, Dreq>) {
      walk_dreq(io, m);
    } else if constexpr (std::is_same_v<Plain, SidrReq>) {
      walk_sidr_req(io, m);
    } else if constexpr (std::is_same_v<Plain, SidrRep>) {
      walk_sidr_rep(io, m);
    } else {
      walk_plain(io, m);
    }
  }
};

std::optional<Message> empty_message(uint16_t attribute) {
  switch (attribute) {
    case kAttributeReq:
      return Req{};
    case kAttributeMra:
      return Mra{};
    case kAttributeRej:
      return Rej{};
    case kAttributeRep:
      return Rep{};
    case kAttributeRtu:
      return Rtu{};
    case kAttributeDreq:
      return Dreq{};
    case kAttributeDrep:
      return Drep{};
    case kAttributeSidrReq:
      return SidrReq{};
    case kAttributeSidrRep:
      return SidrRep{};
    default:
      return std::nullopt;
  }
}

// The attribute of a message: the alternatives of Message are in the order of their attributes.
uint16_t attribute_of(const Message& message) {
  return static_cast<uint16_t>(kAttributeReq + message.index());
}

}  // namespace

std::optional<Mad> parse(std::span<const std::byte, kMadBytes> bytes) {
  if (load_u8(&bytes[0]) != kBaseVersion || load_u8(&bytes[1]) != kCmClass ||
      load_u8(&bytes[2]) != kCmClassVersion || load_u8(&bytes[3]) != kMethodSend)
    return std::nullopt;
  auto message = empty_message(load_be16(&bytes[kAttributeOffset]));
  if (!message) return std::nullopt;
  std::visit(Walk<Reader>{Reader(bytes.data() + kHeaderBytes)}, *message);
  return Mad{load_be64(&bytes[kTransactionOffset]), *message};
}

MadBytes build(const Mad& mad) {
  MadBytes out{};
  store_u8(&out[0], kBaseVersion);
  store_u8(&out[1], kCmClass);
  store_u8(&out[2], kCmClassVersion);
  store_u8(&out[3], kMethodSend);
  store_be64(&out[kTransactionOffset], mad.transaction_id);
  store_be16(&out[kAttributeOffset], attribute_of(mad.message));
  std::visit(Walk<Writer>{Writer(out.data() + kHeaderBytes)}, mad.message);
  return out;
}

// Makes the header: byte 0 is version 0 of the format. Byte 1 is the IP version, and 4 reserved
// bits.
IpHeader make_ip_header(const Gid& source, uint16_t source_port, const Gid& destination) {
  if (!ipv4_of(source) || !ipv4_of(destination))
    return {
        .ip_version = 6, .source_port = source_port, .source = source, .destination = destination};
  IpHeader header{.ip_version = 4, .source_port = source_port};
  store_be32(&header.source[12], raw(*ipv4_of(source)));
  store_be32(&header.destination[12], raw(*ipv4_of(destination)));
  return header;
}

std::optional<IpHeader> parse_ip_header(std::span<const std::byte, kIpHeaderBytes> bytes) {
  if (load_u8(&bytes[0]) != 0) return std::nullopt;
  IpHeader header;
  header.ip_version = load_u8(&bytes[1]) >> 4;
  if (header.ip_version != 4 && header.ip_version != 6) return std::nullopt;
  header.source_port = load_be16(&bytes[2]);
  std::copy_n(bytes.begin() + 4, 16, header.source.begin());
  std::copy_n(bytes.begin() + 20, 16, header.destination.begin());
  return header;
}

Gid address_of(const IpHeader& header, const Gid& end) {
  return header.ip_version == 4 ? gid_of(Ipv4Address{load_be32(&end[12])}) : end;
}

void emit(const IpHeader& header, std::span<std::byte, kIpHeaderBytes> out) {
  store_u8(&out[0], 0);
  store_u8(&out[1], static_cast<uint8_t>(header.ip_version << 4));
  store_be16(&out[2], header.source_port);
  std::copy(header.source.begin(), header.source.end(), out.begin() + 4);
  std::copy(header.destination.begin(), header.destination.end(), out.begin() + 20);
}

}  // namespace hostnic::cm
