// Posting by list: ibv_post_send and ibv_post_recv. (The builder is send_builder.cc.)
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/registry.h"

namespace hostnic::abi {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  QpObject& object = *object_of(qp);
  driver::Context& context = *object.owner->driver;
  const bool datagrams = qp->qp_type == IBV_QPT_UD;
  SgeBuffer sges;  // not zeroed
  for (; wr != nullptr; wr = wr->next) {
    driver::SendRequest request;
    int error = to_send_request(*wr, sges, request);
    if (datagrams && error == 0) {
      const auto& ud = wr->wr.ud;
      error = to_datagram(*qp, ud.ah, ud.remote_qpn, ud.remote_qkey, request.ud);
    }
    if (error == 0) error = context.post_send(*object.qp, request);
    if (error != 0) {
      *bad_wr = wr;
      return fail(error);
    }
  }
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  QpObject& object = *object_of(qp);
  driver::Context& context = *object.owner->driver;
  SgeBuffer sges;  // not zeroed
  for (; wr != nullptr; wr = wr->next) {
    driver::RecvRequest request;
    int error = to_recv_request(*wr, sges, request);
    if (error == 0) error = context.post_recv(*object.qp, request);
    if (error != 0) {
      *bad_wr = wr;
      return fail(error);
    }
  }
  return 0;
}

}  // namespace hostnic::abi
