// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/calls/late_polls.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/calls/next.h"
#include "verbs-shim/calls/originals.h"
#include "verbs-shim/calls/tables.h"
#include "verbs-shim/faults/events.h"
#include "verbs-shim/faults/late_posts.h"

namespace hostnic::calls {
namespace {

using faults::HeldCompletion;

// An extended queue's poll. It is under way in one thread at a time, as with devices.
struct LatePoll {
  pthread_mutex_t under_way = PTHREAD_MUTEX_INITIALIZER;
  bool begun = false;
  HeldCompletion current;
};
struct PollOf {
  LatePoll* poll = nullptr;
};
constinit Originals<PollOf> polls;

LatePoll* poll_of(const ibv_cq_ex* cq) {
  const PollOf* const found = polls.find(cq);
  return found != nullptr ? found->poll : nullptr;
}

// All that the queue was created to tell.
HeldCompletion copy_of(ibv_cq_ex* cq, const ibv_cq_ex& own) {
  HeldCompletion to;
  to.wc.wr_id = cq->wr_id;
  to.wc.status = cq->status;
  if (own.read_qp_num != nullptr) to.wc.qp_num = own.read_qp_num(cq);
  if (cq->status != IBV_WC_SUCCESS) {
    to.wc.vendor_err = own.read_vendor_err(cq);
    return to;
  }
  to.wc.opcode = own.read_opcode(cq);
  if (own.read_byte_len != nullptr) to.wc.byte_len = own.read_byte_len(cq);
  if (own.read_imm_data != nullptr) to.wc.imm_data = own.read_imm_data(cq);
  if (own.read_src_qp != nullptr) to.wc.src_qp = own.read_src_qp(cq);
  if (own.read_wc_flags != nullptr) to.wc.wc_flags = own.read_wc_flags(cq);
  if (own.read_slid != nullptr) to.wc.slid = static_cast<uint16_t>(own.read_slid(cq));
  if (own.read_sl != nullptr) to.wc.sl = own.read_sl(cq);
  if (own.read_dlid_path_bits != nullptr) to.wc.dlid_path_bits = own.read_dlid_path_bits(cq);
  if (own.read_completion_ts != nullptr) to.timestamp = own.read_completion_ts(cq);
  if (own.read_cvlan != nullptr) to.cvlan = own.read_cvlan(cq);
  if (own.read_flow_tag != nullptr) to.flow_tag = own.read_flow_tag(cq);
  if (own.read_tm_info != nullptr) own.read_tm_info(cq, &to.tag_matching);
  if (own.read_completion_wallclock_ns != nullptr)
    to.wallclock_ns = own.read_completion_wallclock_ns(cq);
  return to;
}

int take_extended(ibv_cq_ex* cq, const ibv_cq_ex& own, HeldCompletion* completions, int most) {
  ibv_poll_cq_attr attr{};
  int result = own.start_poll(cq, &attr);
  if (result == ENOENT) return 0;
  if (result != 0) {
    errno = result;
    return -1;
  }
  int count = 0;
  while (result == 0) {
    completions[count++] = copy_of(cq, own);
    if (count == most) break;
    result = own.next_poll(cq);
  }
  own.end_poll(cq);
  return count;
}

constexpr int kAtATime = 16;

int take(ibv_cq* cq, HeldCompletion* completions, int most) {
  auto* const extended = reinterpret_cast<ibv_cq_ex*>(cq);
  if (const ibv_cq_ex* own = device_functions(extended))
    return take_extended(extended, *own, completions, most);
  ibv_wc taken[kAtATime];
  const int count = device_ops(cq->context).poll_cq(cq, std::min(most, kAtATime), taken);
  for (int i = 0; i < count; ++i) completions[i].wc = taken[i];
  return count;
}

int arm(ibv_cq* cq, int solicited_only) {
  return device_ops(cq->context).req_notify_cq(cq, solicited_only);
}

int take_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  HOSTNIC_NEXT(ibv_get_cq_event);
  return next(channel, cq, cq_context);
}

void acknowledge(ibv_cq* cq, unsigned count) {
  HOSTNIC_NEXT(ibv_ack_cq_events);
  next(cq, count);
}

int take_async_event(ibv_context* context, ibv_async_event* event) {
  HOSTNIC_NEXT(ibv_get_async_event);
  return next(context, event);
}

void acknowledge_async_event(ibv_async_event* event) {
  HOSTNIC_NEXT(ibv_ack_async_event);
  next(event);
}

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  return device_ops(qp->context).post_send(qp, first, bad);
}

void unlock_in_child() { polls.unlock_in_child(); }

[[gnu::constructor]] void prepare() {
  faults::set_queue_calls({take, arm, take_event, acknowledge, to_error});
  faults::set_event_calls({take_async_event, acknowledge_async_event});
  faults::set_post(post_send);
  pthread_atfork(nullptr, nullptr, unlock_in_child);
}

