// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/convert.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "protocol/hostif/device_facts.h"
#include "protocol/store_forwarding.h"
#include "protocol/wire/ipv4.h"
#include "protocol/wire/ipv6.h"
#include "protocol/wire/multicast.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

using driver::AsyncEvent;
using driver::WcOpcode;
using driver::WcStatus;

// The driver's numbers are libibverbs', so that they can be cast.
template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<uint64_t>(ours) == static_cast<uint64_t>(theirs);
}
static_assert(same(WcStatus::kSuccess, IBV_WC_SUCCESS));
static_assert(same(WcStatus::kLocLenErr, IBV_WC_LOC_LEN_ERR));
static_assert(same(WcStatus::kLocQpOpErr, IBV_WC_LOC_QP_OP_ERR));
static_assert(same(WcStatus::kLocProtErr, IBV_WC_LOC_PROT_ERR));
static_assert(same(WcStatus::kWrFlushErr, IBV_WC_WR_FLUSH_ERR));
static_assert(same(WcStatus::kMwBindErr, IBV_WC_MW_BIND_ERR));
static_assert(same(WcStatus::kBadRespErr, IBV_WC_BAD_RESP_ERR));
static_assert(same(WcStatus::kLocAccessErr, IBV_WC_LOC_ACCESS_ERR));
static_assert(same(WcStatus::kRemInvReqErr, IBV_WC_REM_INV_REQ_ERR));
static_assert(same(WcStatus::kRemAccessErr, IBV_WC_REM_ACCESS_ERR));
static_assert(same(WcStatus::kRemOpErr, IBV_WC_REM_OP_ERR));
static_assert(same(WcStatus::kRetryExcErr, IBV_WC_RETRY_EXC_ERR));
static_assert(same(WcStatus::kRnrRetryExcErr, IBV_WC_RNR_RETRY_EXC_ERR));
static_assert(same(WcStatus::kGeneralErr, IBV_WC_GENERAL_ERR));
static_assert(same(WcOpcode::kSend, IBV_WC_SEND));
static_assert(same(WcOpcode::kRdmaWrite, IBV_WC_RDMA_WRITE));
static_assert(same(WcOpcode::kRdmaRead, IBV_WC_RDMA_READ));
static_assert(same(WcOpcode::kCompSwap, IBV_WC_COMP_SWAP));
static_assert(same(WcOpcode::kFetchAdd, IBV_WC_FETCH_ADD));
static_assert(same(WcOpcode::kBindMw, IBV_WC_BIND_MW));
static_assert(same(WcOpcode::kLocalInv, IBV_WC_LOCAL_INV));
static_assert(same(WcOpcode::kRecv, IBV_WC_RECV));
static_assert(same(WcOpcode::kRecvRdmaWithImm, IBV_WC_RECV_RDMA_WITH_IMM));
static_assert(same(driver::kWcWithImm, IBV_WC_WITH_IMM));
static_assert(same(driver::kWcWithInv, IBV_WC_WITH_INV));
static_assert(same(QpType::kRc, IBV_QPT_RC) && same(QpType::kUc, IBV_QPT_UC));
static_assert(same(QpType::kUd, IBV_QPT_UD) && sizeof(ibv_grh) == kGrhBytes);
static_assert(same(QpState::kReset, IBV_QPS_RESET) && same(QpState::kInit, IBV_QPS_INIT));
static_assert(same(QpState::kRtr, IBV_QPS_RTR) && same(QpState::kRts, IBV_QPS_RTS));
static_assert(same(QpState::kSqd, IBV_QPS_SQD) && same(QpState::kSqe, IBV_QPS_SQE));
static_assert(same(QpState::kErr, IBV_QPS_ERR));
static_assert(same(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE));
static_assert(same(kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE));
static_assert(same(kAccessRemoteRead, IBV_ACCESS_REMOTE_READ));
static_assert(same(kAccessRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC));
static_assert(same(kAccessMwBind, IBV_ACCESS_MW_BIND));
static_assert(same(kAccessZeroBased, IBV_ACCESS_ZERO_BASED));
static_assert(same(WindowType::k1, IBV_MW_TYPE_1) && same(WindowType::k2, IBV_MW_TYPE_2));
static_assert(same(kAccessRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING));
static_assert(same(driver::kQpState, IBV_QP_STATE));
static_assert(same(driver::kQpCurState, IBV_QP_CUR_STATE));
static_assert(same(driver::kQpEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY));
static_assert(same(driver::kQpAccessFlags, IBV_QP_ACCESS_FLAGS));
static_assert(same(driver::kQpPkeyIndex, IBV_QP_PKEY_INDEX));
static_assert(same(driver::kQpPort, IBV_QP_PORT) && same(driver::kQpQkey, IBV_QP_QKEY));
static_assert(same(driver::kQpAv, IBV_QP_AV) && same(driver::kQpPathMtu, IBV_QP_PATH_MTU));
static_assert(same(driver::kQpTimeout, IBV_QP_TIMEOUT));
static_assert(same(driver::kQpRetryCnt, IBV_QP_RETRY_CNT));
static_assert(same(driver::kQpRnrRetry, IBV_QP_RNR_RETRY));
static_assert(same(driver::kQpRqPsn, IBV_QP_RQ_PSN) && same(driver::kQpSqPsn, IBV_QP_SQ_PSN));
static_assert(same(driver::kQpMaxQpRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC));
static_assert(same(driver::kQpAltPath, IBV_QP_ALT_PATH));
static_assert(same(driver::kQpMinRnrTimer, IBV_QP_MIN_RNR_TIMER));
static_assert(same(driver::kQpMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC));
static_assert(same(driver::kQpPathMigState, IBV_QP_PATH_MIG_STATE));
static_assert(same(driver::kQpCap, IBV_QP_CAP) && same(driver::kQpDestQpn, IBV_QP_DEST_QPN));
static_assert(same(driver::kQpRateLimit, IBV_QP_RATE_LIMIT));
static_assert(same(AsyncEvent::kCqErr, IBV_EVENT_CQ_ERR));
static_assert(same(AsyncEvent::kQpFatal, IBV_EVENT_QP_FATAL));
static_assert(same(AsyncEvent::kQpReqErr, IBV_EVENT_QP_REQ_ERR));
static_assert(same(AsyncEvent::kQpAccessErr, IBV_EVENT_QP_ACCESS_ERR));
static_assert(same(AsyncEvent::kCommEst, IBV_EVENT_COMM_EST));
static_assert(same(AsyncEvent::kSqDrained, IBV_EVENT_SQ_DRAINED));
static_assert(same(AsyncEvent::kDeviceFatal, IBV_EVENT_DEVICE_FATAL));
static_assert(same(AsyncEvent::kPortActive, IBV_EVENT_PORT_ACTIVE));
static_assert(same(AsyncEvent::kPortErr, IBV_EVENT_PORT_ERR));
static_assert(same(AsyncEvent::kSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED));
static_assert(same(AsyncEvent::kQpLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED));
static_assert(same(AsyncEvent::kGidChange, IBV_EVENT_GID_CHANGE));

