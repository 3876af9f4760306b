// SPDX-License-Identifier: BSD-3-Clause
// The functions that programs reach through the tables of an open context instead of by symbol.
#pragma once

#include <infiniband/verbs.h>

#include "verbs-shim/abi/objects.h"

namespace hostnic::abi {

// Fills `context.ops` and the extended table.
void install_tables(ContextObject& context);

// The functions of the tables, which are implemented where their subject is.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t count);                                                         // advise.cc
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);                                        // cq.cc
int req_notify_cq(ibv_cq* cq, int solicited_only);                                     // cq.cc
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);                                   // cq.cc
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);              // cq_ex.cc
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);                        // pd.cc
int dealloc_td(ibv_td* td);                                                            // pd.cc
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);  // pd.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);                      // post.cc
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);                      // post.cc
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);                 // qp.cc
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr,
               size_t size_bytes);  // query.cc
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t size_bytes);        // query.cc
int query_rt_values(ibv_context* context, ibv_values_ex* values);        // query.cc
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);  // post.cc
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);                          // mw.cc
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);                  // mw.cc
int dealloc_mw(ibv_mw* mw);                                              // mw.cc

// What the device does not have, in unsupported.cc.
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);

// These destroy what the program left behind when it closes the device.
void destroy_qp_object(QpObject& qp);                 // qp.cc
void destroy_srq_object(SrqObject& srq);              // srq.cc
void destroy_cq_object(CqObject& cq);                 // cq.cc
int deregister_mr_object(MrObject& mr);               // mr.cc
void destroy_mw_object(MwObject& mw);                 // mw.cc
void destroy_channel_object(ChannelObject& channel);  // channel.cc
// Called when the device is gone: who waits on one of the context's channels gets EIO. This takes
// the registry lock.
void close_channels(const ContextObject& context);  // channel.cc

}  // namespace hostnic::abi
