// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/mrc/verbs.h"

#include "verbs-shim/libraries/forward.h"

namespace hostnic::libmrc {
namespace {

template <class Function>
void find(Function*& function, const char* name, const char* version) {
  function =
      reinterpret_cast<Function*>(hostnic_library_symbol(ForwardTo::kOurVerbs, name, version));
}

Verbs find_all() {
  Verbs all{};
  find(all.create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  find(all.destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  find(all.create_cq, "ibv_create_cq", "IBVERBS_1.1");
  find(all.destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1");
  find(all.get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1");
  find(all.ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1");
  find(all.create_qp, "ibv_create_qp", "IBVERBS_1.1");
  find(all.destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1");
  find(all.modify_qp, "ibv_modify_qp", "IBVERBS_1.1");
  find(all.query_qp, "ibv_query_qp", "IBVERBS_1.1");
  find(all.get_async_event, "ibv_get_async_event", "IBVERBS_1.1");
  find(all.ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1");
  return all;
}

}  // namespace

const Verbs& verbs() {
  static const Verbs all = find_all();
  return all;
}

}  // namespace hostnic::libmrc
