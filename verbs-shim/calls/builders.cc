// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that build their requests (ibv_wr_*): the functions that they have in their own
// table.
#include <pthread.h>

#include <string_view>

#include "verbs-shim/calls/call.h"
#include "verbs-shim/calls/originals.h"
#include "verbs-shim/calls/tables.h"
#include "verbs-shim/calls/traced_table.h"
#include "verbs-shim/faults/late_posts.h"
#include "verbs-shim/trace/words.h"

namespace hostnic::calls {
namespace {

constinit Originals<ibv_qp_ex> builders;

// What is late stands in front of what is built from now on.
void hand_over_before(std::string_view call, ibv_qp_ex* qp) {
  if (call == "wr_start") faults::hand_over(&qp->qp_base);
}

#define HOSTNIC_BUILDER_CALL(member, parameters, arguments, ...) \
  void traced_##member parameters {                              \
    Call call("ibv_" #member);                                   \
    if (call.on()) {                                             \
      call.text().add("qp 0x%x", qp->qp_base.qp_num);            \
      call.text().add(__VA_ARGS__);                              \
      if (is_request(#member)) add_request(call.text(), qp);     \
    }                                                            \
    call.begins();                                               \
    if (faults::is_on()) hand_over_before(#member, qp);          \
    if (check::is_on()) check::built::member arguments;          \
    builders.find(qp)->member arguments;                         \
    call.ends_without_result();                                  \
  }

// Calls that begin a request take its wr_id and flags from the queue pair.
constexpr bool is_request(const char* member) {
  return member[3] != 's' || (member[4] == 'e' && member[5] == 'n');  // not wr_set_*, wr_start
}
void add_request(Text& text, const ibv_qp_ex* qp) {
  text.add(", wr_id 0x%lx", qp->wr_id);
  if (qp->wr_flags == 0) return;
  text.add(", ");
  add_send_flags(text, qp->wr_flags);
}

HOSTNIC_BUILDER_CALL(wr_atomic_cmp_swp,
                     (ibv_qp_ex * qp, uint32_t rkey, uint64_t remote, uint64_t compare,
                      uint64_t swap),
                     (qp, rkey, remote, compare, swap),
                     ", remote 0x%lx rkey 0x%x, compare %lu, swap %lu", remote, rkey, compare, swap)
HOSTNIC_BUILDER_CALL(wr_atomic_fetch_add,
                     (ibv_qp_ex * qp, uint32_t rkey, uint64_t remote, uint64_t add),
                     (qp, rkey, remote, add), ", remote 0x%lx rkey 0x%x, add %lu", remote, rkey,
                     add)
HOSTNIC_BUILDER_CALL(wr_bind_mw,
                     (ibv_qp_ex * qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* bind),
                     (qp, mw, rkey, bind), ", mw %p, rkey 0x%x, 0x%lx, %lu bytes", HOSTNIC_P(mw),
                     rkey, bind->addr, bind->length)
HOSTNIC_BUILDER_CALL(wr_local_inv, (ibv_qp_ex * qp, uint32_t rkey), (qp, rkey), ", rkey 0x%x", rkey)
HOSTNIC_BUILDER_CALL(wr_rdma_read, (ibv_qp_ex * qp, uint32_t rkey, uint64_t remote),
                     (qp, rkey, remote), ", remote 0x%lx rkey 0x%x", remote, rkey)
HOSTNIC_BUILDER_CALL(wr_rdma_write, (ibv_qp_ex * qp, uint32_t rkey, uint64_t remote),
                     (qp, rkey, remote), ", remote 0x%lx rkey 0x%x", remote, rkey)
HOSTNIC_BUILDER_CALL(wr_rdma_write_imm,
                     (ibv_qp_ex * qp, uint32_t rkey, uint64_t remote, __be32 imm),
                     (qp, rkey, remote, imm), ", remote 0x%lx rkey 0x%x, imm 0x%x", remote, rkey,
                     __builtin_bswap32(imm))
HOSTNIC_BUILDER_CALL(wr_send, (ibv_qp_ex * qp), (qp), "%s", "")
HOSTNIC_BUILDER_CALL(wr_send_imm, (ibv_qp_ex * qp, __be32 imm), (qp, imm), ", imm 0x%x",
                     __builtin_bswap32(imm))
HOSTNIC_BUILDER_CALL(wr_send_inv, (ibv_qp_ex * qp, uint32_t rkey), (qp, rkey), ", rkey 0x%x", rkey)
HOSTNIC_BUILDER_CALL(wr_set_ud_addr, (ibv_qp_ex * qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey),
                     (qp, ah, qpn, qkey), ", ah %p, remote_qpn 0x%x, qkey 0x%x", HOSTNIC_P(ah), qpn,
                     qkey)
HOSTNIC_BUILDER_CALL(wr_set_inline_data, (ibv_qp_ex * qp, void* address, size_t length),
                     (qp, address, length), ", %p, %zu bytes", address, length)
HOSTNIC_BUILDER_CALL(wr_set_inline_data_list,
                     (ibv_qp_ex * qp, size_t count, const ibv_data_buf* list), (qp, count, list),
                     ", %zu pieces", count)
HOSTNIC_BUILDER_CALL(wr_set_sge, (ibv_qp_ex * qp, uint32_t lkey, uint64_t address, uint32_t length),
                     (qp, lkey, address, length), ", lkey 0x%x, 0x%lx, %u bytes", lkey, address,
                     length)
HOSTNIC_BUILDER_CALL(wr_set_sge_list, (ibv_qp_ex * qp, size_t count, const ibv_sge* list),
                     (qp, count, list), ", %zu pieces", count)
HOSTNIC_BUILDER_CALL(wr_start, (ibv_qp_ex * qp), (qp), "%s", "")
HOSTNIC_BUILDER_CALL(wr_abort, (ibv_qp_ex * qp), (qp), "%s", "")
int traced_wr_complete(ibv_qp_ex* qp) {
  Call call("ibv_wr_complete", &qp->qp_base);
  if (call.on()) call.text().add("qp 0x%x", qp->qp_base.qp_num);
  call.begins();
  if (call.goes_on()) {
    const check::Posting posting = check::is_on() ? check::completes(qp) : check::Posting{};
    const int result = builders.find(qp)->wr_complete(qp);
    if (posting.qp != nullptr) check::posted(posting, result, 0);
    return call.ends(result);
  }
  if (check::is_on()) check::built::wr_abort(qp);
  builders.find(qp)->wr_abort(qp);
  return call.ends(call.failure<int>());
}

template <typename Do>
void for_each_builder_call(Do each) {
#define HOSTNIC_MEMBER(member) each(&ibv_qp_ex::member, traced_##member)
  HOSTNIC_MEMBER(wr_atomic_cmp_swp);
  HOSTNIC_MEMBER(wr_atomic_fetch_add);
  HOSTNIC_MEMBER(wr_bind_mw);
  HOSTNIC_MEMBER(wr_local_inv);
  HOSTNIC_MEMBER(wr_rdma_read);
  HOSTNIC_MEMBER(wr_rdma_write);
  HOSTNIC_MEMBER(wr_rdma_write_imm);
  HOSTNIC_MEMBER(wr_send);
  HOSTNIC_MEMBER(wr_send_imm);
  HOSTNIC_MEMBER(wr_send_inv);
  HOSTNIC_MEMBER(wr_set_ud_addr);
  HOSTNIC_MEMBER(wr_set_inline_data);
  HOSTNIC_MEMBER(wr_set_inline_data_list);
  HOSTNIC_MEMBER(wr_set_sge);
  HOSTNIC_MEMBER(wr_set_sge_list);
  HOSTNIC_MEMBER(wr_start);
  HOSTNIC_MEMBER(wr_complete);
  HOSTNIC_MEMBER(wr_abort);
#undef HOSTNIC_MEMBER
}

void unlock_in_child() { builders.unlock_in_child(); }

[[gnu::constructor]] void watch_forks() { pthread_atfork(nullptr, nullptr, unlock_in_child); }

}  // namespace

bool is_watched_qp(const ibv_qp* qp) { return builders.find(qp) != nullptr; }

void watch_qp(ibv_qp_ex* qp) {
  if (qp == nullptr || !is_watching() || !builders.add(qp, *qp)) return;
  for_each_builder_call([&](auto member, auto* traced) { put(qp->*member, traced); });
}

void forget_qp(ibv_qp* qp) {
  const ibv_qp_ex* known = builders.find(qp);
  if (known == nullptr) return;
  auto* extended = reinterpret_cast<ibv_qp_ex*>(qp);
  for_each_builder_call([&](auto member, auto*) { extended->*member = known->*member; });
  ibv_qp_ex functions;
  builders.remove(qp, functions);
}

}  // namespace hostnic::calls
