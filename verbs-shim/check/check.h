// SPDX-License-Identifier: BSD-3-Clause
// What `hostnic check` is told of a program's calls of verbs. It keeps a shadow of the program's
// objects and of what is posted, and reports mistakes. Where no board was given, is_on() is false
// and nothing else is called.
//
// For any thread and in forked children, which begin anew. Calls that are known only when they have
// been made are told afterwards; posts before, since their completions may come at once.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace hostnic::check {

extern bool on;  // is set once, before main()
inline bool is_on() { return on; }

// A call begins: its name, and where it returns to.
void enters(const char* verb, const void* caller);

// -- Objects that were made; never null.

// Memory of a region. `start` null: it has none that a program can read.
struct Memory {
  const void* start = nullptr;
  size_t length = 0;
  uint64_t iova = 0;
  unsigned access = 0;
};
void note(ibv_context* context);
void note(ibv_pd* pd);
void note(ibv_pd* parent_domain, const ibv_pd* pd);
void note(ibv_comp_channel* channel);
void note(ibv_cq* cq);
void note(ibv_cq_ex* cq);
void note(ibv_srq* srq);
void note(ibv_ah* ah);
void note(ibv_qp* qp, const ibv_qp_init_attr* attr);
void note(ibv_qp* qp, const ibv_qp_init_attr_ex* attr);
void note(ibv_mr* mr, const Memory& memory);
// Notes what was made, and returns it; null: nothing was.
template <typename Object, typename... Rest>
Object* made(Object* object, const Rest&... rest) {
  if (object != nullptr && is_on()) note(object, rest...);
  return object;
}
void changed(ibv_mr* mr, int flags, const Memory& memory);
void resized(ibv_cq* cq);
void initialized_forks();

// -- Objects that go. Between the two calls the object is destroyed, and may be there again.
struct Object;
struct CqShadow;
struct SrqShadow;
struct Going {
  const void* object = nullptr;
  uint32_t record = UINT32_MAX;  // of a finding that holds only as long as the call waits
  Object* taken = nullptr;       // what is put back if it stays
  CqShadow* cq = nullptr;
  SrqShadow* srq = nullptr;
};
Going destroys(const ibv_context* context);
Going destroys(const ibv_pd* pd);
Going destroys(const ibv_comp_channel* channel);
Going destroys(const ibv_cq* cq);
Going destroys(const ibv_srq* srq);
Going destroys(const ibv_qp* qp);
Going destroys(const ibv_ah* ah);
Going destroys(const ibv_mr* mr);
void destroyed(const Going& going, bool is_gone);

// -- Queue pairs.
void modified(const ibv_qp* qp, const ibv_qp_attr& attr, int mask);
void queried(const ibv_qp* qp, const ibv_qp_attr& attr, int mask);

struct QpShadow;
// Requests that are on their way to the device. Others of the same queue wait until it is told that
// they have been taken.
struct Posting {
  QpShadow* qp = nullptr;
  SrqShadow* srq = nullptr;
  bool is_send = false;
  uint32_t requests = 0;
};
Posting sends(const ibv_qp* qp, const ibv_send_wr* first);
Posting receives(const ibv_qp* qp, const ibv_recv_wr* first);
Posting receives(const ibv_srq* srq, const ibv_recv_wr* first);
// `result` as the call returned it; `good` of the requests were taken.
void posted(const Posting& posting, int result, uint32_t good);
// How many requests are in front of the bad one.
template <typename Request>
uint32_t requests_before(const Request* first, const Request* bad) {
  uint32_t count = 0;
  for (; first != nullptr && first != bad; first = first->next) ++count;
  return count;
}

void polled(const ibv_cq* cq, const ibv_wc* completions, int count);
// The completion at which the queue is.
void polled(ibv_cq_ex* cq);

// -- Queue pairs that build their requests, before each call is made.
namespace built {
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, uint64_t, uint64_t);
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, uint64_t);
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw*, uint32_t, const ibv_mw_bind_info*);
void wr_local_inv(ibv_qp_ex* qp, uint32_t);
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote);
void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote);
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote, __be32);
void wr_send(ibv_qp_ex* qp);
void wr_send_imm(ibv_qp_ex* qp, __be32);
void wr_send_inv(ibv_qp_ex* qp, uint32_t);
void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah*, uint32_t, uint32_t);
void wr_set_inline_data(ibv_qp_ex* qp, void* address, size_t length);
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list);
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length);
void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list);
void wr_start(ibv_qp_ex* qp);
void wr_abort(ibv_qp_ex* qp);
}  // namespace built
// ibv_wr_complete begins.
Posting completes(ibv_qp_ex* qp);

// -- Events.
void took_cq_event(const ibv_cq* cq);
void acknowledged(const ibv_cq* cq, unsigned count);
void took_event(const ibv_async_event& event);
void acknowledged(const ibv_async_event& event);

}  // namespace hostnic::check
