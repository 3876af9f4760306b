// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/refusal.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/log.h"

namespace hostnic {
namespace {

using Number = unsigned long long;

thread_local Refusal noted;

const char* state_name(uint64_t state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "unknown";
}

// The attributes that a mask of ibv_modify_qp names, in the order of its bits.
constexpr const char* kAttributes[] = {"STATE",
                                       "CUR_STATE",
                                       "EN_SQD_ASYNC_NOTIFY",
                                       "ACCESS_FLAGS",
                                       "PKEY_INDEX",
                                       "PORT",
                                       "QKEY",
                                       "AV",
                                       "PATH_MTU",
                                       "TIMEOUT",
                                       "RETRY_CNT",
                                       "RNR_RETRY",
                                       "RQ_PSN",
                                       "MAX_QP_RD_ATOMIC",
                                       "ALT_PATH",
                                       "MIN_RNR_TIMER",
                                       "SQ_PSN",
                                       "MAX_DEST_RD_ATOMIC",
                                       "PATH_MIG_STATE",
                                       "CAP",
                                       "DEST_QPN"};

void name_attributes(uint32_t mask, char* out, size_t bytes) {
  size_t used = 0;
  out[0] = '\0';
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if ((mask >> bit & 1) == 0 || used >= bytes) continue;
    const char* const separator = used == 0 ? "" : ", ";
    const int more =
        bit < std::size(kAttributes)
            ? snprintf(out + used, bytes - used, "%sIBV_QP_%s", separator, kAttributes[bit])
            : snprintf(out + used, bytes - used, "%s0x%x", separator, 1u << bit);
    used += static_cast<size_t>(more);
  }
}

// errno values other than EINVAL.
int error_of(Reason reason) {
  switch (reason) {
    case Reason::kSendQueueFull:
    case Reason::kSendQueueUnsignalled:
    case Reason::kReceiveQueueFull:
    case Reason::kSharedQueueFull:
    case Reason::kBatchTooLong:
      return ENOMEM;
    case Reason::kQpType:
    case Reason::kFlushFlags:
    case Reason::kNotOffered:
    case Reason::kNotByMrc:
      return EOPNOTSUPP;
    case Reason::kNotOfDevice:
      return ENOENT;
    case Reason::kInUse:
    case Reason::kWindowsBound:
      return EBUSY;
    case Reason::kNobody:
      return EHOSTUNREACH;
    default:
      return EINVAL;
  }
}

// Whether the call is about a way that RoCE has not, which nobody asks for to find out: everybody's
// first program ends by it, so that it is said wherever anything is.
bool is_wrong_path(Reason reason) {
  switch (reason) {
    case Reason::kNoGrh:
    case Reason::kSgidIndex:
    case Reason::kNoHost:
    case Reason::kGidFamily:
      return true;
    default:
      return false;
  }
}

// A bit for the kind of call: sends and receives are refused for the same reasons, and who was told
// of the one does not know of the other.
uint8_t kind_of(std::string_view call) {
  const bool receives = call.find("recv") != call.npos, is_shared = call.find("srq") != call.npos;
  return static_cast<uint8_t>(1u << (receives ? 1 : 0) << (is_shared ? 2 : 0));
}

// What belongs to a state: `from` to `to`, or `from` alone where they are the same.
void describe_step(const Refusal& r, const char* verb, char* line, size_t bytes) {
  char names[300];
  name_attributes(r.mask, names, sizeof names);
  snprintf(line, bytes, "from %s to %s %s %s", state_name(r.given), state_name(r.limit), verb,
           names);
}

}  // namespace