int copy_sges(const ibv_sge* list, int count, SgeBuffer& sges) {
  if (count < 0 || static_cast<uint32_t>(count) > kMaxSge)
    return refuse({Reason::kSges, static_cast<uint32_t>(count), kMaxSge});
  for (int i = 0; i < count; ++i)
    sges[i] = {field(list[i].addr), field(list[i].length), field(list[i].lkey)};
  return 0;
}

std::optional<SendOp> send_op(const ibv_wr_opcode& opcode) {
  switch (number_in(opcode)) {
    case IBV_WR_RDMA_WRITE:
      return SendOp::kWrite;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return SendOp::kWriteImm;
    case IBV_WR_SEND:
      return SendOp::kSend;
    case IBV_WR_SEND_WITH_IMM:
      return SendOp::kSendImm;
    case IBV_WR_SEND_WITH_INV:
      return SendOp::kSendInv;
    case IBV_WR_BIND_MW:
      return SendOp::kBindWindow;
    case IBV_WR_LOCAL_INV:
      return SendOp::kLocalInvalidate;
    case IBV_WR_RDMA_READ:
      return SendOp::kRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return SendOp::kCompareSwap;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return SendOp::kFetchAdd;
    default:
      return std::nullopt;
  }
}

bool is_atomic(SendOp op) { return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd; }

static_assert(IBV_QPS_RESET == 0 && IBV_MIG_MIGRATED == 0);
bool is_state(const ibv_qp_state& state) { return number_in(state) <= IBV_QPS_ERR; }
bool is_migration_state(const ibv_mig_state& state) { return number_in(state) <= IBV_MIG_ARMED; }

