// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/faulted/late.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic::faulted {
namespace {

constexpr size_t kTargetAt = 4096;
constexpr uint32_t kLength = 64;
constexpr auto kLong = std::chrono::milliseconds(200);

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

// A queue pair that writes to another one of its device.
struct Writer {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp *from = nullptr, *to = nullptr;
  ibv_mr* mr = nullptr;
  uint32_t room = 0;  // of the send queue
  std::vector<char> memory = std::vector<char>(2 * kTargetAt);

  explicit Writer(const char* device);
  ibv_qp* create_qp();
  int write(uint64_t id, size_t offset, unsigned flags);
  // Its number and status.
  std::pair<uint64_t, int> completion() const;
  void close();
};

ibv_qp* Writer::create_qp() {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
  attr.cap.max_inline_data = kLength;
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &attr);
  room = attr.cap.max_send_wr;
  return qp;
}

Writer::Writer(const char* device) {
  context = device != nullptr ? verbs::open_device(std::string_view(device))
                              : verbs::open_device(size_t{0});
  if (context == nullptr) fail("device");
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
  mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  from = create_qp();
  to = create_qp();
  ibv_gid gid{};
  if (mr == nullptr || from == nullptr || to == nullptr || ibv_query_gid(context, 1, 0, &gid) != 0)
    fail("objects");
  for (const auto& [one, other] : {std::pair{from, to}, std::pair{to, from}})
    if (verbs::to_init(one, {}) != 0 ||
        verbs::to_rtr(one, {}, {.qpn = other->qp_num, .psn = 100, .gid = gid}) != 0 ||
        verbs::to_rts(one, {}, 100) != 0)
      fail("ibv_modify_qp");
}

int Writer::write(uint64_t id, size_t offset, unsigned flags) {
  ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()) + offset, kLength, mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  wr.wr.rdma = {reinterpret_cast<uint64_t>(memory.data()) + kTargetAt + offset, mr->rkey};
  const int result = ibv_post_send(from, &wr, &bad);
  if (result != 0 && bad != &wr) fail("bad_wr");
  // Nobody may look at these any more.
  sge = {};
  wr = {};
  return result;
}

std::pair<uint64_t, int> Writer::completion() const {
  ibv_wc wc{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
  if (count < 0) fail("ibv_poll_cq");
  return {wc.wr_id, wc.status};
}

void Writer::close() {
  if (ibv_destroy_qp(from) != 0 || ibv_destroy_qp(to) != 0 || ibv_dereg_mr(mr) != 0 ||
      ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0)
    fail("not all could be destroyed");
}

// The call returns at once, and the device reads what memory has when it looks.
void read_late(Writer& writer) {
  memset(writer.memory.data(), 'a', 2 * kLength);
  const auto start = std::chrono::steady_clock::now();
  if (writer.write(1, 0, 0) != 0 || writer.write(2, kLength, IBV_SEND_INLINE) != 0)
    fail("ibv_post_send");
  memset(writer.memory.data(), 'b', 2 * kLength);
  const auto first = writer.completion(), second = writer.completion();
  const bool late = std::chrono::steady_clock::now() - start >= kLong;
  printf("completions: %lu %lu, status %d %d, %s\n", first.first, second.first, first.second,
         second.second, late ? "late" : "at once");
  printf("memory: %c, inline: %c\n", writer.memory[kTargetAt], writer.memory[kTargetAt + kLength]);
}

// What is late takes its room in the send queue, and is flushed with the queue pair.
void fill_and_fail(Writer& writer) {
  uint32_t taken = 0;
  int result = 0;
  while (taken < 4 * writer.room && (result = writer.write(taken, 0, 0)) == 0) ++taken;
  printf("full: %s, %s\n", result == 0 ? "never" : strerrorname_np(result),
         taken == writer.room ? "as created" : "another number than created");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(writer.from, &attr, IBV_QP_STATE) != 0) fail("ibv_modify_qp");
  uint32_t in_order = 0;
  for (uint32_t i = 0; i < taken; ++i) in_order += writer.completion().first == i ? 1 : 0;
  printf("completions in order: %s\n", in_order == taken ? "all" : "not all");
}

}  // namespace

int run_late(const char* device) {
  Writer writer(device);
  read_late(writer);
  fill_and_fail(writer);
  writer.close();
  // What is late when its queue pair goes is never posted.
  Writer other(device);
  if (other.write(1, 0, 0) != 0) fail("ibv_post_send");
  other.close();
  printf("all is destroyed\n");
  return 0;
}

}  // namespace hostnic::faulted
