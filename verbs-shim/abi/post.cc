// SPDX-License-Identifier: BSD-3-Clause
// Posting by list: ibv_post_send, ibv_post_recv, ibv_post_srq_recv. (The builder is
// send_builder.cc.)
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  QpObject& object = *object_of(qp);
  runtime::Context& context = *object.owner->driver;
  const bool datagrams = qp->qp_type == IBV_QPT_UD;
  SgeBuffer sges;  // not zeroed
  for (; wr != nullptr; wr = wr->next) {
    driver::SendRequest request;
    int error = to_send_request(*wr, sges, request);
    if (datagrams && error == 0) {
      const auto& ud = wr->wr.ud;
      error = to_datagram(*qp, ud.ah, ud.remote_qpn, ud.remote_qkey, request.ud);
    }
    if (error == 0 && wr->opcode == IBV_WR_BIND_MW) {
      const auto& bind = wr->bind_mw;
      error = to_bind(*qp, bind.mw, IBV_MW_TYPE_2, bind.rkey, bind.bind_info, request);
    }
    if (error == 0) error = context.post_send(*object.qp, request);
    if (error != 0) {
      *bad_wr = wr;
      tell_refusal("ibv_post_send", qp->qp_num, error);
      return fail(error);
    }
    if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = request.rkey;
  }
  return 0;
}

namespace {

template <typename Post>
int post_receives(const char* call, uint32_t qpn, ibv_recv_wr* wr, ibv_recv_wr** bad_wr,
                  Post post) {
  SgeBuffer sges;  // not zeroed
  for (; wr != nullptr; wr = wr->next) {
    driver::RecvRequest request;
    int error = to_recv_request(*wr, sges, request);
    if (error == 0) error = post(request);
    if (error != 0) {
      *bad_wr = wr;
      tell_refusal(call, qpn, error);
      return fail(error);
    }
  }
  return 0;
}

}  // namespace

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  QpObject& object = *object_of(qp);
  const auto post = [&](const driver::RecvRequest& request) {
    return object.owner->driver->post_recv(*object.qp, request);
  };
  return post_receives("ibv_post_recv", qp->qp_num, wr, bad_wr, post);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  SrqObject& object = *object_of(srq);
  const auto post = [&](const driver::RecvRequest& request) {
    return object.owner->driver->post_srq_recv(*object.srq, request);
  };
  return post_receives("ibv_post_srq_recv", 0, wr, bad_wr, post);
}

}  // namespace hostnic::abi
