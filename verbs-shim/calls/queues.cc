// SPDX-License-Identifier: BSD-3-Clause
// The calls that libibverbs has as symbols, about queues, queue pairs and address handles.
#include <algorithm>

#include "verbs-shim/calls/call.h"
#include "verbs-shim/calls/exported.h"
#include "verbs-shim/calls/next.h"
#include "verbs-shim/calls/tables.h"
#include "verbs-shim/faults/events.h"
#include "verbs-shim/faults/late_posts.h"
#include "verbs-shim/faults/late_queues.h"
#include "verbs-shim/faults/queue_pairs.h"
#include "verbs-shim/trace/words.h"

using namespace hostnic;
using namespace hostnic::calls;

// -- Completion channels and queues.

HOSTNIC_CALL_OF_PROGRAM ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  HOSTNIC_NEXT(ibv_create_comp_channel);
  Call call("ibv_create_comp_channel", context);
  HOSTNIC_ARGUMENTS(call, "context %p", address(context));
  call.begins();
  ibv_comp_channel* channel = check::made(call.make(next, context));
  if (faults::is_on() && channel != nullptr) faults::begin_channel(channel);
  return call.ends_with(channel, "channel");
}

HOSTNIC_CALL_OF_PROGRAM int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  HOSTNIC_NEXT(ibv_destroy_comp_channel);
  Call call("ibv_destroy_comp_channel", channel);
  HOSTNIC_ARGUMENTS(call, "channel %p", address(channel));
  call.begins();
  if (faults::is_on()) faults::end_channel(channel);
  const int result = call.destroy(next, channel);
  if (faults::is_on() && result != 0) faults::begin_channel(channel);
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                              ibv_comp_channel* channel, int vector) {
  HOSTNIC_NEXT(ibv_create_cq);
  Call call("ibv_create_cq", context);
  call.is_of_size(static_cast<uint64_t>(std::max(entries, 0)));
  HOSTNIC_ARGUMENTS(call, "context %p, %d entries, channel %p, vector %d", address(context),
                    entries, address(channel), vector);
  call.begins();
  const faults::OwnAsyncFd shown(context);
  ibv_cq* cq = check::made(call.make(next, context, entries, cq_context, channel, vector));
  if (faults::is_on() && cq != nullptr) faults::begin_cq(cq);
  return call.ends_with(cq, "cq");
}

HOSTNIC_CALL_OF_PROGRAM int ibv_resize_cq(ibv_cq* cq, int entries) {
  HOSTNIC_NEXT(ibv_resize_cq);
  Call call("ibv_resize_cq", cq);
  call.is_of_size(static_cast<uint64_t>(std::max(entries, 0)));
  HOSTNIC_ARGUMENTS(call, "cq %p, %d entries", address(cq), entries);
  call.begins();
  const int result = call.make(next, cq, entries);
  if (result == 0 && check::is_on()) check::resized(cq);
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_destroy_cq(ibv_cq* cq) {
  HOSTNIC_NEXT(ibv_destroy_cq);
  Call call("ibv_destroy_cq", cq);
  HOSTNIC_ARGUMENTS(call, "cq %p", address(cq));
  call.begins();
  const bool watched = is_watched_cq(cq);
  if (watched) forget_cq(cq);
  const faults::ForgetsEvents forgets(cq);
  faults::LateQueue* const late = faults::is_on() ? faults::end_cq(cq) : nullptr;
  const int result = call.destroy(next, cq);
  if (late != nullptr) faults::cq_ended(late, /*stays=*/result != 0);
  if (watched && result != 0) watch_cq(reinterpret_cast<ibv_cq_ex*>(cq));
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq,
                                             void** cq_context) {
  HOSTNIC_NEXT(ibv_get_cq_event);
  Call call("ibv_get_cq_event", channel);
  HOSTNIC_ARGUMENTS(call, "channel %p", address(channel));
  call.begins();
  const int result = !call.goes_on()   ? call.failure<int>()
                     : faults::is_on() ? faults::take_cq_event(channel, cq, cq_context)
                                       : next(channel, cq, cq_context);
  if (result == 0 && check::is_on()) check::took_cq_event(*cq);
  return ends_telling(call, result, [&](Text& text) { text.add(", cq %p", address(*cq)); });
}

HOSTNIC_CALL_OF_PROGRAM void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  HOSTNIC_NEXT(ibv_ack_cq_events);
  Call call("ibv_ack_cq_events", cq);
  HOSTNIC_ARGUMENTS(call, "cq %p, %u", address(cq), count);
  call.begins();
  if (check::is_on()) check::acknowledged(cq, count);
  next(cq, faults::is_on() ? faults::acknowledged_events(cq, count) : count);
  call.ends_without_result();
}