constexpr uint8_t kHopLimit = 64;

int to_address(const ibv_ah_attr& av, const DeviceInfo& device, HostNumbers& numbers,
               driver::QpAttr& out) {
  driver::UdAddress path;
  if (int error = to_ud_address(av, device, numbers, path)) return error;
  if (wire::is_multicast(path.ip)) return refuse({Reason::kGroup});
  out.dest_ip = path.ip;
  out.dest_gid = *destination_of(av, device);
  out.source_index = path.source_index;
  out.is_global = av.is_global != 0;
  out.service_level = av.sl;
  out.dlid = av.dlid;
  out.src_path_bits = av.src_path_bits;
  out.static_rate = av.static_rate;
  if (av.is_global) {
    out.sgid_index = av.grh.sgid_index;
    out.flow_label = av.grh.flow_label;
    out.traffic_class = path.traffic_class;
    out.hop_limit = path.hop_limit;
    out.hop_limit_as_set = av.grh.hop_limit;
  }
  return 0;
}

}  // namespace

Gid to_gid(const ibv_gid& gid) {
  Gid converted;
  memcpy(converted.data(), gid.raw, converted.size());
  return converted;
}

ibv_gid from_gid(const Gid& gid) {
  ibv_gid converted;
  memcpy(converted.raw, gid.data(), gid.size());
  return converted;
}

std::optional<Ipv4Address> group_from_gid(const ibv_gid& gid) {
  constexpr uint8_t kEncoded[12] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  ibv_gid mapped = gid;
  if (memcmp(gid.raw, kEncoded, sizeof kEncoded) == 0) mapped.raw[0] = mapped.raw[1] = 0;
  if (const auto ip = ipv4_of(to_gid(mapped)); ip && wire::is_multicast(*ip)) return ip;
  if (gid.raw[0] != 0xff) return std::nullopt;
  // The hash is FNV-1a, folded to 24 bits.
  uint32_t hash = 0x811c9dc5;
  for (const uint8_t byte : gid.raw) hash = (hash ^ byte) * 0x01000193;
  constexpr uint32_t kOrganizationLocal = 239u << 24;  // RFC 2365
  return Ipv4Address{kOrganizationLocal | ((hash >> 24 ^ hash) & 0xffffff)};
}

std::optional<Gid> destination_of(const ibv_ah_attr& av, const DeviceInfo& device) {
  if (av.is_global) {
    const Gid gid = to_gid(av.grh.dgid);
    // Numbers that stand for IPv6 addresses are no IPv4 addresses that a host can have.
    const auto ip = ipv4_of(gid);
    const bool is_host = ip ? !is_stand_in(*ip) : is_ipv6_host(gid);
    return is_host ? std::optional(gid) : std::nullopt;
  }
  if (device.lid == 0 || av.dlid == 0) return std::nullopt;
  return gid_of(Ipv4Address{(device.ip & 0xffff0000u) | av.dlid});
}

std::optional<QpType> qp_type(const ibv_qp_type& type) {
  const uint32_t number = number_in(type);
  if (number != IBV_QPT_RC && number != IBV_QPT_UC && number != IBV_QPT_UD) return std::nullopt;
  return static_cast<QpType>(number);
}

int to_ud_address(const ibv_ah_attr& av, const DeviceInfo& device, HostNumbers& numbers,
                  driver::UdAddress& out) {
  if (av.port_num != kPortNumber) return refuse({Reason::kPort, av.port_num});
  const GidEntry* const source = av.is_global ? gid_entry_at(device, av.grh.sgid_index) : nullptr;
  if (av.is_global && (source == nullptr || source->usable == 0))
    return refuse({Reason::kSgidIndex, av.grh.sgid_index, device.gid_table_length});
  if (const auto group = av.is_global ? group_from_gid(av.grh.dgid) : std::nullopt) {
    out.ip = *group;  // which has an address of either family
  } else {
    const std::optional<Gid> host = destination_of(av, device);
    if (!host) return refuse({av.is_global ? Reason::kNoHost : Reason::kNoGrh});
    if (source != nullptr && ipv4_of(*host).has_value() != ipv4_of(gid_in(source->gid)).has_value())
      return refuse({Reason::kGidFamily, av.grh.sgid_index});
    const auto number = numbers.number_of(*host);
    if (!number) return number.error();
    out.ip = *number;
  }
  if (raw(out.ip) == 0) return refuse({Reason::kNoHost});
  if (source == nullptr) return 0;
  out.source_index = source->source_index;
  out.traffic_class = av.grh.traffic_class;
  // Hop limits 0 and 1 are what programs leave there when they never route; a router would drop
  // both.
  out.hop_limit = av.grh.hop_limit > 1 ? av.grh.hop_limit : kHopLimit;
  return 0;
}