void describe(const Refusal& r, char* line, size_t bytes) noexcept {
  const auto given = static_cast<Number>(r.given), limit = static_cast<Number>(r.limit);
  const auto say = [&](const char* format, auto... numbers) {
    snprintf(line, bytes, format, numbers...);
  };
  switch (r.reason) {
    case Reason::kSendState:
      return say("the queue pair is in %s: sends are posted from RTS on", state_name(r.given));
    case Reason::kReceiveState:
      return say("the queue pair is in %s: receives are posted from INIT on", state_name(r.given));
    case Reason::kReceiveOfShared:
      return say("%s", "the queue pair has a shared receive queue: post receives there");
    case Reason::kOperation:
      return say("opcode %llu is no operation of this device", given);
    case Reason::kNotOfThisType:
      return say("opcode %llu is no operation of this type of queue pair", given);
    case Reason::kNotByMrc:
      return say("%s",
                 "the connection speaks MRC, which has RDMA WRITE and WRITE with immediate data "
                 "and nothing else: give both NICs transport = \"hostnic\" or \"roce\" for others");
    case Reason::kNoDestination:
      return say("%s", "no address handle, or one that leads nowhere");
    case Reason::kSges:
      if (given > INT32_MAX) return say("num_sge is %d", static_cast<int32_t>(given));
      return say("%llu scatter/gather elements, %llu granted", given, limit);
    case Reason::kMessageBytes:
      return say("a message of %llu bytes, %llu at most", given, limit);
    case Reason::kInlineBytes:
      return say("inline %llu, %llu granted", given, limit);
    case Reason::kInlineRead:
      return say("%s", "IBV_SEND_INLINE with a READ or an atomic, which send no data");
    case Reason::kNoReads:
      return say("%s", "max_rd_atomic of the queue pair is 0: no READs, no atomics");
    case Reason::kAtomicBytes:
      return say("an atomic whose result has %llu bytes of room: 8 are needed", given);
    case Reason::kSendQueueFull:
      return say(
          "send queue of %llu full, %llu of them signalled: a slot is free when a completion "
          "at or behind it has been polled",
          limit, given);
    case Reason::kSendQueueUnsignalled:
      return say("send queue of %llu full, none of them signalled: no completion will free a slot",
                 limit);
    case Reason::kReceiveQueueFull:
      return say("receive queue of %llu full", limit);
    case Reason::kSharedQueueFull:
      return say("shared receive queue of %llu full", limit);
    case Reason::kBatchTooLong:
      return say("a batch of %llu requests, and the send queue has %llu free slots", given, limit);
    case Reason::kUnknownState:
      return say("there is no state %llu", given);
    case Reason::kCurrentState:
      return say("cur_qp_state says %s, and the queue pair is in %s", state_name(r.given),
                 state_name(r.limit));
    case Reason::kNoTransition:
      return say("no way leads from %s to %s", state_name(r.given), state_name(r.limit));
    case Reason::kMissingAttributes:
      return describe_step(r, "needs", line, bytes);
    case Reason::kExtraAttributes:
      return describe_step(r, "takes no", line, bytes);
    case Reason::kAttribute:
    case Reason::kMemory:
    case Reason::kNotOffered:
    case Reason::kArgument:
      return say("%s", r.text == nullptr ? "" : r.text);
    case Reason::kPort:
      return say("port_num %llu: there is port 1", given);
    case Reason::kPkeyIndex:
      return say("pkey_index %llu: there is index 0", given);
    case Reason::kSharedWr:
      if (given == 0) return say("max_wr is 0: from 1 to %llu", limit);
      return say("max_wr is %llu, %llu at most", given, limit);
    case Reason::kSharedSge:
      return say("max_sge is %llu, %llu at most", given, limit);
    case Reason::kMaxRdAtomic:
      return say("%s is %llu, %llu at most", r.text == nullptr ? "max_rd_atomic" : r.text, given,
                 limit);
    case Reason::kNobody:
      return say("nobody has the address %s: is the GID the peer's, and the peer up?",
                 r.text == nullptr ? "" : r.text);
    case Reason::kInUse:
      return say("in use by %s", r.text == nullptr ? "other objects" : r.text);
    case Reason::kWindowsBound:
      return say("%s", "memory windows are bound to the region, or packets refer to its memory");
    case Reason::kPathMtu:
      if (given == 0) return say("%s", "path_mtu is none of ibv_mtu's: 1 (256 bytes) to 5 (4096)");
      return say("path_mtu is %llu bytes, and the port's active_mtu %llu", given, limit);
    case Reason::kSgidIndex:
      return say("sgid_index %llu: the GID table of %llu entries has nothing there to send from",
                 given, limit);
    case Reason::kNoGrh:
      return say("%s", "no GRH: RoCE needs ah_attr.is_global and a GID (ibv_rc_pingpong: -g 0)");
    case Reason::kNoHost:
      return say("%s", "grh.dgid names no host");
    case Reason::kGidFamily:
      return say("grh.dgid is of another family, IPv4 or IPv6, than the GID of sgid_index %llu",
                 given);
    case Reason::kGroup:
      return say("%s", "grh.dgid is a multicast group: nobody is connected to one");
    case Reason::kQpType:
      return say("queue pairs of type %llu are not supported: RC, UC and UD are", given);
    case Reason::kMaxSendWr:
      return say("max_send_wr is %llu, %llu at most", given, limit);
    case Reason::kMaxRecvWr:
      return say("max_recv_wr is %llu, %llu at most", given, limit);
    case Reason::kMaxSendSge:
      return say("max_send_sge is %llu, %llu at most", given, limit);
    case Reason::kMaxRecvSge:
      return say("max_recv_sge is %llu, %llu at most", given, limit);
    case Reason::kMaxInline:
      return say("max_inline_data is %llu, %llu at most", given, limit);
    case Reason::kCqEntries:
      return say("%llu completion queue entries: from 1 to %llu", given, limit);
    case Reason::kCqHolds:
      return say("%llu completions wait there, or are due, and %llu entries are asked for", given,
                 limit);
    case Reason::kNotOfDevice:
      return say("%s is of another device, or destroyed", r.text == nullptr ? "" : r.text);
    case Reason::kNoObject:
      return say("%s is null", r.text == nullptr ? "" : r.text);
    case Reason::kSharedLimit:
      return say("srq_limit is %llu, and the queue has %llu entries", given, limit);
    case Reason::kWindowType:
      return say("window type %llu: there are IBV_MW_TYPE_1 and IBV_MW_TYPE_2", given);
    case Reason::kBindType:
      return say(
          "the window is of type %llu: ibv_bind_mw binds those of type 1, and IBV_WR_BIND_MW those "
          "of type 2",
          given);
    case Reason::kGidIndex:
      return say("index %llu: the GID table has %llu entries", given, limit);
    case Reason::kCompletionVector:
      return say("completion vector %llu: there are %llu", given, limit);
    case Reason::kAccessFlags:
      return say("unknown access flags in 0x%llx", given);
    case Reason::kFlushFlags:
      return say("access flags 0x%llx: the device has no FLUSH operation", given);
    case Reason::kRemoteWithoutLocal:
      return say("access flags 0x%llx: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE", given);
    case Reason::kRegionBytes:
      return say("a memory region of %llu bytes, %llu at most", given, limit);
    case Reason::kNone:
    case Reason::kCount:
      break;
  }
  say("%s", "");
}

