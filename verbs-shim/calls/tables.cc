// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/calls/tables.h"

#include <pthread.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "verbs-shim/calls/call.h"
#include "verbs-shim/calls/late_polls.h"
#include "verbs-shim/calls/next.h"
#include "verbs-shim/calls/originals.h"
#include "verbs-shim/calls/traced_table.h"
#include "verbs-shim/faults/completions.h"
#include "verbs-shim/faults/events.h"
#include "verbs-shim/faults/late_posts.h"
#include "verbs-shim/faults/late_queues.h"
#include "verbs-shim/faults/queue_pairs.h"
#include "verbs-shim/trace/words.h"

namespace hostnic::calls {
namespace {

// What a verbs_context has in front of its ibv_context is there only as far as its size says.
struct ContextFunctions {
  ibv_context_ops ops;
  verbs_context extended;
};

constinit Originals<ContextFunctions> contexts;

const ibv_context_ops& ops_of(const ibv_context* context) { return contexts.find(context)->ops; }
const verbs_context& extended_of(const ibv_context* context) {
  return contexts.find(context)->extended;
}

int ends(Call& call, int result, const char*) { return call.ends(result); }
template <typename Object>
Object* ends(Call& call, Object* result, const char* name) {
  return call.ends_with(result, name);
}

// -- The data path.

bool spoils_completions() {
  return faults::is_on() && faults::has_rules_of(faults::Subject::kCompletion);
}

void spoil(const ibv_cq* cq, ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) return;
  faults::Completion completion{wc.status, 0, wc.opcode, wc.qp_num, wc.byte_len};
  if (!faults::spoil(cq->context, completion, faults::cq_ordinal(cq), to_error)) return;
  wc.status = completion.status;
  wc.vendor_err = completion.vendor_err;
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  Call call("ibv_poll_cq", cq);
  if (call.on()) call.text().add("cq %p, %d", static_cast<void*>(cq), entries);
  call.begins();
  const bool late = faults::is_on() && faults::holds_completions();
  const int count = !call.goes_on() ? call.failure<int>()
                    : late          ? poll_late(cq, entries, completions)
                                    : ops_of(cq->context).poll_cq(cq, entries, completions);
  if (!late && spoils_completions())
    for (int i = 0; i < count; ++i) spoil(cq, completions[i]);
  if (check::is_on()) check::polled(cq, completions, count);
  if (count == 0) {
    call.ends_as_empty_poll(cq, entries, /*extended=*/false);
    return 0;
  }
  if (count < 0 || !call.on()) return call.ends_with_count(count);
  call.begin_result();
  call.text().add("%d", count);
  add_completions(call.text(), completions, count);
  call.finish(TraceOutcome::kSuccess);
  return count;
}

template <typename Request>
int posted(Call& call, int result, Request** bad) {
  if (result == 0 || !call.on()) return call.ends(result);
  call.begin_result();
  call.add_error(result == -1 ? "-1 " : "", result == -1 ? call.error() : result);
  if (bad != nullptr && *bad != nullptr) call.text().add(", bad_wr wr_id 0x%lx", (*bad)->wr_id);
  call.finish(TraceOutcome::kFailure);
  return result;
}

// Makes a call that posts, and tells what is to be checked before and after it.
template <typename Queue, typename Request, typename Make>
int checked_post(Queue* queue, Request* first, Request** bad, Make make) {
  if (!check::is_on()) return make();
  check::Posting posting;
  if constexpr (std::is_same_v<Request, ibv_send_wr>)
    posting = check::sends(queue, first);
  else
    posting = check::receives(queue, first);
  const int result = make();
  if (posting.qp != nullptr || posting.srq != nullptr)
    check::posted(posting, result,
                  result != 0 && bad != nullptr ? check::requests_before(first, *bad) : 0);
  return result;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Call call("ibv_post_send", qp);
  if (call.on()) {
    call.text().add("qp 0x%x", qp->qp_num);
    add_send_requests(call.text(), wr);
  }
  call.begins();
  if (!call.goes_on() && bad_wr != nullptr) *bad_wr = wr;
  if (!call.goes_on()) return posted(call, call.failure<int>(), bad_wr);
  return posted(call,
                checked_post(qp, wr, bad_wr,
                             [&] {
                               return faults::is_on() && faults::holds_posts()
                                          ? faults::post_late(qp, wr, bad_wr)
                                          : ops_of(qp->context).post_send(qp, wr, bad_wr);
                             }),
                bad_wr);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Call call("ibv_post_recv", qp);
  if (call.on()) {
    call.text().add("qp 0x%x", qp->qp_num);
    add_receives(call.text(), wr);
  }
  call.begins();
  if (!call.goes_on() && bad_wr != nullptr) *bad_wr = wr;
  if (!call.goes_on()) return posted(call, call.failure<int>(), bad_wr);
  return posted(
      call,
      checked_post(qp, wr, bad_wr, [&] { return ops_of(qp->context).post_recv(qp, wr, bad_wr); }),
      bad_wr);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Call call("ibv_post_srq_recv", srq);
  if (call.on()) {
    call.text().add("srq %p", static_cast<void*>(srq));
    add_receives(call.text(), wr);
  }
  call.begins();
  if (!call.goes_on() && bad_wr != nullptr) *bad_wr = wr;
  if (!call.goes_on()) return posted(call, call.failure<int>(), bad_wr);
  return posted(call,
                checked_post(srq, wr, bad_wr,
                             [&] { return ops_of(srq->context).post_srq_recv(srq, wr, bad_wr); }),
                bad_wr);
}

// Calls of a device's table that make what is checked.
struct Noting {
  ibv_mr* alloc_null_mr(ibv_pd* pd) const {
    return check::made(extended_of(pd->context).alloc_null_mr(pd),
                       check::Memory{.access = IBV_ACCESS_LOCAL_WRITE});
  }
  ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t bytes, unsigned access) const {
    return check::made(extended_of(pd->context).reg_dm_mr(pd, dm, offset, bytes, access),
                       check::Memory{.access = access});
  }
  ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) const {
    return check::made(extended_of(context).alloc_parent_domain(context, attr), attr->pd);
  }
  ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) const {
    const faults::OwnAsyncFd shown(context);
    ibv_srq* srq = check::made(extended_of(context).create_srq_ex(context, attr));
    if (faults::is_on() && srq != nullptr) faults::note_created(srq);
    return srq;
  }
  ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) const {
    const faults::OwnAsyncFd shown(context);
    return extended_of(context).create_wq(context, attr);
  }
  int destroy_wq(ibv_wq* wq) const {
    const faults::ForgetsEvents forgets(wq);
    return extended_of(wq->context).destroy_wq(wq);
  }
};
constexpr Noting noting;

