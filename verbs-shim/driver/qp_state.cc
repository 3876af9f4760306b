// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/qp_state.h"

#include <bit>
#include <cerrno>
#include <span>

#include "verbs-shim/base/refusal.h"

namespace hostnic::driver {
namespace {

struct Rule {
  QpState from, to;
  uint32_t required, optional;
};

constexpr uint32_t kInitRequired = kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr uint32_t kUdInitRequired = kQpPkeyIndex | kQpPort | kQpQkey;
constexpr uint32_t kPathOptional = kQpAltPath | kQpPathMigState;

// Transitions to RESET and ERR, allowed from everywhere with nothing else, are not listed.
constexpr Rule kRcRules[] = {
    {QpState::kReset, QpState::kInit, kInitRequired, 0},
    {QpState::kInit, QpState::kInit, 0, kInitRequired},
    {QpState::kInit, QpState::kRtr,
     kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAccessFlags | kQpPkeyIndex | kPathOptional},
    {QpState::kRtr, QpState::kRts,
     kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathOptional},
    {QpState::kRts, QpState::kRts, 0,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathOptional | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathOptional},
    {QpState::kSqd, QpState::kSqd, 0,
     kQpPkeyIndex | kQpPort | kQpAccessFlags | kQpAv | kQpMaxQpRdAtomic | kQpMinRnrTimer |
         kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxDestRdAtomic | kPathOptional},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer},
};

constexpr Rule kUcRules[] = {
    {QpState::kReset, QpState::kInit, kInitRequired, 0},
    {QpState::kInit, QpState::kInit, 0, kInitRequired},
    {QpState::kInit, QpState::kRtr, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
     kQpAccessFlags | kQpPkeyIndex | kPathOptional},
    {QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpAccessFlags | kPathOptional},
    {QpState::kRts, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kPathOptional | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kPathOptional},
    {QpState::kSqd, QpState::kSqd, 0, kQpPkeyIndex | kQpAccessFlags | kQpAv | kPathOptional},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpAccessFlags},
};

constexpr Rule kUdRules[] = {
    {QpState::kReset, QpState::kInit, kUdInitRequired, 0},
    {QpState::kInit, QpState::kInit, 0, kUdInitRequired},
    {QpState::kInit, QpState::kRtr, 0, kQpPkeyIndex | kQpQkey},
    {QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpQkey},
    {QpState::kRts, QpState::kRts, 0, kQpCurState | kQpQkey | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpQkey},
    {QpState::kSqd, QpState::kSqd, 0, kQpPkeyIndex | kQpQkey},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpQkey},
};

std::span<const Rule> rules_of(QpType type) {
  switch (type) {
    case QpType::kUc:
      return kUcRules;
    case QpType::kUd:
      return kUdRules;
    default:
      return kRcRules;
  }
}

uint64_t number_of(QpState state) { return static_cast<uint64_t>(state); }

}  // namespace

int check_transition(QpType type, QpState from, const QpAttr& attr, uint32_t mask) {
  const QpState to = (mask & kQpState) != 0 ? attr.state : from;
  if ((mask & kQpCurState) != 0) {
    // The caller's belief about the current state must be true; only RTR, RTS, SQD and SQE can be
    // named (man ibv_modify_qp).
    if (attr.cur_state != from)
      return refuse({Reason::kCurrentState, number_of(attr.cur_state), number_of(from)});
  }
  const auto attributes_refused = [&](Reason reason, uint32_t which) {
    return refuse({reason, number_of(from), number_of(to), which});
  };
  const uint32_t rest = mask & ~uint32_t{kQpState};
  if (to == QpState::kReset || to == QpState::kErr) {
    if ((mask & kQpState) == 0) return attributes_refused(Reason::kMissingAttributes, kQpState);
    const uint32_t extra = rest & ~uint32_t{kQpCurState};
    return extra == 0 ? 0 : attributes_refused(Reason::kExtraAttributes, extra);
  }
  for (const Rule& rule : rules_of(type)) {
    if (rule.from != from || rule.to != to) continue;
    if (const uint32_t missing = rule.required & ~rest; missing != 0)
      return attributes_refused(Reason::kMissingAttributes, missing);
    const uint32_t extra = rest & ~(rule.required | rule.optional);
    return extra == 0 ? 0 : attributes_refused(Reason::kExtraAttributes, extra);
  }
  return refuse({Reason::kNoTransition, number_of(from), number_of(to)});
}

