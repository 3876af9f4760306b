// SPDX-License-Identifier: BSD-3-Clause
// The calls of librdmacm. Verbs that it makes by itself are traced inside of them.
#include <rdma/rdma_cma.h>

#include <type_traits>

#include "verbs-shim/calls/call.h"
#include "verbs-shim/calls/next.h"
#include "verbs-shim/trace/words.h"

using namespace hostnic;
using namespace hostnic::calls;

namespace {
const void* address(const void* pointer) { return pointer; }
}  // namespace

#define HOSTNIC_ARGUMENTS(call, ...) \
  if ((call).on()) (call).text().add(__VA_ARGS__)

// A call about one identifier, which returns an int.
#define HOSTNIC_ID_CALL(name)                        \
  HOSTNIC_CALL_OF_PROGRAM int name(rdma_cm_id* id) { \
    HOSTNIC_NEXT(name);                              \
    Call call(#name, id);                            \
    HOSTNIC_ARGUMENTS(call, "id %p", address(id));   \
    call.begins();                                   \
    return call.ends(call.make(next, id));           \
  }

HOSTNIC_ID_CALL(rdma_destroy_id)
HOSTNIC_ID_CALL(rdma_establish)
HOSTNIC_ID_CALL(rdma_disconnect)

HOSTNIC_CALL_OF_PROGRAM rdma_event_channel* rdma_create_event_channel() {
  HOSTNIC_NEXT(rdma_create_event_channel);
  Call call("rdma_create_event_channel");
  call.begins();
  return call.ends_with(call.make(next), "channel");
}

HOSTNIC_CALL_OF_PROGRAM void rdma_destroy_event_channel(rdma_event_channel* channel) {
  HOSTNIC_NEXT(rdma_destroy_event_channel);
  Call call("rdma_destroy_event_channel");
  HOSTNIC_ARGUMENTS(call, "channel %p", address(channel));
  call.begins();
  next(channel);
  call.ends_without_result();
}

// A result beside which an identifier was made.
static int ends_with_id(Call& call, int result, rdma_cm_id** id) {
  if (result != 0 || !call.on()) return call.ends(result);
  call.begin_result();
  call.text().add("0, id %p", address(*id));
  call.finish(TraceOutcome::kSuccess);
  return 0;
}

HOSTNIC_CALL_OF_PROGRAM int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id,
                                           void* context, rdma_port_space space) {
  HOSTNIC_NEXT(rdma_create_id);
  Call call("rdma_create_id");
  HOSTNIC_ARGUMENTS(call, "channel %p, port space 0x%x", address(channel), space);
  call.begins();
  return ends_with_id(call, call.make(next, channel, id, context, space), id);
}

HOSTNIC_CALL_OF_PROGRAM int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd,
                                           ibv_qp_init_attr* attr) {
  HOSTNIC_NEXT(rdma_create_ep);
  Call call("rdma_create_ep");
  HOSTNIC_ARGUMENTS(call, "info %p, pd %p", address(info), address(pd));
  call.begins();
  return ends_with_id(call, call.make(next, id, info, pd, attr), id);
}

HOSTNIC_CALL_OF_PROGRAM void rdma_destroy_ep(rdma_cm_id* id) {
  HOSTNIC_NEXT(rdma_destroy_ep);
  Call call("rdma_destroy_ep", id);
  HOSTNIC_ARGUMENTS(call, "id %p", address(id));
  call.begins();
  next(id);
  call.ends_without_result();
}

HOSTNIC_CALL_OF_PROGRAM int rdma_bind_addr(rdma_cm_id* id, sockaddr* local) {
  HOSTNIC_NEXT(rdma_bind_addr);
  Call call("rdma_bind_addr", id);
  HOSTNIC_ARGUMENTS(call, "id %p, ", address(id));
  if (call.on()) add_socket_address(call.text(), local);
  call.begins();
  return call.ends(call.make(next, id, local));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source,
                                              sockaddr* destination, int timeout_ms) {
  HOSTNIC_NEXT(rdma_resolve_addr);
  Call call("rdma_resolve_addr", id);
  if (call.on()) {
    call.text().add("id %p, from ", address(id));
    add_socket_address(call.text(), source);
    call.text().add(", to ");
    add_socket_address(call.text(), destination);
    call.text().add(", %d ms", timeout_ms);
  }
  call.begins();
  return call.ends(call.make(next, id, source, destination, timeout_ms));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  HOSTNIC_NEXT(rdma_resolve_route);
  Call call("rdma_resolve_route", id);
  HOSTNIC_ARGUMENTS(call, "id %p, %d ms", address(id), timeout_ms);
  call.begins();
  return call.ends(call.make(next, id, timeout_ms));
}