// A queue pair whose device has got all that was posted, for a request that is posted elsewhere.
const ibv_context_ops& handed_over(ibv_qp* qp) {
  if (faults::is_on()) faults::hand_over(qp);
  return ops_of(qp->context);
}

// A call whose arguments are told by one format.
#define HOSTNIC_TABLE_CALL(result_type, name, subject, table, member, parameters, arguments, word, \
                           ...)                                                                    \
  result_type traced_##member parameters {                                                         \
    Call call(name, subject);                                                                      \
    if (call.on()) call.text().add(__VA_ARGS__);                                                   \
    call.begins();                                                                                 \
    return ends(call, call.goes_on() ? table.member arguments : call.failure<result_type>(),       \
                word);                                                                             \
  }

int traced_req_notify_cq(ibv_cq* cq, int solicited) {
  Call call("ibv_req_notify_cq", cq);
  if (call.on())
    call.text().add("cq %p, %s", HOSTNIC_P(cq), solicited != 0 ? "solicited only" : "all");
  call.begins();
  return call.ends(!call.goes_on()   ? call.failure<int>()
                   : faults::is_on() ? faults::arm_cq(cq, solicited)
                                     : ops_of(cq->context).req_notify_cq(cq, solicited));
}
HOSTNIC_TABLE_CALL(ibv_mw*, "ibv_alloc_mw", pd, ops_of(pd->context), alloc_mw,
                   (ibv_pd * pd, ibv_mw_type type), (pd, type), "mw", "pd %p, type %d",
                   HOSTNIC_P(pd), type)