// -- Shared receive queues.

HOSTNIC_CALL_OF_PROGRAM ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  HOSTNIC_NEXT(ibv_create_srq);
  Call call("ibv_create_srq", pd);
  call.is_of_size(attr->attr.max_wr);
  HOSTNIC_ARGUMENTS(call, "pd %p, wr %u, sge %u", address(pd), attr->attr.max_wr,
                    attr->attr.max_sge);
  call.begins();
  const faults::OwnAsyncFd shown(pd->context);
  ibv_srq* srq = check::made(call.make(next, pd, attr));
  if (faults::is_on() && srq != nullptr) faults::note_created(srq);
  return call.ends_with(srq, "srq");
}

HOSTNIC_CALL_OF_PROGRAM int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  HOSTNIC_NEXT(ibv_modify_srq);
  Call call("ibv_modify_srq", srq);
  HOSTNIC_ARGUMENTS(call, "srq %p", address(srq));
  if ((mask & IBV_SRQ_MAX_WR) != 0) HOSTNIC_ARGUMENTS(call, ", wr %u", attr->max_wr);
  if ((mask & IBV_SRQ_LIMIT) != 0) HOSTNIC_ARGUMENTS(call, ", limit %u", attr->srq_limit);
  call.begins();
  return call.ends(call.make(next, srq, attr, mask));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  HOSTNIC_NEXT(ibv_query_srq);
  Call call("ibv_query_srq", srq);
  HOSTNIC_ARGUMENTS(call, "srq %p", address(srq));
  call.begins();
  return call.ends(call.make(next, srq, attr));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_destroy_srq(ibv_srq* srq) {
  HOSTNIC_NEXT(ibv_destroy_srq);
  Call call("ibv_destroy_srq", srq);
  HOSTNIC_ARGUMENTS(call, "srq %p", address(srq));
  call.begins();
  const faults::ForgetsEvents forgets(srq);
  const uint32_t ordinal = faults::is_on() ? faults::forget(srq) : 0;
  const int result = call.destroy(next, srq);
  if (ordinal != 0 && result != 0) faults::remember(srq, ordinal);
  return call.ends(result);
}

// -- Queue pairs.

HOSTNIC_CALL_OF_PROGRAM ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  HOSTNIC_NEXT(ibv_create_qp);
  Call call("ibv_create_qp", pd);
  if (call.on()) {
    call.text().add("pd %p", address(pd));
    add_qp_init(call.text(), attr->qp_type, attr->send_cq, attr->recv_cq, attr->srq, attr->cap,
                attr->sq_sig_all != 0);
  }
  call.begins();
  const faults::OwnAsyncFd shown(pd->context);
  ibv_qp* qp = check::made(call.make(next, pd, attr), attr);
  if (faults::is_on() && qp != nullptr) faults::note_created(qp, attr->cap.max_send_wr);
  if (qp == nullptr || !call.on()) return call.ends_with(qp, "qp");
  call.begin_result();
  call.text().add("qp 0x%x", qp->qp_num);
  call.finish(TraceOutcome::kSuccess);
  return qp;
}

