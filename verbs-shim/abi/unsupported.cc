// SPDX-License-Identifier: BSD-3-Clause
// What this device does not have, refused cleanly: objects imported from other processes, enhanced
// connection establishment.
#include "verbs-shim/abi/command_fd.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

// Refuses what the device does not have, with the errno value of a null entry of the table. That
// entry would refuse it, too, but silently.
template <class Object>
Object* refuse_object(const char* call, const char* what) {
  refuse_call(call, 0, {.reason = Reason::kNotOffered, .text = what});
  return nullptr;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* /*context*/, ibv_xrcd_init_attr* /*attr*/) {
  return refuse_object<ibv_xrcd>("ibv_open_xrcd", "there is no XRC here: RC, UC and UD are");
}

ibv_wq* create_wq(ibv_context* /*context*/, ibv_wq_init_attr* /*attr*/) {
  return refuse_object<ibv_wq>("ibv_create_wq", "there are no raw receive queues (RSS) here");
}

ibv_dm* alloc_dm(ibv_context* /*context*/, ibv_alloc_dm_attr* /*attr*/) {
  return refuse_object<ibv_dm>("ibv_alloc_dm", "the device has no memory of its own");
}

}  // namespace hostnic::abi

using namespace hostnic::abi;

HOSTNIC_VERB int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                             uint8_t mac[ETHERNET_LL_SIZE], uint16_t* vlan) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*)> real(
      "ibv_resolve_eth_l2_from_gid", "IBVERBS_1.1");
  if (is_ours(Kind::kContext, context)) return fail(EOPNOTSUPP);
  return real.foreign(context, attr, mac, vlan);
}

HOSTNIC_VERB int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_ece*)> real("ibv_query_ece", "IBVERBS_1.10");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp, ece);
  *ece = {};
  return fail(EOPNOTSUPP);
}

HOSTNIC_VERB int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_ece*)> real("ibv_set_ece", "IBVERBS_1.10");
  if (is_ours(Kind::kQp, qp)) return fail(EOPNOTSUPP);
  return real.foreign(qp, ece);
}

HOSTNIC_VERB ibv_context* ibv_import_device(int command_fd) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_context*(int)> real("ibv_import_device", "IBVERBS_1.10");
  if (is_command_fd(command_fd)) return fail_null(EOPNOTSUPP);
  ibv_context* context = real.call(command_fd);
  if (context != nullptr) real_contexts_open.fetch_add(1);
  return context;
}

HOSTNIC_VERB ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_pd*(ibv_context*, uint32_t)> real("ibv_import_pd", "IBVERBS_1.10");
  if (is_ours(Kind::kContext, context)) return fail_null(EOPNOTSUPP);
  return real.foreign(context, handle);
}

HOSTNIC_VERB void ibv_unimport_pd(ibv_pd* pd) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_pd*)> real("ibv_unimport_pd", "IBVERBS_1.10");
  if (!is_ours(Kind::kPd, pd)) real.foreign(pd);
}

HOSTNIC_VERB ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, uint32_t)> real("ibv_import_mr", "IBVERBS_1.10");
  if (is_ours(Kind::kPd, pd)) return fail_null(EOPNOTSUPP);
  return real.foreign(pd, handle);
}

HOSTNIC_VERB void ibv_unimport_mr(ibv_mr* mr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_mr*)> real("ibv_unimport_mr", "IBVERBS_1.10");
  if (!is_ours(Kind::kMr, mr)) real.foreign(mr);
}

HOSTNIC_VERB ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_dm*(ibv_context*, uint32_t)> real("ibv_import_dm", "IBVERBS_1.13");
  if (is_ours(Kind::kContext, context)) return fail_null(EOPNOTSUPP);
  return real.foreign(context, handle);
}

HOSTNIC_VERB void ibv_unimport_dm(ibv_dm* dm) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_dm*)> real("ibv_unimport_dm", "IBVERBS_1.13");
  real.foreign(dm);  // we never have any
}
