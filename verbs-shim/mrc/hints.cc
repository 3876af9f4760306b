// SPDX-License-Identifier: BSD-3-Clause
// Hints about what queue pairs will do. They are kept for who asks; nothing here depends on them.
#include <cstring>

#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"

using namespace hostnic;
using namespace hostnic::libmrc;

namespace {

constexpr uint32_t kAll = MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS |
                          MRC_QP_HINT_NUM_REMOTE_RECV_PEERS | MRC_QP_HINT_VENDOR_CFG;

void copy(mrc_qp_hint_attr& to, const mrc_qp_hint_attr& from, uint32_t mask) {
  if ((mask & MRC_QP_HINT_NUM_QPS_PER_PEER) != 0) to.num_qps_per_peer = from.num_qps_per_peer;
  if ((mask & MRC_QP_HINT_NUM_SEND_PEERS) != 0) to.num_send_peers = from.num_send_peers;
  if ((mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS) != 0)
    to.num_remote_recv_peers = from.num_remote_recv_peers;
  if ((mask & MRC_QP_HINT_VENDOR_CFG) != 0)
    std::memcpy(to.vendor_cfg, from.vendor_cfg, sizeof to.vendor_cfg);
}

int check(const char* call, const mrc_qp_hint* hint, const mrc_qp_hint_attr* attr, uint32_t mask) {
  if (!is_object(Kind::kHint, hint)) return no_object(call, Kind::kHint);
  if (attr == nullptr) return refused(call, EINVAL, "qp_hint_attr is null");
  if ((mask & ~kAll) != 0) return refused(call, EINVAL, "unknown bits in mask 0x%x", mask);
  return 0;
}

}  // namespace

MRC_CALL mrc_qp_hint* mrc_create_qp_hint(mrc_context* context, mrc_qp_hint_init_attr* init) {
  constexpr const char* kCall = "mrc_create_qp_hint";
  if (!is_object(Kind::kContext, context)) return no_pointer(no_object(kCall, Kind::kContext));
  if (init == nullptr) return no_pointer(refused(kCall, EINVAL, "init_attr is null"));
  auto* const made = make<mrc_qp_hint>(context, init->attr);
  if (made == nullptr) return nullptr;
  bool is_room = false;
  {
    const auto lock = lock_objects();
    is_room = context->hints < kMostHints;
    if (is_room) {
      ++context->hints;
      add_object(*made);
    }
  }
  if (is_room) return made;
  delete made;
  return no_pointer(refused(kCall, ENOMEM, "a context has %u hints at most", kMostHints));
}

MRC_CALL int mrc_destroy_qp_hint(mrc_qp_hint* hint) {
  constexpr const char* kCall = "mrc_destroy_qp_hint";
  bool is_known = false;
  uint32_t users = 0;
  {
    const auto lock = lock_objects();
    is_known = is_live(Kind::kHint, hint);
    if (is_known) users = hint->users;
    if (is_known && users == 0) {
      --hint->context->hints;
      remove_object(*hint);
    }
  }
  if (!is_known) return minus_one(no_object(kCall, Kind::kHint));
  if (users != 0) return minus_one(refused(kCall, EBUSY, "in use by %u queue pairs", users));
  delete hint;
  return 0;
}

MRC_CALL int mrc_query_qp_hint(mrc_qp_hint* hint, mrc_qp_hint_attr* attr, int mask) {
  const auto bits = static_cast<uint32_t>(mask);
  if (const int error = check("mrc_query_qp_hint", hint, attr, bits)) return minus_one(error);
  const auto lock = lock_objects();
  copy(*attr, hint->attr, bits);
  return 0;
}

MRC_CALL int mrc_modify_qp_hint(mrc_qp_hint* hint, mrc_qp_hint_attr* attr, int mask) {
  const auto bits = static_cast<uint32_t>(mask);
  if (const int error = check("mrc_modify_qp_hint", hint, attr, bits)) return minus_one(error);
  const auto lock = lock_objects();
  copy(hint->attr, *attr, bits);
  return 0;
}
