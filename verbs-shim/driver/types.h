// SPDX-License-Identifier: BSD-3-Clause
// The driver half's view of verbs: values equal to libibverbs' (checked by static_asserts in abi/),
// types of our own, so that the driver compiles and is simulated without libibverbs.
#pragma once

#include <cstdint>
#include <span>

#include "protocol/gid.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/vendor_error.h"
#include "protocol/transport/mrc/retry_schedule.h"
#include "protocol/types.h"

namespace hostnic::driver {

inline constexpr uint32_t kMaxWr = kMaxQueueEntries;

enum class WcStatus : uint32_t {  // ibv_wc_status: the values that a QP of ours reports
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kGeneralErr = 21,
};
enum class WcOpcode : uint32_t {  // ibv_wc_opcode
  kSend = 0,
  kRdmaWrite,
  kRdmaRead,
  kCompSwap,
  kFetchAdd,
  kBindMw,
  kLocalInv,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};
enum WcFlag : uint32_t {  // ibv_wc_flags
  kWcGrh = 1,
  kWcWithImm = 2,
  kWcWithInv = 8,
  kWcIpv6 = 1u << 31,  // ours: the GRH is an IPv6 header
};

using hostnic::VendorError;

struct Completion {
  uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;  // as the peer gave it; kWcWithInv: the key that it invalidated
  uint32_t flags = 0;     // WcFlag
  uint32_t qpn = 0;
  uint32_t src_qpn = 0;
  VendorError vendor = VendorError::kNone;
};

// Where a datagram goes: an address handle's path, and the work request's QPN and Q_Key.
struct UdAddress {
  Ipv4Address ip{};          // as NICs name hosts (protocol/gid.h)
  uint8_t source_index = 0;  // which of the NIC's addresses it leaves from
  uint8_t traffic_class = 0, hop_limit = 64;
  // The address handle belongs to another protection domain: the request fails in its turn.
  bool other_domain = false;
  uint32_t qpn = 0;
  uint32_t qkey = 0;
};

// What a memory window is bound to: part of a region. Its first address and the window's key are
// the request's remote_va and rkey.
struct WindowBinding {
  uint64_t length_bytes = 0;
  uint32_t mr_key = 0;
  uint32_t access = 0;  // AccessFlag
};

// One work request. `sges` need not outlive the call; the memory that they name must (unless
// inline).
struct SendRequest {
  uint64_t wr_id = 0;
  SendOp op = SendOp::kSend;
  bool signalled = false;  // as flagged; sq_sig_all is applied by the queue
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  std::span<const Sge> sges;
  uint64_t remote_va = 0;
  uint32_t rkey = 0;      // kLocalInvalidate: the window's
  uint32_t imm_data = 0;  // kSendInv: the key to invalidate
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  UdAddress ud;           // UD only
  WindowBinding binding;  // kBindWindow only
};

struct RecvRequest {
  uint64_t wr_id = 0;
  std::span<const Sge> sges;
};

struct QpCaps {
  uint32_t max_send_wr = 0, max_recv_wr = 0, max_send_sge = 0, max_recv_sge = 0,
           max_inline_bytes = 0;
};

// Attributes of ibv_modify_qp/ibv_query_qp that exist for RC, UC and UD, with the verbs' mask bits
// (ibv_qp_attr_mask).
enum QpAttrMask : uint32_t {
  kQpState = 1 << 0,
  kQpCurState = 1 << 1,
  kQpEnSqdAsyncNotify = 1 << 2,
  kQpAccessFlags = 1 << 3,
  kQpPkeyIndex = 1 << 4,
  kQpPort = 1 << 5,
  kQpQkey = 1 << 6,
  kQpAv = 1 << 7,
  kQpPathMtu = 1 << 8,
  kQpTimeout = 1 << 9,
  kQpRetryCnt = 1 << 10,
  kQpRnrRetry = 1 << 11,
  kQpRqPsn = 1 << 12,
  kQpMaxQpRdAtomic = 1 << 13,
  kQpAltPath = 1 << 14,
  kQpMinRnrTimer = 1 << 15,
  kQpSqPsn = 1 << 16,
  kQpMaxDestRdAtomic = 1 << 17,
  kQpPathMigState = 1 << 18,
  kQpCap = 1 << 19,
  kQpDestQpn = 1 << 20,
  kQpRateLimit = 1 << 25,
};
// What a queue pair of MRC can be told beside the attributes of verbs (docs/mrc.md, "libmrc.so").
struct MrcLimits {
  uint16_t max_imm = 0;  // WRITEs with immediate data that are not acknowledged; 0: any number
  uint8_t mpr = 0;       // the requester's window, in 128 PSNs; 0, or above the NIC's: the NIC's
  uint8_t exponential_retries = mrc::kExponentialRetries;  // 25: for ever
  bool operator==(const MrcLimits&) const = default;
};
struct QpAttr {
  QpState state = QpState::kReset;
  QpState cur_state = QpState::kReset;
  uint32_t access = 0;
  uint32_t dest_qpn = 0;
  uint32_t qkey = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint32_t path_mtu_bytes = 0;
  uint8_t max_rd_atomic = 0, max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0, timeout = 0, retry_cnt = 0, rnr_retry = 0;
  uint8_t port = 1;
  uint16_t pkey_index = 0;
  Ipv4Address dest_ip{};     // as NICs name hosts (protocol/gid.h)
  Gid dest_gid{};            // what that stands for
  uint8_t source_index = 0;  // which of the NIC's addresses packets leave from
  uint8_t sgid_index = 0, traffic_class = 0, hop_limit = 64, service_level = 0;
  bool is_global = false;
  // These are kept for whoever asks what was set; they have no effect here.
  uint32_t flow_label = 0, rate_limit = 0;
  uint16_t dlid = 0;
  uint8_t src_path_bits = 0, static_rate = 0, hop_limit_as_set = 0, path_mig_state = 0;
  bool en_sqd_async_notify = false;
  bool sq_draining = false;  // set in the answer to a query
  MrcLimits mrc;             // by Driver::set_mrc_limits() alone
};

// The states a completion queue can be armed for (ibv_req_notify_cq).
enum class Arm : uint8_t { kNone, kSolicited, kAny };

enum class AsyncEvent : uint32_t {  // ibv_event_type
  kCqErr = 0,
  kQpFatal = 1,
  kQpReqErr = 2,
  kQpAccessErr = 3,
  kCommEst = 4,
  kSqDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortErr = 10,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kGidChange = 18,
};

}  // namespace hostnic::driver