namespace {

// What counts of the network header before a datagram.
struct NetworkHeader {
  Gid source{}, destination{};
  uint8_t traffic_class = 0;
};

// Parses the 40 bytes before a datagram: an IPv6 header, or an IPv4 header as their last part.
std::optional<NetworkHeader> parse_network_header(const ibv_grh& grh) {
  std::array<std::byte, kGrhBytes> bytes;
  memcpy(bytes.data(), &grh, bytes.size());
  const std::byte* const ipv4 = bytes.data() + kGrhBytes - wire::kIpv4Bytes;
  if (wire::load_u8(ipv4) == wire::kIpv4VersionIhl && wire::load_be32(bytes.data()) == 0) {
    const wire::Ipv4View view(std::span<const std::byte, wire::kIpv4Bytes>(ipv4, wire::kIpv4Bytes));
    return NetworkHeader{gid_of(view.src()), gid_of(view.dst()), view.traffic_class()};
  }
  const uint32_t first_word = wire::load_be32(bytes.data());
  if (first_word >> 28 != 6) return std::nullopt;
  NetworkHeader header{.traffic_class = static_cast<uint8_t>(first_word >> 20)};
  std::copy_n(bytes.begin() + wire::ipv6_offset::kSrc, header.source.size(), header.source.begin());
  std::copy_n(bytes.begin() + wire::ipv6_offset::kDst, header.destination.size(),
              header.destination.begin());
  return header;
}

// The index of the GID that answers to a datagram leave from: the one that it was for, or for one
// to a group the first of the sender's family.
std::optional<uint8_t> answering_gid(const DeviceInfo& device, const NetworkHeader& header) {
  const bool to_group = group_from_gid(from_gid(header.destination)).has_value();
  const bool ipv4 = ipv4_of(header.source).has_value();
  std::optional<uint8_t> found;
  for (uint32_t i = 0; i < device.gid_count; ++i) {
    const GidEntry* const entry = gid_entry_at(device, i);
    if (entry == nullptr) continue;
    const Gid gid = gid_in(entry->gid);
    const bool fits = to_group ? ipv4_of(gid).has_value() == ipv4 : gid == header.destination;
    if (!fits || entry->usable == 0) continue;
    if (!found || entry->type == GidType::kRoceV2) found = static_cast<uint8_t>(i);
    if (entry->type == GidType::kRoceV2) break;
  }
  return found;
}

}  // namespace

int to_return_path(const ibv_wc& wc, const ibv_grh& grh, uint8_t port, const DeviceInfo& device,
                   ibv_ah_attr& out) {
  if (port != kPortNumber || (wc.wc_flags & IBV_WC_GRH) == 0) return EINVAL;
  const auto header = parse_network_header(grh);
  if (!header) return EINVAL;
  const auto index = answering_gid(device, *header);
  if (!index) return EINVAL;
  out = {};
  out.port_num = port;
  out.dlid = wc.slid;
  out.sl = wc.sl;
  out.is_global = 1;
  out.grh.dgid = from_gid(header->source);
  out.grh.sgid_index = *index;
  out.grh.traffic_class = header->traffic_class;
  out.grh.hop_limit = kHopLimit;
  return 0;
}

uint32_t mtu_bytes_from_enum(const ibv_mtu& mtu) {
  const uint32_t number = number_in(mtu);
  return number >= IBV_MTU_256 && number <= IBV_MTU_4096 ? 128u << number : 0;
}

ibv_mtu mtu_enum_from_bytes(uint32_t bytes) {
  ibv_mtu mtu = IBV_MTU_4096;
  while (mtu > IBV_MTU_256 && mtu_bytes_from_enum(mtu) > bytes) mtu = static_cast<ibv_mtu>(mtu - 1);
  return mtu;
}