static int ends_with_qp(Call& call, int result, const rdma_cm_id* id) {
  if (result != 0 || !call.on()) return call.ends(result);
  call.begin_result();
  call.text().add("0, qp 0x%x", id->qp != nullptr ? id->qp->qp_num : 0);
  call.finish(TraceOutcome::kSuccess);
  return 0;
}

HOSTNIC_CALL_OF_PROGRAM int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  HOSTNIC_NEXT(rdma_create_qp);
  Call call("rdma_create_qp", id);
  if (call.on()) {
    call.text().add("id %p, pd %p", address(id), address(pd));
    add_qp_init(call.text(), attr->qp_type, attr->send_cq, attr->recv_cq, attr->srq, attr->cap,
                attr->sq_sig_all != 0);
  }
  call.begins();
  return ends_with_qp(call, call.make(next, id, pd, attr), id);
}

HOSTNIC_CALL_OF_PROGRAM int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  HOSTNIC_NEXT(rdma_create_qp_ex);
  Call call("rdma_create_qp_ex", id);
  if (call.on()) {
    call.text().add("id %p", address(id));
    add_qp_init(call.text(), attr->qp_type, attr->send_cq, attr->recv_cq, attr->srq, attr->cap,
                attr->sq_sig_all != 0);
  }
  call.begins();
  return ends_with_qp(call, call.make(next, id, attr), id);
}

HOSTNIC_CALL_OF_PROGRAM void rdma_destroy_qp(rdma_cm_id* id) {
  HOSTNIC_NEXT(rdma_destroy_qp);
  Call call("rdma_destroy_qp", id);
  HOSTNIC_ARGUMENTS(call, "id %p", address(id));
  call.begins();
  next(id);
  call.ends_without_result();
}