HOSTNIC_TABLE_CALL(int, "ibv_dealloc_mw", mw, ops_of(mw->context), dealloc_mw, (ibv_mw * mw), (mw),
                   "", "mw %p", HOSTNIC_P(mw))
HOSTNIC_TABLE_CALL(int, "ibv_bind_mw", qp, handed_over(qp), bind_mw,
                   (ibv_qp * qp, ibv_mw* mw, ibv_mw_bind* bind), (qp, mw, bind), "",
                   "qp 0x%x, mw %p, wr_id 0x%lx, 0x%lx, %lu bytes, access 0x%x", qp->qp_num,
                   HOSTNIC_P(mw), bind->wr_id, bind->bind_info.addr, bind->bind_info.length,
                   bind->bind_info.mw_access_flags)
HOSTNIC_TABLE_CALL(int, "ibv_advise_mr", pd, extended_of(pd->context), advise_mr,
                   (ibv_pd * pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
                    uint32_t count),
                   (pd, advice, flags, sges, count), "", "pd %p, advice %d, flags 0x%x, %u ranges",
                   HOSTNIC_P(pd), advice, flags, count)
HOSTNIC_TABLE_CALL(ibv_mr*, "ibv_alloc_null_mr", pd, noting, alloc_null_mr, (ibv_pd * pd), (pd),
                   "mr", "pd %p", HOSTNIC_P(pd))
HOSTNIC_TABLE_CALL(ibv_pd*, "ibv_alloc_parent_domain", context, noting, alloc_parent_domain,
                   (ibv_context * context, ibv_parent_domain_init_attr* attr), (context, attr),
                   "pd", "context %p, pd %p", HOSTNIC_P(context), HOSTNIC_P(attr->pd))
HOSTNIC_TABLE_CALL(ibv_td*, "ibv_alloc_td", context, extended_of(context), alloc_td,
                   (ibv_context * context, ibv_td_init_attr* attr), (context, attr), "td",
                   "context %p", HOSTNIC_P(context))
HOSTNIC_TABLE_CALL(int, "ibv_dealloc_td", td, extended_of(td->context), dealloc_td, (ibv_td * td),
                   (td), "", "td %p", HOSTNIC_P(td))
HOSTNIC_TABLE_CALL(int, "ibv_modify_cq", cq, extended_of(cq->context), modify_cq,
                   (ibv_cq * cq, ibv_modify_cq_attr* attr), (cq, attr), "",
                   "cq %p, count %u, period %u us", HOSTNIC_P(cq), attr->moderate.cq_count,
                   attr->moderate.cq_period)
HOSTNIC_TABLE_CALL(int, "ibv_query_rt_values_ex", context, extended_of(context), query_rt_values,
                   (ibv_context * context, ibv_values_ex* values), (context, values), "",
                   "context %p", HOSTNIC_P(context))
HOSTNIC_TABLE_CALL(int, "ibv_query_device_ex", context, extended_of(context), query_device_ex,
                   (ibv_context * context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t bytes),
                   (context, input, attr, bytes), "", "context %p", HOSTNIC_P(context))
HOSTNIC_TABLE_CALL(ibv_qp*, "ibv_open_qp", context, extended_of(context), open_qp,
                   (ibv_context * context, ibv_qp_open_attr* attr), (context, attr), "qp",
                   "context %p, qp 0x%x", HOSTNIC_P(context), attr->qp_num)