[[gnu::cold]] int refuse(const Refusal& refusal) noexcept {
  noted = refusal;
  return error_of(refusal.reason);
}

[[gnu::cold]] void tell_refusal(const char* call, uint32_t qpn, int error) noexcept {
  // By reason, the kinds of calls that were told.
  static std::array<std::atomic<uint8_t>, static_cast<size_t>(Reason::kCount)> told{};
  const Refusal refusal = std::exchange(noted, {});
  const bool warns = somebody_reads() || is_wrong_path(refusal.reason);
  const LogLevel level = warns ? LogLevel::kWarn : LogLevel::kInfo;
  if (refusal.reason == Reason::kNone || !log_enabled(level)) return;
  // Memory's errors have their own values.
  if (refusal.reason != Reason::kMemory && error_of(refusal.reason) != error) return;
  const uint8_t kind = kind_of(call);
  const uint8_t before =
      told[static_cast<size_t>(refusal.reason)].fetch_or(kind, std::memory_order_relaxed);
  const bool again = (before & kind) != 0;
  // Programs that poll until there is room are told once. Other calls are few: who asks is told of
  // each.
  const bool is_posting = refusal.reason <= Reason::kBatchTooLong;
  if (again && (is_posting || !log_enabled(LogLevel::kInfo))) return;
  const int saved_errno = errno;
  char line[512], of_qp[32] = "";
  describe(refusal, line, sizeof line);
  if (qpn != 0) snprintf(of_qp, sizeof of_qp, "QP 0x%x: ", qpn);
  const char* const name = strerrorname_np(error);
  (warns ? log_warn : log_info)("%s: %s%s (%s)", call, of_qp, line,
                                name == nullptr ? "error" : name);
  errno = saved_errno;
}

[[gnu::cold]] int refuse_call(const char* call, uint32_t qpn, const Refusal& refusal) noexcept {
  const int error = refuse(refusal);
  tell_refusal(call, qpn, error);
  errno = error;
  return error;
}

[[gnu::cold]] int refuse_in_use(const char* call, uint32_t qpn, size_t count,
                                const char* user) noexcept {
  char users[80];
  snprintf(users, sizeof users, "%zu %s%s", count, user, count == 1 ? "" : "s");
  return refuse_call(call, qpn, {.reason = Reason::kInUse, .text = users});
}

}  // namespace hostnic
