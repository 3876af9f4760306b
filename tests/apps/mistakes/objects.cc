// SPDX-License-Identifier: BSD-3-Clause
// Objects of another device, of another kind, or in use.
#include <cstdio>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

void refused(bool is_refused, const char* what) {
  if (!is_refused) die(what);
  printf("refused: %s\n", what);
}

void cq_of_other_device() {
  Stage s;
  s.make();
  s.here.wanted.send_cq = s.there.cq;
  refused(ibv_create_qp(s.here.pd, &s.here.wanted) == nullptr, "ibv_create_qp");
}

void channel_of_other_device() {
  Stage s;
  refused(ibv_create_cq(s.here.context, 16, nullptr, s.there.channel, 0) == nullptr,
          "ibv_create_cq");
}

void channel_in_use() {
  Stage s;
  s.make();
  refused(ibv_destroy_comp_channel(s.here.channel) != 0, "ibv_destroy_comp_channel");
}

ibv_srq* shared_queue(Side& side) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  return good(ibv_create_srq(side.pd, &attr), "ibv_create_srq");
}

void srq_in_use() {
  Stage s;
  s.here.wanted.srq = shared_queue(s.here);
  s.make();
  refused(ibv_destroy_srq(s.here.wanted.srq) != 0, "ibv_destroy_srq");
}

void srq_limit_beyond() {
  Stage s;
  ibv_srq_attr attr{};
  attr.srq_limit = 100;
  refused(ibv_modify_srq(shared_queue(s.here), &attr, IBV_SRQ_LIMIT) != 0, "ibv_modify_srq");
}

void cq_resized_below() {
  Stage s;
  s.ready();
  for (int i = 0; i < 8; ++i)
    good(s.here.send(IBV_WR_RDMA_WRITE, s.here.sge(8), s.remote(), s.there.mr->rkey), "post");
  s.there.poll_for_ms(200);
  refused(ibv_resize_cq(s.here.cq, 2) != 0, "ibv_resize_cq");
}

void group_of_rc() {
  Stage s;
  s.make();
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[15] = 1;
  refused(ibv_attach_mcast(s.here.qp, &group, 0) != 0, "ibv_attach_mcast");
}

void window_of_type_1() {
  Stage s;
  s.ready();
  ibv_mw* const window = good(ibv_alloc_mw(s.here.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw = {.mw = window,
                .rkey = ibv_inc_rkey(window->rkey),
                .bind_info = {.mr = s.here.mr,
                              .addr = reinterpret_cast<uint64_t>(s.here.memory),
                              .length = 4096,
                              .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
  refused(ibv_post_send(s.here.qp, &wr, &bad) != 0, "ibv_post_send");
}

void negative_elements() {
  Stage s;
  s.ready();
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.num_sge = -1;
  refused(ibv_post_send(s.here.qp, &wr, &bad) != 0, "ibv_post_send");
}

// The number of the peer was never exchanged.
void peer_qpn_0() {
  Stage s;
  s.make();
  s.here.peer = s.there.address();
  s.here.peer.qpn = 0;
  s.here.to_init();
  s.here.to_rtr();
}

}  // namespace

void add_objects(Table& table) {
  table.insert({{"cq-of-other-device", cq_of_other_device},
                {"channel-of-other-device", channel_of_other_device},
                {"channel-in-use", channel_in_use},
                {"srq-in-use", srq_in_use},
                {"srq-limit-beyond", srq_limit_beyond},
                {"cq-resized-below", cq_resized_below},
                {"group-of-rc", group_of_rc},
                {"window-of-type-1", window_of_type_1},
                {"negative-elements", negative_elements},
                {"peer-qpn-0", peer_qpn_0}});
}

}  // namespace hostnic::mistakes