HOSTNIC_TABLE_CALL(ibv_srq*, "ibv_create_srq_ex", context, noting, create_srq_ex,
                   (ibv_context * context, ibv_srq_init_attr_ex* attr), (context, attr), "srq",
                   "context %p, wr %u, sge %u", HOSTNIC_P(context), attr->attr.max_wr,
                   attr->attr.max_sge)
HOSTNIC_TABLE_CALL(int, "ibv_get_srq_num", srq, extended_of(srq->context), get_srq_num,
                   (ibv_srq * srq, uint32_t* number), (srq, number), "", "srq %p", HOSTNIC_P(srq))
HOSTNIC_TABLE_CALL(ibv_xrcd*, "ibv_open_xrcd", context, extended_of(context), open_xrcd,
                   (ibv_context * context, ibv_xrcd_init_attr* attr), (context, attr), "xrcd",
                   "context %p", HOSTNIC_P(context))
HOSTNIC_TABLE_CALL(int, "ibv_close_xrcd", xrcd, extended_of(xrcd->context), close_xrcd,
                   (ibv_xrcd * xrcd), (xrcd), "", "xrcd %p", HOSTNIC_P(xrcd))
HOSTNIC_TABLE_CALL(ibv_wq*, "ibv_create_wq", context, noting, create_wq,
                   (ibv_context * context, ibv_wq_init_attr* attr), (context, attr), "wq",
                   "context %p, wr %u, sge %u, cq %p", HOSTNIC_P(context), attr->max_wr,
                   attr->max_sge, HOSTNIC_P(attr->cq))
HOSTNIC_TABLE_CALL(int, "ibv_modify_wq", wq, extended_of(wq->context), modify_wq,
                   (ibv_wq * wq, ibv_wq_attr* attr), (wq, attr), "", "wq %p, mask 0x%x",
                   HOSTNIC_P(wq), attr->attr_mask)
HOSTNIC_TABLE_CALL(int, "ibv_destroy_wq", wq, noting, destroy_wq, (ibv_wq * wq), (wq), "", "wq %p",
                   HOSTNIC_P(wq))
HOSTNIC_TABLE_CALL(ibv_flow*, "ibv_create_flow", qp, extended_of(qp->context), ibv_create_flow,
                   (ibv_qp * qp, ibv_flow_attr* attr), (qp, attr), "flow",
                   "qp 0x%x, type %d, priority %u, %u specs", qp->qp_num, attr->type,
                   attr->priority, attr->num_of_specs)
HOSTNIC_TABLE_CALL(int, "ibv_destroy_flow", flow, extended_of(flow->context), ibv_destroy_flow,
                   (ibv_flow * flow), (flow), "", "flow %p", HOSTNIC_P(flow))
HOSTNIC_TABLE_CALL(ibv_dm*, "ibv_alloc_dm", context, extended_of(context), alloc_dm,
                   (ibv_context * context, ibv_alloc_dm_attr* attr), (context, attr), "dm",
                   "context %p, %zu bytes", HOSTNIC_P(context), attr->length)
HOSTNIC_TABLE_CALL(int, "ibv_free_dm", dm, extended_of(dm->context), free_dm, (ibv_dm * dm), (dm),
                   "", "dm %p", HOSTNIC_P(dm))
HOSTNIC_TABLE_CALL(ibv_mr*, "ibv_reg_dm_mr", pd, noting, reg_dm_mr,
                   (ibv_pd * pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned int access),
                   (pd, dm, offset, length, access), "mr",
                   "pd %p, dm %p, offset %lu, %zu bytes, access 0x%x", HOSTNIC_P(pd), HOSTNIC_P(dm),
                   offset, length, access)
HOSTNIC_TABLE_CALL(int, "ibv_modify_qp_rate_limit", qp, extended_of(qp->context),
                   modify_qp_rate_limit, (ibv_qp * qp, ibv_qp_rate_limit_attr* attr), (qp, attr),
                   "", "qp 0x%x, %u kbit/s", qp->qp_num, attr->rate_limit)

