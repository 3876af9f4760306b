// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/selftest/fake_verbs.h"

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace hostnic::verify::fake {
namespace {

struct Sink {
  uint64_t address;
  uint64_t length;
};

struct Cq : ibv_cq {
  std::deque<ibv_wc> entries;
  int armed = 0;  // 1: any, 2: solicited
};

struct Request {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
  std::vector<char> inline_bytes;
  bool is_inline;
};
struct Receive {
  uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

struct Qp : ibv_qp {
  ibv_qp_attr attributes{};
  ibv_qp_cap caps{};
  std::deque<Request> requests;
  std::deque<Receive> receives;
};

std::mutex g_mutex;
std::map<uint32_t, Qp*> g_qps;
uint32_t g_next_qpn = 100;
Fault g_fault = Fault::kNone;
unsigned g_after = 0, g_seen = 0, g_struck = 0;
std::vector<std::function<void()>> g_delayed;  // placed late, by a fault

bool strike(Fault fault) {
  if (g_fault != fault || g_seen++ < g_after) return false;
  if (fault == Fault::kLoseCompletion && g_struck > 0) return false;  // all: only a hang is left
  ++g_struck;
  return true;
}

void complete(ibv_cq* queue, const ibv_wc& wc, bool solicited) {
  auto* cq = static_cast<Cq*>(queue);
  if (strike(Fault::kLoseCompletion)) return;
  cq->entries.push_back(wc);
  if (strike(Fault::kWrongWrId)) cq->entries.back().wr_id ^= 1;
  if (strike(Fault::kRepeatCompletion)) cq->entries.push_back(wc);
  bool fires = cq->armed == 1 || (cq->armed == 2 && solicited);
  if (fires && strike(Fault::kLoseEvent)) {
    cq->armed = 0;
    return;
  }
  if (cq->armed == 2 && !solicited && strike(Fault::kEventUnsolicited)) fires = true;
  if (!fires || cq->channel == nullptr) return;
  cq->armed = 0;
  ibv_cq* self = cq;
  if (write(cq->channel->refcnt, &self, sizeof self) < 0) abort();
}

std::vector<char> gather(const Request& request) {
  if (request.is_inline) return request.inline_bytes;
  std::vector<char> bytes;
  for (const ibv_sge& sge : request.sges) {
    const auto* from = reinterpret_cast<const char*>(sge.addr);
    bytes.insert(bytes.end(), from, from + sge.length);
  }
  return bytes;
}

void place(const std::vector<char>& bytes, std::vector<ibv_sge> to, bool lose_piece = false) {
  size_t at = 0;
  if (lose_piece) to.pop_back();
  for (const ibv_sge& sge : to) {
    const size_t n = std::min<size_t>(sge.length, bytes.size() - at);
    if (n > 0) std::memcpy(reinterpret_cast<void*>(sge.addr), bytes.data() + at, n);
    at += n;
  }
}

void do_write(const Request& request, const std::vector<char>& bytes) {
  auto* target = reinterpret_cast<char*>(request.wr.wr.rdma.remote_addr);
  if (bytes.empty()) return;
  size_t n = bytes.size();
  if (strike(Fault::kLoseByte)) --n;
  if (strike(Fault::kLateWrite) || strike(Fault::kSendOvertakes)) {
    g_delayed.push_back([=] { std::memcpy(target, bytes.data(), bytes.size()); });
    return;
  }
  if (request.sges.size() == 1 && !request.is_inline && strike(Fault::kReadSource)) {
    const auto* source = reinterpret_cast<const char*>(request.sges[0].addr);
    const size_t length = bytes.size();
    g_delayed.push_back([=] { std::memcpy(target, source, length); });
    return;
  }
  std::memcpy(target, bytes.data(), n);
  if (strike(Fault::kWriteBeyond)) target[bytes.size()] ^= 0x20;
}

void release_delayed() {
  for (const auto& action : g_delayed) action();
  g_delayed.clear();
}

void do_atomic(const Request& request) {
  auto* word = reinterpret_cast<uint64_t*>(request.wr.wr.atomic.remote_addr);
  const uint64_t original = *word;
  const auto& a = request.wr.wr.atomic;
  if (request.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    *word = original + a.compare_add;
    if (strike(Fault::kAddTwice)) *word += a.compare_add;
    if (strike(Fault::kAddNever)) *word = original;
  } else if (original == a.compare_add) {
    *word = a.swap;
  }
  std::memcpy(reinterpret_cast<void*>(request.sges[0].addr), &original, 8);
}

void receive(Qp& target, const Request& request, const std::vector<char>& bytes, bool is_send,
             bool has_imm) {
  const Receive taken = target.receives.front();
  target.receives.pop_front();
  if (is_send)
    place(bytes, taken.sges,
          taken.sges.size() > 1 && taken.sges.back().length > 0 && strike(Fault::kLosePiece));
  ibv_wc wc{};
  wc.wr_id = taken.wr_id;
  wc.opcode = is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  wc.byte_len = static_cast<uint32_t>(bytes.size()) + (strike(Fault::kWrongLength) ? 1 : 0);
  wc.qp_num = target.qp_num;
  if (has_imm) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = request.wr.imm_data ^ (strike(Fault::kWrongImm) ? 1u : 0u);
  }
  complete(target.recv_cq, wc, (request.wr.send_flags & IBV_SEND_SOLICITED) != 0);
}

// Executes one request. False: it must wait for a receive.
bool execute(Qp& qp, const Request& request) {
  const auto found = g_qps.find(qp.attributes.dest_qp_num);
  if (found == g_qps.end()) return false;
  Qp& target = *found->second;
  const ibv_wr_opcode op = request.wr.opcode;
  const bool has_imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool is_send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
  const bool is_write = op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
  if ((is_send || has_imm) && target.receives.empty()) return false;
  ibv_wc wc{};
  wc.wr_id = request.wr.wr_id;
  wc.qp_num = qp.qp_num;
  const bool release_after_write = g_fault == Fault::kLateWrite && is_write && !g_delayed.empty();
  if (is_send || is_write) {
    const std::vector<char> bytes = gather(request);
    if (is_write) do_write(request, bytes);
    if (is_send || has_imm) receive(target, request, bytes, is_send, has_imm);
    wc.opcode = is_send ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
  } else if (op == IBV_WR_RDMA_READ) {
    uint64_t length = 0;
    for (const ibv_sge& sge : request.sges) length += sge.length;
    const auto* from = reinterpret_cast<const char*>(request.wr.wr.rdma.remote_addr);
    std::vector<char> bytes(from, from + length);
    if (!bytes.empty() && strike(Fault::kWrongReadByte)) bytes[0] ^= 1;
    place(bytes, request.sges);
    wc.opcode = IBV_WC_RDMA_READ;
    wc.byte_len = static_cast<uint32_t>(length);
  } else {
    do_atomic(request);
    wc.opcode = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP;
    wc.byte_len = 8;
  }
  if (release_after_write) release_delayed();
  if (request.wr.send_flags & IBV_SEND_SIGNALED) complete(qp.send_cq, wc, false);
  return true;
}

void run(Qp& qp) {
  while (qp.attributes.qp_state == IBV_QPS_RTS && !qp.requests.empty() &&
         execute(qp, qp.requests.front()))
    qp.requests.pop_front();
}

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr**) {
  const std::lock_guard lock(g_mutex);
  auto& qp = *static_cast<Qp*>(handle);
  for (; wr != nullptr; wr = wr->next) {
    Request r{*wr, {wr->sg_list, wr->sg_list + wr->num_sge}, {}, false};
    if (wr->send_flags & IBV_SEND_INLINE) {
      r.inline_bytes = gather(r);
      r.is_inline = true;
    }
    qp.requests.push_back(std::move(r));
  }
  run(qp);
  return 0;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr**) {
  const std::lock_guard lock(g_mutex);
  auto& qp = *static_cast<Qp*>(handle);
  for (; wr != nullptr; wr = wr->next)
    qp.receives.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
  if (const auto peer = g_qps.find(qp.attributes.dest_qp_num); peer != g_qps.end())
    run(*peer->second);
  return 0;
}

int poll_cq(ibv_cq* handle, int count, ibv_wc* wc) {
  const std::lock_guard lock(g_mutex);
  auto& cq = *static_cast<Cq*>(handle);
  int n = 0;
  for (; n < count && !cq.entries.empty(); ++n) {
    wc[n] = cq.entries.front();
    cq.entries.pop_front();
  }
  // What a NIC left undone at the completion happens once the program has had time to see it.
  if (n == 0 && g_fault != Fault::kLateWrite) release_delayed();
  return n;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  const std::lock_guard lock(g_mutex);
  static_cast<Cq*>(handle)->armed = solicited_only ? 2 : 1;
  return 0;
}

}  // namespace