int to_send_request(const ibv_send_wr& wr, SgeBuffer& sges, driver::SendRequest& request) {
  const std::optional<SendOp> op = send_op(wr.opcode);
  if (!op) return refuse({Reason::kOperation, number_in(wr.opcode)});
  const bool local = *op == SendOp::kBindWindow || *op == SendOp::kLocalInvalidate;
  if (!local) {
    if (int error = copy_sges(wr.sg_list, wr.num_sge, sges)) return error;
    request.sges = {sges.data(), static_cast<size_t>(wr.num_sge)};
  }
  request.wr_id = wr.wr_id;
  request.op = *op;
  request.signalled = wr.send_flags & IBV_SEND_SIGNALED;
  request.solicited = wr.send_flags & IBV_SEND_SOLICITED;
  request.fence = wr.send_flags & IBV_SEND_FENCE;
  request.inline_data = !local && (wr.send_flags & IBV_SEND_INLINE) != 0;
  request.imm_data = wr.imm_data;  // or the key to invalidate: a union
  if (*op == SendOp::kLocalInvalidate) {
    request.rkey = wr.invalidate_rkey;
  } else if (is_atomic(*op)) {
    request.remote_va = wr.wr.atomic.remote_addr;
    request.rkey = wr.wr.atomic.rkey;
    request.compare_add = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
  } else if (*op == SendOp::kWrite || *op == SendOp::kWriteImm || *op == SendOp::kRead) {
    request.remote_va = wr.wr.rdma.remote_addr;
    request.rkey = wr.wr.rdma.rkey;
  }
  const bool sends_no_data = *op == SendOp::kRead || is_atomic(*op);
  return request.inline_data && sends_no_data ? refuse({Reason::kInlineRead}) : 0;
}

int to_recv_request(const ibv_recv_wr& wr, SgeBuffer& sges, driver::RecvRequest& request) {
  if (int error = copy_sges(wr.sg_list, wr.num_sge, sges)) return error;
  request.wr_id = wr.wr_id;
  request.sges = {sges.data(), static_cast<size_t>(wr.num_sge)};
  return 0;
}

void to_wc(const driver::Completion& completion, ibv_wc& wc) {
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc.vendor_err = static_cast<uint32_t>(completion.vendor);
  wc.byte_len = completion.byte_len;
  wc.imm_data = completion.imm_data;
  wc.qp_num = completion.qpn;
  wc.src_qp = completion.src_qpn;
  wc.wc_flags = completion.flags & ~driver::kWcIpv6;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = service_level_of(completion);
  wc.dlid_path_bits = 0;
}

driver::QpCaps to_qp_caps(const ibv_qp_cap& cap) {
  return {.max_send_wr = cap.max_send_wr,
          .max_recv_wr = cap.max_recv_wr,
          .max_send_sge = cap.max_send_sge,
          .max_recv_sge = cap.max_recv_sge,
          .max_inline_bytes = cap.max_inline_data};
}

ibv_qp_cap from_qp_caps(const driver::QpCaps& caps) {
  return {.max_send_wr = caps.max_send_wr,
          .max_recv_wr = caps.max_recv_wr,
          .max_send_sge = caps.max_send_sge,
          .max_recv_sge = caps.max_recv_sge,
          .max_inline_data = caps.max_inline_bytes};
}

int to_qp_attr(const ibv_qp_attr& attr, uint32_t mask, const DeviceInfo& device,
               HostNumbers& numbers, driver::QpAttr& out) {
  if (mask & IBV_QP_STATE) {
    if (!is_state(attr.qp_state)) return refuse({Reason::kUnknownState, number_in(attr.qp_state)});
    out.state = static_cast<QpState>(attr.qp_state);
  }
  if (mask & IBV_QP_CUR_STATE) {
    if (!is_state(attr.cur_qp_state))
      return refuse({Reason::kUnknownState, number_in(attr.cur_qp_state)});
    out.cur_state = static_cast<QpState>(attr.cur_qp_state);
  }
  if ((mask & IBV_QP_PORT) && attr.port_num != kPortNumber)
    return refuse({Reason::kPort, attr.port_num});
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
    return refuse({Reason::kPkeyIndex, attr.pkey_index});
  if (mask & IBV_QP_PATH_MTU) {
    out.path_mtu_bytes = mtu_bytes_from_enum(attr.path_mtu);
    if (out.path_mtu_bytes == 0 || out.path_mtu_bytes > device.mtu_bytes)
      return refuse({Reason::kPathMtu, out.path_mtu_bytes, device.mtu_bytes});
  }
  if (mask & IBV_QP_AV) {
    if (int error = to_address(attr.ah_attr, device, numbers, out)) return error;
  }
  if (mask & IBV_QP_ACCESS_FLAGS) {
    if (int error = to_qp_access(attr.qp_access_flags, out.access)) return error;
  }
  if (mask & IBV_QP_PATH_MIG_STATE) {
    if (!is_migration_state(attr.path_mig_state))
      return refuse({.reason = Reason::kAttribute, .text = "path_mig_state is none"});
    out.path_mig_state = static_cast<uint8_t>(attr.path_mig_state);
  }
  out.port = kPortNumber;
  out.en_sqd_async_notify = attr.en_sqd_async_notify != 0;
  out.rate_limit = attr.rate_limit;
  out.dest_qpn = attr.dest_qp_num;
  out.qkey = attr.qkey;
  out.rq_psn = attr.rq_psn;
  out.sq_psn = attr.sq_psn;
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.timeout = attr.timeout;
  out.retry_cnt = attr.retry_cnt;
  out.rnr_retry = attr.rnr_retry;
  return 0;
}