// Moves on to the next completion that is not held.
int move_on(ibv_cq_ex* cq, LatePoll& poll) {
  HeldCompletion found;
  const int count = faults::take_completions(ibv_cq_ex_to_cq(cq), &found, 1);
  if (count == 0) return ENOENT;
  if (count < 0) return errno != 0 ? errno : EIO;
  poll.current = found;
  cq->wr_id = found.wc.wr_id;
  cq->status = found.wc.status;
  return 0;
}

#define HOSTNIC_READ(result, member, value)                 \
  result late_##member(ibv_cq_ex* cq) {                     \
    const HeldCompletion* const held = held_completion(cq); \
    if (held != nullptr) return held->value;                \
    return device_functions(cq)->member(cq);                \
  }
HOSTNIC_READ(ibv_wc_opcode, read_opcode, wc.opcode)
HOSTNIC_READ(uint32_t, read_byte_len, wc.byte_len)
HOSTNIC_READ(__be32, read_imm_data, wc.imm_data)
HOSTNIC_READ(uint32_t, read_qp_num, wc.qp_num)
HOSTNIC_READ(uint32_t, read_src_qp, wc.src_qp)
HOSTNIC_READ(unsigned, read_wc_flags, wc.wc_flags)
HOSTNIC_READ(uint32_t, read_slid, wc.slid)
HOSTNIC_READ(uint8_t, read_sl, wc.sl)
HOSTNIC_READ(uint8_t, read_dlid_path_bits, wc.dlid_path_bits)
HOSTNIC_READ(uint64_t, read_completion_ts, timestamp)
HOSTNIC_READ(uint16_t, read_cvlan, cvlan)
HOSTNIC_READ(uint32_t, read_flow_tag, flow_tag)
HOSTNIC_READ(uint64_t, read_completion_wallclock_ns, wallclock_ns)
#undef HOSTNIC_READ

void late_read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  if (const HeldCompletion* held = held_completion(cq))
    *info = held->tag_matching;
  else
    device_functions(cq)->read_tm_info(cq, info);
}

template <typename Do>
void for_each_read(Do each) {
#define HOSTNIC_MEMBER(member) each(&ibv_cq_ex::member, late_##member)
  HOSTNIC_MEMBER(read_opcode);
  HOSTNIC_MEMBER(read_byte_len);
  HOSTNIC_MEMBER(read_imm_data);
  HOSTNIC_MEMBER(read_qp_num);
  HOSTNIC_MEMBER(read_src_qp);
  HOSTNIC_MEMBER(read_wc_flags);
  HOSTNIC_MEMBER(read_slid);
  HOSTNIC_MEMBER(read_sl);
  HOSTNIC_MEMBER(read_dlid_path_bits);
  HOSTNIC_MEMBER(read_completion_ts);
  HOSTNIC_MEMBER(read_cvlan);
  HOSTNIC_MEMBER(read_flow_tag);
  HOSTNIC_MEMBER(read_tm_info);
  HOSTNIC_MEMBER(read_completion_wallclock_ns);
#undef HOSTNIC_MEMBER
}

}  // namespace

void to_error(ibv_qp* qp) {
  HOSTNIC_NEXT(ibv_modify_qp);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  next(qp, &attr, IBV_QP_STATE);
}

int poll_late(ibv_cq* cq, int entries, ibv_wc* completions) {
  int taken = 0;
  while (taken < entries) {
    HeldCompletion held[kAtATime];
    const int count = faults::take_completions(cq, held, std::min(entries - taken, kAtATime));
    if (count < 0) return taken > 0 ? taken : count;
    for (int i = 0; i < count; ++i) completions[taken++] = held[i].wc;
    if (count < kAtATime) break;
  }
  return taken;
}

int start_late(ibv_cq_ex* cq) {
  LatePoll* const poll = poll_of(cq);
  if (poll == nullptr) return ENOENT;
  pthread_mutex_lock(&poll->under_way);
  const int result = move_on(cq, *poll);
  poll->begun = result == 0;
  if (result != 0) pthread_mutex_unlock(&poll->under_way);
  return result;
}

int next_late(ibv_cq_ex* cq) { return move_on(cq, *poll_of(cq)); }

void end_late(ibv_cq_ex* cq) {
  LatePoll* const poll = poll_of(cq);
  poll->begun = false;
  pthread_mutex_unlock(&poll->under_way);
}

bool is_late(const ibv_cq_ex* cq) {
  const LatePoll* const poll = poll_of(cq);
  return poll != nullptr && poll->begun;
}

const HeldCompletion* held_completion(const ibv_cq_ex* cq) {
  const LatePoll* const poll = poll_of(cq);
  return poll != nullptr && poll->begun ? &poll->current : nullptr;
}

void watch_reads(ibv_cq_ex& cq) {
  auto* const poll = new LatePoll;
  if (!polls.add(&cq, {poll})) {
    delete poll;
    return;
  }
  for_each_read([&](auto member, auto* late) {
    if (cq.*member != nullptr) cq.*member = late;
  });
}

void forget_reads(ibv_cq_ex& cq, const ibv_cq_ex& own) {
  for_each_read([&](auto member, auto*) { cq.*member = own.*member; });
  PollOf gone;
  if (polls.remove(&cq, gone)) delete gone.poll;
}

}  // namespace hostnic::calls
