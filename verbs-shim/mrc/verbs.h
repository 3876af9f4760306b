// SPDX-License-Identifier: BSD-3-Clause
// The verbs that libmrc.so stands on: libhostnic-verbs.so's own, by name and not by the dynamic
// linker's order. A library that makes verbs of MRC (Microsoft's mrc-verbs-shim-lib) is preloaded
// in front of all others, and would get them back.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::libmrc {

struct Verbs {
  ibv_comp_channel* (*create_comp_channel)(ibv_context*);
  int (*destroy_comp_channel)(ibv_comp_channel*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void**);
  void (*ack_cq_events)(ibv_cq*, unsigned int);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*destroy_qp)(ibv_qp*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*);
  int (*get_async_event)(ibv_context*, ibv_async_event*);
  void (*ack_async_event)(ibv_async_event*);
};

// Finds them when called for the first time. Any thread.
const Verbs& verbs();

}  // namespace hostnic::libmrc