int traced_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes) {
  Call call("ibv_query_port", context);
  if (call.on()) call.text().add("context %p, port %u", HOSTNIC_P(context), port);
  call.begins();
  const int result = call.goes_on() ? extended_of(context).query_port(context, port, attr, bytes)
                                    : call.failure<int>();
  if (result == 0 && faults::is_on() && faults::is_port_down(context)) attr->state = IBV_PORT_DOWN;
  return call.ends(result);
}

ibv_cq_ex* traced_create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  Call call("ibv_create_cq_ex", context);
  call.is_of_size(attr->cqe);
  if (call.on())
    call.text().add("context %p, %u entries, channel %p, vector %u, flags 0x%lx",
                    HOSTNIC_P(context), attr->cqe, HOSTNIC_P(attr->channel), attr->comp_vector,
                    attr->wc_flags);
  call.begins();
  const faults::OwnAsyncFd shown(context);
  ibv_cq_ex* cq = call.ends_with(call.goes_on() ? extended_of(context).create_cq_ex(context, attr)
                                                : call.failure<ibv_cq_ex*>(),
                                 "cq");
  check::made(cq);
  watch_cq(cq);
  if (faults::is_on() && cq != nullptr) faults::begin_cq(ibv_cq_ex_to_cq(cq));
  return cq;
}

ibv_qp* traced_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  Call call("ibv_create_qp_ex", context);
  if (call.on()) {
    call.text().add("context %p, pd %p", HOSTNIC_P(context),
                    (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? HOSTNIC_P(attr->pd) : nullptr);
    add_qp_init(call.text(), attr->qp_type, attr->send_cq, attr->recv_cq, attr->srq, attr->cap,
                attr->sq_sig_all != 0);
  }
  call.begins();
  const faults::OwnAsyncFd shown(context);
  ibv_qp* qp =
      call.goes_on() ? extended_of(context).create_qp_ex(context, attr) : call.failure<ibv_qp*>();
  check::made(qp, attr);
  if (faults::is_on() && qp != nullptr) faults::note_created(qp, attr->cap.max_send_wr);
  if (qp == nullptr || !call.on()) return call.ends_with(qp, "qp");
  call.begin_result();
  call.text().add("qp 0x%x", qp->qp_num);
  call.finish(TraceOutcome::kSuccess);
  return qp;
}

// -- Extended completion queues.

constinit Originals<ibv_cq_ex> extended_cqs;

// The completion at which the queue is.
void add_current(Text& text, ibv_cq_ex* cq) {
  if (cq->status != IBV_WC_SUCCESS) {
    add_wc_status(text, cq->status);
    text.add(" wr_id 0x%lx vendor_err %u", cq->wr_id, ibv_wc_read_vendor_err(cq));
    return;
  }
  add_wc_opcode(text, ibv_wc_read_opcode(cq));
  text.add(" wr_id 0x%lx", cq->wr_id);
}

int moved_on(Call& call, int result, ibv_cq_ex* cq) {
  if (result != 0 || !call.on()) return call.ends(result);
  call.begin_result();
  add_current(call.text(), cq);
  call.finish(TraceOutcome::kSuccess);
  return 0;
}