const char* refused_attribute(const QpAttr& attr, uint32_t mask, const DeviceLimits& limits) {
  constexpr uint32_t kRemoteAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                     kAccessRemoteAtomic | kAccessMwBind | kAccessOnDemand |
                                     kAccessRelaxedOrdering;
  const bool mtu_bad = attr.path_mtu_bytes < 256 || attr.path_mtu_bytes > limits.mtu_bytes ||
                       !std::has_single_bit(attr.path_mtu_bytes);
  const struct {
    uint32_t bit;
    bool bad;
    const char* what;
  } checks[] = {
      {kQpPort, attr.port != 1, "port_num is not 1"},
      {kQpPkeyIndex, attr.pkey_index != 0, "pkey_index is not 0"},
      {kQpAccessFlags, (attr.access & ~kRemoteAccess) != 0, "qp_access_flags has unknown bits"},
      {kQpPathMtu, mtu_bad, "path_mtu is more than the port's active_mtu, or none"},
      {kQpDestQpn, attr.dest_qpn > 0xffffff, "dest_qp_num has more than 24 bits"},
      {kQpMaxQpRdAtomic, attr.max_rd_atomic > limits.max_rd_atomic,
       "max_rd_atomic is more than the device's max_qp_init_rd_atom"},
      {kQpMaxDestRdAtomic, attr.max_dest_rd_atomic > limits.max_rd_atomic,
       "max_dest_rd_atomic is more than the device's max_qp_rd_atom"},
      {kQpMinRnrTimer, attr.min_rnr_timer > 31, "min_rnr_timer is more than 31"},
      {kQpTimeout, attr.timeout > 31, "timeout is more than 31"},
      {kQpRetryCnt, attr.retry_cnt > 7, "retry_cnt is more than 7"},
      {kQpRnrRetry, attr.rnr_retry > 7, "rnr_retry is more than 7"},
      {kQpAltPath, true, "there are no alternate paths"},
      // The ABI layer makes the address from the GRH, or from a LID.
      {kQpAv, raw(attr.dest_ip) == 0, "ah_attr leads to no address"},
  };
  for (const auto& check : checks)
    if ((mask & check.bit) != 0 && check.bad) return check.what;
  return nullptr;
}

void apply_attributes(QpAttr& into, const QpAttr& attr, uint32_t mask) {
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(kQpAccessFlags)) into.access = attr.access;
  if (has(kQpPkeyIndex)) into.pkey_index = attr.pkey_index;
  if (has(kQpPort)) into.port = attr.port;
  if (has(kQpPathMtu)) into.path_mtu_bytes = attr.path_mtu_bytes;
  if (has(kQpQkey)) into.qkey = attr.qkey;
  if (has(kQpDestQpn)) into.dest_qpn = attr.dest_qpn;
  if (has(kQpRqPsn)) into.rq_psn = attr.rq_psn & 0xffffff;
  if (has(kQpSqPsn)) into.sq_psn = attr.sq_psn & 0xffffff;
  if (has(kQpMaxQpRdAtomic)) into.max_rd_atomic = attr.max_rd_atomic;
  if (has(kQpMaxDestRdAtomic)) into.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (has(kQpMinRnrTimer)) into.min_rnr_timer = attr.min_rnr_timer;
  if (has(kQpTimeout)) into.timeout = attr.timeout;
  if (has(kQpRetryCnt)) into.retry_cnt = attr.retry_cnt;
  if (has(kQpRnrRetry)) into.rnr_retry = attr.rnr_retry;
  if (has(kQpPathMigState)) into.path_mig_state = attr.path_mig_state;
  if (has(kQpEnSqdAsyncNotify)) into.en_sqd_async_notify = attr.en_sqd_async_notify;
  if (has(kQpRateLimit)) into.rate_limit = attr.rate_limit;
  if (has(kQpAv)) {
    into.dest_ip = attr.dest_ip;
    into.dest_gid = attr.dest_gid;
    into.source_index = attr.source_index;
    into.sgid_index = attr.sgid_index;
    into.traffic_class = attr.traffic_class;
    into.hop_limit = attr.hop_limit;
    into.service_level = attr.service_level;
    into.is_global = attr.is_global;
    into.flow_label = attr.flow_label;
    into.dlid = attr.dlid;
    into.src_path_bits = attr.src_path_bits;
    into.static_rate = attr.static_rate;
    into.hop_limit_as_set = attr.hop_limit_as_set;
  }
}

uint64_t rnr_timer_ns(uint32_t code) {
  // Times in units of 10 us; code 0 is the longest.
  static constexpr uint32_t kTens[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                         16,    24,   32,   48,    64,    96,    128,   192,
                                         256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                         4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kTens[code & 31]} * 10'000;
}

uint64_t ack_timeout_ns(uint32_t timeout) {
  return timeout == 0 ? 0 : uint64_t{4096} << (timeout & 31);
}

}  // namespace hostnic::driver