HOSTNIC_CALL_OF_PROGRAM int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  HOSTNIC_NEXT(ibv_modify_qp);
  Call call("ibv_modify_qp", qp);
  if ((mask & IBV_QP_STATE) != 0) call.leads_to(attr->qp_state);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x", qp->qp_num);
  if (call.on()) add_qp_attr(call.text(), *attr, mask);
  call.begins();
  if (faults::is_on() && (mask & IBV_QP_STATE) != 0) {
    if (attr->qp_state == IBV_QPS_RESET)
      faults::drop_posts(qp);
    else
      faults::hand_over(qp);
  }
  const int result = call.make(next, qp, attr, mask);
  if (faults::is_on() && result == 0 && (mask & IBV_QP_STATE) != 0 &&
      attr->qp_state == IBV_QPS_RESET) {
    faults::set_failed(qp, false);
    faults::drop_completions(qp->context, qp->qp_num);
  }
  if (check::is_on() && result == 0) check::modified(qp, *attr, mask);
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask,
                                         ibv_qp_init_attr* init) {
  HOSTNIC_NEXT(ibv_query_qp);
  Call call("ibv_query_qp", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x", qp->qp_num);
  call.begins();
  const int result = call.make(next, qp, attr, mask, init);
  if (result == 0 && check::is_on()) check::queried(qp, *attr, mask);
  return ends_telling(call, result,
                      [&](Text& text) { add_qp_attr(text, *attr, mask & IBV_QP_STATE); });
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode,
                                                       uint32_t flags) {
  HOSTNIC_NEXT(ibv_query_qp_data_in_order);
  Call call("ibv_query_qp_data_in_order", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x, opcode %d, flags 0x%x", qp->qp_num, opcode, flags);
  call.begins();
  return call.ends_with_count(call.make(next, qp, opcode, flags));
}

HOSTNIC_CALL_OF_PROGRAM ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  HOSTNIC_NEXT(ibv_qp_to_qp_ex);
  ibv_qp_ex* extended = next(qp);
  watch_qp(extended);
  return extended;
}

HOSTNIC_CALL_OF_PROGRAM int ibv_destroy_qp(ibv_qp* qp) {
  HOSTNIC_NEXT(ibv_destroy_qp);
  Call call("ibv_destroy_qp", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x", qp->qp_num);
  call.begins();
  const bool watched = is_watched_qp(qp);
  if (watched) forget_qp(qp);
  const faults::ForgetsEvents forgets(qp);
  const faults::KnownQp known = faults::is_on() ? faults::forget(qp) : faults::KnownQp{};
  if (faults::is_on()) faults::drop_posts(qp);
  ibv_context* const context = qp->context;
  const uint32_t qpn = qp->qp_num;
  const int result = call.destroy(next, qp);
  if (faults::is_on() && result == 0) faults::drop_completions(context, qpn);
  if (known.qp != nullptr && result != 0) faults::remember(known);
  if (watched && result != 0) watch_qp(reinterpret_cast<ibv_qp_ex*>(qp));
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  HOSTNIC_NEXT(ibv_attach_mcast);
  Call call("ibv_attach_mcast", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x, ", qp->qp_num);
  if (call.on()) add_gid(call.text(), *gid);
  call.begins();
  return call.ends(call.make(next, qp, gid, lid));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  HOSTNIC_NEXT(ibv_detach_mcast);
  Call call("ibv_detach_mcast", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x, ", qp->qp_num);
  if (call.on()) add_gid(call.text(), *gid);
  call.begins();
  return call.ends(call.make(next, qp, gid, lid));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  HOSTNIC_NEXT(ibv_query_ece);
  Call call("ibv_query_ece", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x", qp->qp_num);
  call.begins();
  return call.ends(call.make(next, qp, ece));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  HOSTNIC_NEXT(ibv_set_ece);
  Call call("ibv_set_ece", qp);
  HOSTNIC_ARGUMENTS(call, "qp 0x%x, vendor 0x%x, options 0x%x", qp->qp_num, ece->vendor_id,
                    ece->options);
  call.begins();
  return call.ends(call.make(next, qp, ece));
}

// -- Address handles.

HOSTNIC_CALL_OF_PROGRAM ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  HOSTNIC_NEXT(ibv_create_ah);
  Call call("ibv_create_ah", pd);
  HOSTNIC_ARGUMENTS(call, "pd %p, ", address(pd));
  if (call.on()) add_ah(call.text(), *attr);
  call.begins();
  return call.ends_with(check::made(call.make(next, pd, attr)), "ah");
}

HOSTNIC_CALL_OF_PROGRAM ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                                      uint8_t port) {
  HOSTNIC_NEXT(ibv_create_ah_from_wc);
  Call call("ibv_create_ah_from_wc", pd);
  HOSTNIC_ARGUMENTS(call, "pd %p, src_qp 0x%x, port %u", address(pd), wc->src_qp, port);
  call.begins();
  return call.ends_with(check::made(call.make(next, pd, wc, grh, port)), "ah");
}

HOSTNIC_CALL_OF_PROGRAM int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc,
                                                ibv_grh* grh, ibv_ah_attr* attr) {
  HOSTNIC_NEXT(ibv_init_ah_from_wc);
  Call call("ibv_init_ah_from_wc", context);
  HOSTNIC_ARGUMENTS(call, "context %p, src_qp 0x%x, port %u", address(context), wc->src_qp, port);
  call.begins();
  return call.ends(call.make(next, context, port, wc, grh, attr));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_destroy_ah(ibv_ah* ah) {
  HOSTNIC_NEXT(ibv_destroy_ah);
  Call call("ibv_destroy_ah", ah);
  HOSTNIC_ARGUMENTS(call, "ah %p", address(ah));
  call.begins();
  return call.ends(call.destroy(next, ah));
}
