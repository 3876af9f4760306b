// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/mrc/attributes.h"

#include <algorithm>

#include "protocol/transport/mrc/retry_schedule.h"
#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"

namespace hostnic::libmrc {
namespace {

constexpr uint32_t kAll = MRC_QP_MAX_WIMM | MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR | MRC_QP_MPR_DEST |
                          MRC_QP_TIMEOUT | MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID |
                          MRC_QP_HINT | MRC_QP_RETRY_CNT | MRC_QP_CAP | MRC_QP_VENDOR_CFG;
constexpr uint32_t kCaps = MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED | MRC_QP_CAP_DYNAMIC_MPR |
                           MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED;
constexpr uint8_t kMostTimeout = 24, kMostLinear = 7;
constexpr uint8_t kForEver = mrc::kMostExponentialRetries + 1;

bool is_zero(const uint8_t (&bytes)[MRC_MAX_VENDOR_CFG_SIZE]) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

// A number that has a least and a most value, by the name that programs know.
int check_range(const char* call, const char* name, uint64_t given, uint64_t least, uint64_t most) {
  if (given >= least && given <= most) return 0;
  return refused(call, EINVAL, "%s is %llu: from %llu to %llu", name,
                 static_cast<unsigned long long>(given), static_cast<unsigned long long>(least),
                 static_cast<unsigned long long>(most));
}

// Profiles are a controller's, and there is one of each kind here.
int check_profile(const char* call, const char* name, uint64_t id) {
  if (id == 0) return 0;
  return refused(call, EINVAL,
                 "%s is %llu: hostnic has profile 0 alone (mrc_entropy_values of the NIC says how "
                 "many values a queue pair has)",
                 name, static_cast<unsigned long long>(id));
}

int check_numbers(const Step& step, const MrcDevice& device, const mrc_qp_attr& from) {
  const auto has = [&](uint32_t bit) { return (step.mask & bit) != 0; };
  const struct {
    uint32_t bit;
    const char* name;
    uint64_t given, least, most;
  } numbers[] = {
      {MRC_QP_MAX_WIMM, "max_wimm", from.wimm.max_wimm, 0, most_imms(device)},
      {MRC_QP_MAX_WIMM_DEST, "max_wimm_dest", from.wimm.max_wimm_dest, 0, most_imms(device)},
      {MRC_QP_MPR, "mpr", from.mpr.mpr, 1, most_mpr(device)},
      {MRC_QP_MPR_DEST, "mpr_dest", from.mpr.mpr_dest, 1, most_mpr(device)},
      {MRC_QP_TIMEOUT, "timeout", from.timeout, 0, kMostTimeout},
      {MRC_QP_RETRY_CNT, "retry.linear_cnt", from.retry.linear_cnt, 0, kMostLinear},
      {MRC_QP_RETRY_CNT, "retry.exp_cnt", from.retry.exp_cnt, 0, kForEver},
  };
  for (const auto& each : numbers) {
    if (!has(each.bit)) continue;
    if (const int error = check_range(step.call, each.name, each.given, each.least, each.most))
      return error;
  }
  return 0;
}

int check(const Step& step, const mrc_qp& qp, const mrc_qp_attr& from) {
  const auto has = [&](uint32_t bit) { return (step.mask & bit) != 0; };
  if ((step.mask & ~kAll) != 0)
    return refused(step.call, EINVAL, "unknown bits in mrc_attr_mask 0x%x", step.mask);
  const uint32_t to = number_in(step.verbs.qp_state);
  const bool is_connecting = (step.verbs_mask & IBV_QP_STATE) != 0 &&
                             (to == IBV_QPS_INIT || to == IBV_QPS_RTR ||
                              (to == IBV_QPS_RTS && qp.verbs->state == IBV_QPS_RTR));
  if (!is_connecting && (step.mask & ~uint32_t{MRC_QP_HINT}) != 0) {
    return refused(step.call, EINVAL,
                   "attributes of MRC (0x%x) are for the transitions to INIT, RTR and RTS",
                   step.mask);
  }
  if (const int error = check_numbers(step, qp.context->device, from)) return error;
  int error = 0;
  if (has(MRC_QP_EV_PROFILE_ID))
    error = check_profile(step.call, "ev_profile_id", from.profile.ev_profile_id);
  if (error == 0 && has(MRC_QP_CC_PROFILE_ID))
    error = check_profile(step.call, "cc_profile_id", from.profile.cc_profile_id);
  if (error != 0) return error;
  if (has(MRC_QP_CAP) && (from.cap & ~kCaps) != 0)
    return refused(step.call, EINVAL, "unknown bits in cap 0x%x", from.cap);
  if (has(MRC_QP_VENDOR_CFG) && !is_zero(from.vendor_cfg))
    return refused(step.call, EINVAL,
                   "hostnic has no configuration by vendor_cfg: zeros are taken");
  if (!has(MRC_QP_HINT) || from.qp_hint == nullptr) return 0;
  return is_object_in(Kind::kHint, from.qp_hint, qp.context)
             ? 0
             : refused(step.call, EINVAL, "qp_hint is no hint of the queue pair's context");
}

}  // namespace

mrc_qp_attr first_attributes(const MrcDevice& device) {
  const mrc::RetrySchedule schedule;
  mrc_qp_attr attr{};
  attr.mpr = {most_mpr(device), most_mpr(device)};
  attr.wimm = {most_imms(device), most_imms(device)};
  attr.timeout = schedule.timeout;
  attr.retry = {schedule.linear, static_cast<uint8_t>(schedule.exponential)};
  attr.cap = MRC_QP_CAP_DYNAMIC_MPR;
  return attr;
}

int apply(const Step& step, const mrc_qp& qp, const mrc_qp_attr& from, mrc_qp_attr& to) {
  if (const int error = check(step, qp, from)) return error;
  const auto has = [&](uint32_t bit) { return (step.mask & bit) != 0; };
  if (has(MRC_QP_MAX_WIMM)) to.wimm.max_wimm = from.wimm.max_wimm;
  if (has(MRC_QP_MAX_WIMM_DEST)) to.wimm.max_wimm_dest = from.wimm.max_wimm_dest;
  if (has(MRC_QP_MPR)) to.mpr.mpr = from.mpr.mpr;
  if (has(MRC_QP_MPR_DEST)) to.mpr.mpr_dest = from.mpr.mpr_dest;
  if (has(MRC_QP_TIMEOUT)) to.timeout = from.timeout;
  if (has(MRC_QP_RETRY_CNT)) to.retry = from.retry;
  if (has(MRC_QP_HINT)) to.qp_hint = from.qp_hint;
  if (has(MRC_QP_CAP)) to.cap = from.cap;
  return 0;
}

MrcQpLimits limits_of(const mrc_qp_attr& attr) {
  return {.max_imm = attr.wimm.max_wimm,
          .mpr = attr.mpr.mpr,
          .exponential_retries = attr.retry.exp_cnt};
}

}  // namespace hostnic::libmrc