// The vendor error of the completion that this thread looks at, where it was made to fail.
struct Spoilt {
  const ibv_cq_ex* cq = nullptr;
  uint32_t vendor_err = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local Spoilt spoilt;

uint32_t read_vendor_err(ibv_cq_ex* cq) {
  if (const auto* held = held_completion(cq)) return held->wc.vendor_err;
  return spoilt.cq == cq ? spoilt.vendor_err : extended_cqs.find(cq)->read_vendor_err(cq);
}

void spoil_current(ibv_cq_ex* cq) {
  spoilt.cq = nullptr;
  if (cq->status != IBV_WC_SUCCESS) return;
  faults::Completion completion{cq->status, 0, ibv_wc_read_opcode(cq),
                                cq->read_qp_num != nullptr ? ibv_wc_read_qp_num(cq) : 0,
                                cq->read_byte_len != nullptr ? ibv_wc_read_byte_len(cq) : 0};
  const uint32_t ordinal = faults::cq_ordinal(ibv_cq_ex_to_cq(cq));
  if (!faults::spoil(cq->context, completion, ordinal, to_error)) return;
  cq->status = completion.status;
  spoilt = {cq, completion.vendor_err};
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  Call call("ibv_start_poll", cq);
  if (call.on()) call.text().add("cq %p", HOSTNIC_P(cq));
  call.begins();
  const bool late = faults::is_on() && faults::holds_completions();
  const int result = !call.goes_on() ? call.failure<int>()
                     : late          ? start_late(cq)
                                     : extended_cqs.find(cq)->start_poll(cq, attr);
  if (!late && result == 0 && spoils_completions()) spoil_current(cq);
  if (result == 0 && check::is_on()) check::polled(cq);
  if (result == ENOENT) {
    call.ends_as_empty_poll(cq, 0, /*extended=*/true);
    return result;
  }
  return moved_on(call, result, cq);
}

int next_poll(ibv_cq_ex* cq) {
  Call call("ibv_next_poll", cq);
  if (call.on()) call.text().add("cq %p", HOSTNIC_P(cq));
  call.begins();
  const bool late = is_late(cq);
  const int result = late ? next_late(cq) : extended_cqs.find(cq)->next_poll(cq);
  if (!late && result == 0 && spoils_completions()) spoil_current(cq);
  if (result == 0 && check::is_on()) check::polled(cq);
  return moved_on(call, result, cq);
}

void end_poll(ibv_cq_ex* cq) {
  Call call("ibv_end_poll", cq);
  if (call.on()) call.text().add("cq %p", HOSTNIC_P(cq));
  call.begins();
  if (is_late(cq))
    end_late(cq);
  else
    extended_cqs.find(cq)->end_poll(cq);
  call.ends_without_result();
}

// -- What the tables get.

void put_ops(ibv_context_ops& ops) {
  put(ops.alloc_mw, traced_alloc_mw);
  put(ops.bind_mw, traced_bind_mw);
  put(ops.dealloc_mw, traced_dealloc_mw);
  put(ops.poll_cq, poll_cq);
  put(ops.req_notify_cq, traced_req_notify_cq);
  put(ops.post_srq_recv, post_srq_recv);
  put(ops.post_send, post_send);
  put(ops.post_recv, post_recv);
}

// Members of a verbs_context by whether this provider's has them.
template <typename Do>
void for_each_member(verbs_context& table, size_t bytes, Do each) {
#define HOSTNIC_MEMBER(member, traced)                                  \
  if (bytes >= sizeof(verbs_context) - offsetof(verbs_context, member)) \
  each(table.member, traced, &verbs_context::member)
  HOSTNIC_MEMBER(query_port, traced_query_port);
  HOSTNIC_MEMBER(advise_mr, traced_advise_mr);
  HOSTNIC_MEMBER(alloc_null_mr, traced_alloc_null_mr);
  HOSTNIC_MEMBER(reg_dm_mr, traced_reg_dm_mr);
  HOSTNIC_MEMBER(alloc_dm, traced_alloc_dm);
  HOSTNIC_MEMBER(free_dm, traced_free_dm);
  HOSTNIC_MEMBER(modify_qp_rate_limit, traced_modify_qp_rate_limit);
  HOSTNIC_MEMBER(alloc_parent_domain, traced_alloc_parent_domain);
  HOSTNIC_MEMBER(dealloc_td, traced_dealloc_td);
  HOSTNIC_MEMBER(alloc_td, traced_alloc_td);
  HOSTNIC_MEMBER(modify_cq, traced_modify_cq);
  HOSTNIC_MEMBER(modify_wq, traced_modify_wq);
  HOSTNIC_MEMBER(destroy_wq, traced_destroy_wq);
  HOSTNIC_MEMBER(create_wq, traced_create_wq);
  HOSTNIC_MEMBER(query_rt_values, traced_query_rt_values);
  HOSTNIC_MEMBER(create_cq_ex, traced_create_cq_ex);
  HOSTNIC_MEMBER(query_device_ex, traced_query_device_ex);
  HOSTNIC_MEMBER(ibv_destroy_flow, traced_ibv_destroy_flow);
  HOSTNIC_MEMBER(ibv_create_flow, traced_ibv_create_flow);
  HOSTNIC_MEMBER(open_qp, traced_open_qp);
  HOSTNIC_MEMBER(create_qp_ex, traced_create_qp_ex);
  HOSTNIC_MEMBER(get_srq_num, traced_get_srq_num);
  HOSTNIC_MEMBER(create_srq_ex, traced_create_srq_ex);
  HOSTNIC_MEMBER(open_xrcd, traced_open_xrcd);
  HOSTNIC_MEMBER(close_xrcd, traced_close_xrcd);
#undef HOSTNIC_MEMBER
}

void unlock_in_child() {
  contexts.unlock_in_child();
  extended_cqs.unlock_in_child();
}

[[gnu::constructor]] void watch_forks() { pthread_atfork(nullptr, nullptr, unlock_in_child); }

}  // namespace

