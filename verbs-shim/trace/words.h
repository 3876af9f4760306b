// SPDX-License-Identifier: BSD-3-Clause
// Arguments of verbs in words. Each function appends to a text; all take what programs hand over,
// so numbers that mean nothing are printed as numbers.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "verbs-shim/trace/text.h"

namespace hostnic::trace {

void add_access(Text& text, unsigned access);
void add_send_flags(Text& text, unsigned flags);
void add_qp_type(Text& text, int type);
void add_gid(Text& text, const ibv_gid& gid);
void add_ah(Text& text, const ibv_ah_attr& attr);
// The attributes that the mask names.
void add_qp_attr(Text& text, const ibv_qp_attr& attr, int mask);
void add_qp_init(Text& text, int type, const void* send_cq, const void* recv_cq, const void* srq,
                 const ibv_qp_cap& caps, bool signals_all);
// A list of requests, as far as there is room.
void add_send_requests(Text& text, const ibv_send_wr* first);
void add_receives(Text& text, const ibv_recv_wr* first);
void add_completions(Text& text, const ibv_wc* completions, int count);
void add_wc_opcode(Text& text, int opcode);
void add_wc_status(Text& text, int status);
void add_event(Text& text, int type);
void add_cm_event(Text& text, int type);
void add_connection(Text& text, const rdma_conn_param* param);
void add_socket_address(Text& text, const sockaddr* address);

}  // namespace hostnic::trace