void from_qp_attr(const driver::QpAttr& attr, const driver::QpCaps& caps, ibv_qp_attr& out) {
  out = {};
  out.qp_state = static_cast<ibv_qp_state>(attr.state);
  out.cur_qp_state = out.qp_state;
  out.sq_draining = attr.sq_draining;
  out.path_mtu = attr.path_mtu_bytes ? mtu_enum_from_bytes(attr.path_mtu_bytes) : ibv_mtu{};
  out.path_mig_state = static_cast<ibv_mig_state>(attr.path_mig_state);
  out.en_sqd_async_notify = attr.en_sqd_async_notify;
  out.rate_limit = attr.rate_limit;
  out.rq_psn = attr.rq_psn;
  out.sq_psn = attr.sq_psn;
  out.dest_qp_num = attr.dest_qpn;
  out.qkey = attr.qkey;
  out.qp_access_flags = attr.access;
  out.cap = from_qp_caps(caps);
  out.pkey_index = attr.pkey_index;
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.port_num = attr.port;
  out.timeout = attr.timeout;
  out.retry_cnt = attr.retry_cnt;
  out.rnr_retry = attr.rnr_retry;
  if (raw(attr.dest_ip) == 0) return;  // no path yet
  out.ah_attr.port_num = attr.port;
  out.ah_attr.sl = attr.service_level;
  out.ah_attr.is_global = attr.is_global;
  out.ah_attr.dlid = attr.dlid;
  out.ah_attr.src_path_bits = attr.src_path_bits;
  out.ah_attr.static_rate = attr.static_rate;
  if (!attr.is_global) return;
  out.ah_attr.grh.dgid = from_gid(attr.dest_gid);
  out.ah_attr.grh.sgid_index = attr.sgid_index;
  out.ah_attr.grh.flow_label = attr.flow_label;
  out.ah_attr.grh.traffic_class = attr.traffic_class;
  out.ah_attr.grh.hop_limit = attr.hop_limit_as_set;
}

namespace {

// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which older headers don't have.
constexpr unsigned int kFlushAccess = 1u << 8 | 1u << 9;

// Keeps the flags that matter to the NIC. Returns EINVAL for unknown flags.
int to_access(unsigned int access, uint32_t& out) {
  constexpr unsigned int kUsed = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                 kAccessRemoteAtomic | kAccessMwBind | kAccessOnDemand |
                                 kAccessRelaxedOrdering;
  // These are no rights: huge pages are a hint, and where a region's addresses start is mr.cc's
  // business.
  constexpr unsigned int kHarmless =
      IBV_ACCESS_HUGETLB | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
  if (access & ~(kUsed | kHarmless)) return refuse({Reason::kAccessFlags, access});
  out = access & kUsed;
  return 0;
}

}  // namespace

int to_region_access(unsigned int access, uint32_t& out) {
  // The device has no FLUSH operation: the kernel's answer for regions of such devices.
  if (access & kFlushAccess) return refuse({Reason::kFlushFlags, access});
  return to_access(access, out);
}

int to_qp_access(unsigned int access, uint32_t& out) {
  return to_access(access & ~kFlushAccess, out);
}

}  // namespace hostnic::abi