void set_fault(Fault fault, unsigned after) {
  const std::lock_guard lock(g_mutex);
  g_fault = fault;
  g_after = after;
  g_seen = g_struck = 0;
  g_delayed.clear();
}

unsigned struck() {
  const std::lock_guard lock(g_mutex);
  return g_struck;
}

}  // namespace hostnic::verify::fake

// The functions of libibverbs that hostnic-verify calls, under their own names.
namespace fake = hostnic::verify::fake;
#undef ibv_query_port
#undef ibv_reg_mr

extern "C" {

ibv_device g_device;

ibv_device** ibv_get_device_list(int* count) {
  std::strcpy(g_device.name, "fake0");
  *count = 1;
  return new ibv_device* [2] { &g_device, nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  auto* context = new ibv_context{};
  context->device = device;
  context->ops.post_send = fake::post_send;
  context->ops.post_recv = fake::post_recv;
  context->ops.poll_cq = fake::poll_cq;
  context->ops.req_notify_cq = fake::req_notify_cq;
  return context;
}
int ibv_close_device(ibv_context* context) {
  delete context;
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* a) {
  *a = {};
  a->max_sge = 8;
  a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* compat) {
  auto* a = reinterpret_cast<ibv_port_attr*>(compat);
  a->state = IBV_PORT_ACTIVE;
  a->active_mtu = IBV_MTU_1024;
  return 0;
}
const char* ibv_port_state_str(ibv_port_state) { return "?"; }
const char* ibv_event_type_str(ibv_event_type) { return "?"; }
const char* ibv_wc_status_str(ibv_wc_status) { return "?"; }
int ibv_get_async_event(ibv_context*, ibv_async_event*) { return -1; }
void ibv_ack_async_event(ibv_async_event*) {}
int ibv_query_gid(ibv_context*, uint8_t, int, ibv_gid* gid) {
  *gid = {};
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t) {
  return ENODATA;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int) {
  return new ibv_mr{pd->context, pd, address, length, 0, 1, 2};
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t, unsigned) {
  return ibv_reg_mr(pd, address, length, 0);
}
int ibv_dereg_mr(ibv_mr* mr) {
  delete mr;
  return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) != 0) return nullptr;
  return new ibv_comp_channel{context, fds[0], fds[1]};  // refcnt: our end
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  close(channel->fd);
  close(channel->refcnt);
  delete channel;
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void**) {
  return read(channel->fd, cq, sizeof *cq) == sizeof *cq ? 0 : -1;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}
ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel* channel, int) {
  auto* cq = new fake::Cq{};
  cq->context = context;
  cq->channel = channel;
  return cq;
}
int ibv_destroy_cq(ibv_cq* cq) {
  delete static_cast<fake::Cq*>(cq);
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  const std::lock_guard lock(fake::g_mutex);
  auto* qp = new fake::Qp{};
  qp->context = pd->context;
  qp->send_cq = init->send_cq;
  qp->recv_cq = init->recv_cq;
  qp->qp_num = fake::g_next_qpn++;
  qp->caps = init->cap;
  fake::g_qps[qp->qp_num] = qp;
  return qp;
}
int ibv_destroy_qp(ibv_qp* qp) {
  const std::lock_guard lock(fake::g_mutex);
  fake::g_qps.erase(qp->qp_num);
  delete static_cast<fake::Qp*>(qp);
  return 0;
}
int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* a, int mask) {
  const std::lock_guard lock(fake::g_mutex);
  auto* qp = static_cast<fake::Qp*>(handle);
  qp->attributes.qp_state = a->qp_state;
  if (mask & IBV_QP_DEST_QPN) qp->attributes.dest_qp_num = a->dest_qp_num;
  return 0;
}
int ibv_query_qp(ibv_qp* handle, ibv_qp_attr* a, int, ibv_qp_init_attr*) {
  *a = static_cast<fake::Qp*>(handle)->attributes;
  return 0;
}

}  // extern "C"
