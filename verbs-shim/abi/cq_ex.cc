// SPDX-License-Identifier: BSD-3-Clause
// Extended completion queues: ibv_create_cq_ex, ibv_start_poll .. ibv_end_poll.
#include <time.h>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/cq.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

// A function pointer without one of these flags would be called and be null, so others are refused.
constexpr uint64_t kSupportedWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                       uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
                                       uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};

uint64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Takes the next completion: returns 0, or ENOENT when there is none. It takes one at a time: what
// is not read must stay in the queue, for the next poll and for ibv_destroy_qp to remove.
int take_next(CqObject& cq) {
  const int got = cq.owner->driver->poll_cq(*cq.cq, &cq.current, 1);
  if (got == 0) return ENOENT;
  if (got < 0) return EIO;
  cq.wr_id = cq.current.wr_id;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  // The timestamps are the host's clocks when the completion was taken.
  if (cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
    cq.current_time_ns = now_ns(CLOCK_MONOTONIC);
  if (cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
    cq.current_wallclock_ns = now_ns(CLOCK_REALTIME);
  return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  CqObject& object = *object_of(cq);
  object.poll_mutex.lock();
  const int error = take_next(object);
  if (error != 0) object.poll_mutex.unlock();  // ibv_end_poll follows success only
  return error;
}

int next_poll(ibv_cq_ex* cq) { return take_next(*object_of(cq)); }
void end_poll(ibv_cq_ex* cq) { object_of(cq)->poll_mutex.unlock(); }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(object_of(cq)->current.opcode);
}
uint32_t read_vendor_err(ibv_cq_ex* cq) {
  return static_cast<uint32_t>(object_of(cq)->current.vendor);
}
uint32_t read_byte_len(ibv_cq_ex* cq) { return object_of(cq)->current.byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return object_of(cq)->current.imm_data; }
uint32_t read_qp_num(ibv_cq_ex* cq) { return object_of(cq)->current.qpn; }
uint8_t read_sl(ibv_cq_ex* cq) { return service_level_of(object_of(cq)->current); }
uint32_t read_src_qp(ibv_cq_ex* cq) { return object_of(cq)->current.src_qpn; }
unsigned int read_wc_flags(ibv_cq_ex* cq) {
  return object_of(cq)->current.flags & ~driver::kWcIpv6;
}
uint64_t read_time(ibv_cq_ex* cq) { return object_of(cq)->current_time_ns; }
uint64_t read_wallclock(ibv_cq_ex* cq) { return object_of(cq)->current_wallclock_ns; }

// Reads fields that RoCE leaves at zero.
template <typename Field>
Field read_zero(ibv_cq_ex*) {
  return 0;
}

void read_no_tag(ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; }

void install(CqObject& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_zero<uint32_t>;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_zero<uint8_t>;
  cq.read_completion_ts = read_time;
  cq.read_cvlan = read_zero<uint16_t>;
  cq.read_flow_tag = read_zero<uint32_t>;
  cq.read_tm_info = read_no_tag;
  cq.read_completion_wallclock_ns = read_wallclock;
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kContext, context)) return fail_null(EINVAL);
  const DeviceOffer& offer = offer_of(*object_of(context));
  if (offer.lacks(kMissingExtendedCq)) {
    return fail_null(
        refuse_call("ibv_create_cq_ex", 0,
                    {.reason = Reason::kNotOffered,
                     .text = "the device has ibv_create_cq alone, no extended queues"}));
  }
  const uint64_t supported =
      offer.lacks(kMissingTimestamps) ? uint64_t{IBV_WC_STANDARD_FLAGS} : kSupportedWcFlags;
  if (attr->wc_flags & ~supported) return fail_null(EOPNOTSUPP);
  constexpr uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if (attr->comp_mask & ~kKnown) return fail_null(EOPNOTSUPP);
  const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
  if (flags & ~static_cast<uint32_t>(IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
    return fail_null(EOPNOTSUPP);
  }
  CqObject* cq = create_cq_object(*object_of(context), *attr);
  if (cq == nullptr) return nullptr;
  install(*cq);
  return cq;
}

}  // namespace hostnic::abi