void watch_context(ibv_context* context) {
  if (context == nullptr || !is_watching()) return;
  if (faults::is_on()) {
    faults::begin_time();
    faults::begin_events(context);
  }
  ContextFunctions functions{};
  functions.ops = context->ops;
  verbs_context* extended = verbs_get_ctx(context);
  const size_t bytes = extended != nullptr ? extended->sz : 0;
  if (extended != nullptr)
    for_each_member(*extended, bytes,
                    [&](auto& place, auto*, auto member) { functions.extended.*member = place; });
  if (!contexts.add(context, functions)) return;
  put_ops(context->ops);
  if (extended != nullptr)
    for_each_member(*extended, bytes, [](auto& place, auto* traced, auto) { put(place, traced); });
}

void forget_context(ibv_context* context) {
  if (context != nullptr && faults::is_on()) faults::end_events(context);
  ContextFunctions functions;
  if (context == nullptr || contexts.find(context) == nullptr) return;
  functions = *contexts.find(context);
  context->ops = functions.ops;
  if (verbs_context* extended = verbs_get_ctx(context))
    for_each_member(*extended, extended->sz,
                    [&](auto& place, auto*, auto member) { place = functions.extended.*member; });
  contexts.remove(context, functions);
}

void watch_cq(ibv_cq_ex* cq) {
  if (cq == nullptr || !is_watching() || !extended_cqs.add(cq, *cq)) return;
  put(cq->start_poll, start_poll);
  put(cq->next_poll, next_poll);
  put(cq->end_poll, end_poll);
  put(cq->read_vendor_err, read_vendor_err);
  if (faults::is_on()) watch_reads(*cq);
}

void forget_cq(ibv_cq* cq) {
  auto* extended = reinterpret_cast<ibv_cq_ex*>(cq);
  ibv_cq_ex functions;
  const ibv_cq_ex* known = extended_cqs.find(cq);
  if (known == nullptr) return;
  extended->start_poll = known->start_poll;
  extended->next_poll = known->next_poll;
  extended->end_poll = known->end_poll;
  extended->read_vendor_err = known->read_vendor_err;
  if (faults::is_on()) forget_reads(*extended, *known);
  extended_cqs.remove(cq, functions);
}

const ibv_context_ops& device_ops(const ibv_context* context) { return ops_of(context); }
const ibv_cq_ex* device_functions(const ibv_cq_ex* cq) { return extended_cqs.find(cq); }

bool is_watched_cq(const ibv_cq* cq) { return extended_cqs.find(cq) != nullptr; }

}  // namespace hostnic::calls