HOSTNIC_CALL_OF_PROGRAM int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) {
  HOSTNIC_NEXT(rdma_connect);
  Call call("rdma_connect", id);
  HOSTNIC_ARGUMENTS(call, "id %p", address(id));
  if (call.on()) add_connection(call.text(), param);
  call.begins();
  return call.ends(call.make(next, id, param));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) {
  HOSTNIC_NEXT(rdma_accept);
  Call call("rdma_accept", id);
  HOSTNIC_ARGUMENTS(call, "id %p", address(id));
  if (call.on()) add_connection(call.text(), param);
  call.begins();
  return call.ends(call.make(next, id, param));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_listen(rdma_cm_id* id, int backlog) {
  HOSTNIC_NEXT(rdma_listen);
  Call call("rdma_listen", id);
  HOSTNIC_ARGUMENTS(call, "id %p, backlog %d", address(id), backlog);
  call.begins();
  return call.ends(call.make(next, id, backlog));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  HOSTNIC_NEXT(rdma_get_request);
  Call call("rdma_get_request", listener);
  HOSTNIC_ARGUMENTS(call, "id %p", address(listener));
  call.begins();
  return ends_with_id(call, call.make(next, listener, id), id);
}

HOSTNIC_CALL_OF_PROGRAM int rdma_reject(rdma_cm_id* id, const void* data, uint8_t bytes) {
  HOSTNIC_NEXT(rdma_reject);
  Call call("rdma_reject", id);
  HOSTNIC_ARGUMENTS(call, "id %p, private_data %u bytes", address(id), bytes);
  call.begins();
  return call.ends(call.make(next, id, data, bytes));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  HOSTNIC_NEXT(rdma_notify);
  Call call("rdma_notify", id);
  HOSTNIC_ARGUMENTS(call, "id %p, ", address(id));
  if (call.on()) add_event(call.text(), event);
  call.begins();
  return call.ends(call.make(next, id, event));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_join_multicast(rdma_cm_id* id, sockaddr* group, void* context) {
  HOSTNIC_NEXT(rdma_join_multicast);
  Call call("rdma_join_multicast", id);
  HOSTNIC_ARGUMENTS(call, "id %p, ", address(id));
  if (call.on()) add_socket_address(call.text(), group);
  call.begins();
  return call.ends(call.make(next, id, group, context));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_leave_multicast(rdma_cm_id* id, sockaddr* group) {
  HOSTNIC_NEXT(rdma_leave_multicast);
  Call call("rdma_leave_multicast", id);
  HOSTNIC_ARGUMENTS(call, "id %p, ", address(id));
  if (call.on()) add_socket_address(call.text(), group);
  call.begins();
  return call.ends(call.make(next, id, group));
}

// Makes another event of one that is about to be delivered, or has it wait, as rules say.
static void spoil(rdma_cm_event& event) {
  faults::FaultOccasion occasion;
  occasion.subject = faults::Subject::kCmEvent;
  occasion.event = event.event;
  const faults::Decision decision = faults::decide(occasion);
  if (decision.delay_ns != 0) faults::wait_ns(decision.delay_ns);
  if (decision.taken == nullptr) return;
  event.event = static_cast<rdma_cm_event_type>(*decision.taken->becomes);
  event.status = decision.taken->reason;
}

HOSTNIC_CALL_OF_PROGRAM int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  HOSTNIC_NEXT(rdma_get_cm_event);
  Call call("rdma_get_cm_event");
  HOSTNIC_ARGUMENTS(call, "channel %p", address(channel));
  call.begins();
  const int result = call.make(next, channel, event);
  if (result == 0 && faults::is_on()) spoil(**event);
  if (result != 0 || !call.on()) return call.ends(result);
  call.begin_result();
  const rdma_cm_event& happened = **event;
  call.text().add("0, ");
  add_cm_event(call.text(), happened.event);
  call.text().add(" id %p", address(happened.id));
  if (happened.listen_id != nullptr) call.text().add(" listen_id %p", address(happened.listen_id));
  if (happened.status != 0) call.text().add(" status %d", happened.status);
  call.finish(TraceOutcome::kSuccess);
  return 0;
}

HOSTNIC_CALL_OF_PROGRAM int rdma_ack_cm_event(rdma_cm_event* event) {
  HOSTNIC_NEXT(rdma_ack_cm_event);
  Call call("rdma_ack_cm_event");
  if (call.on()) add_cm_event(call.text(), event->event);
  call.begins();
  return call.ends(call.make(next, event));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_set_option(rdma_cm_id* id, int level, int name, void* value,
                                            size_t bytes) {
  HOSTNIC_NEXT(rdma_set_option);
  Call call("rdma_set_option", id);
  HOSTNIC_ARGUMENTS(call, "id %p, level %d, option %d, %zu bytes", address(id), level, name, bytes);
  call.begins();
  return call.ends(call.make(next, id, level, name, value, bytes));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  HOSTNIC_NEXT(rdma_migrate_id);
  Call call("rdma_migrate_id", id);
  HOSTNIC_ARGUMENTS(call, "id %p, channel %p", address(id), address(channel));
  call.begins();
  return call.ends(call.make(next, id, channel));
}

HOSTNIC_CALL_OF_PROGRAM int rdma_getaddrinfo(const char* node, const char* service,
                                             const rdma_addrinfo* hints, rdma_addrinfo** result) {
  HOSTNIC_NEXT(rdma_getaddrinfo);
  Call call("rdma_getaddrinfo");
  HOSTNIC_ARGUMENTS(call, "%s, %s", node != nullptr ? node : "NULL",
                    service != nullptr ? service : "NULL");
  call.begins();
  return call.ends(call.make(next, node, service, hints, result));
}

HOSTNIC_CALL_OF_PROGRAM ibv_context** rdma_get_devices(int* count) {
  HOSTNIC_NEXT(rdma_get_devices);
  Call call("rdma_get_devices");
  call.begins();
  return call.ends_with(call.make(next, count), "list");
}

HOSTNIC_CALL_OF_PROGRAM int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  HOSTNIC_NEXT(rdma_init_qp_attr);
  Call call("rdma_init_qp_attr", id);
  HOSTNIC_ARGUMENTS(call, "id %p", address(id));
  if (call.on()) add_qp_attr(call.text(), *attr, IBV_QP_STATE);
  call.begins();
  return call.ends(call.make(next, id, attr, mask));
}
