// SPDX-License-Identifier: BSD-3-Clause
// hostnic-gpu-memory: the calls that perftest's --use_cuda and --use_cuda_dmabuf make, and what
// they are for: data from one GPU's memory to another's, compared, with a bandwidth; memory that is
// freed while a peer writes into it; and a look at device memory by the processor.
//   hostnic lab --gpu 2 -- hostnic-gpu-memory data|revoke|touch dmabuf|peer
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/apps/gpu/ends.h"

namespace hostnic::gpu_memory {
namespace {

constexpr size_t kBytes = 4 << 20, kMessage = 1 << 20;

std::vector<unsigned char> pattern(unsigned seed) {
  std::vector<unsigned char> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i)
    bytes[i] = static_cast<unsigned char>((i * 2654435761u >> 13) + seed);
  return bytes;
}

void use_device(const Cuda& cuda, int number) {
  int device = -1, dma_buf = 0;
  void* context = nullptr;
  char name[128];
  must(cuda.device_get(&device, number), "cuDeviceGet");
  must(cuda.device_get_name(name, sizeof(name), device), "cuDeviceGetName");
  must(cuda.device_get_attribute(&dma_buf, 124, device), "cuDeviceGetAttribute");
  must(cuda.context_create(&context, 8, device), "cuCtxCreate");
  must(cuda.context_set(context), "cuCtxSetCurrent");
  printf("GPU %d: %s, dma-buf %s\n", device, name, dma_buf != 0 ? "yes" : "no");
}

struct Bench {
  Cuda cuda = load_cuda();
  End near, far;
};

Bench make_bench(Way way) {
  Bench bench;
  must(bench.cuda.init(0), "cuInit");
  bench.near = open_end("hnic0");
  bench.far = open_end("hnic1");
  use_device(bench.cuda, 0);
  bench.near.memory = allocate(bench.cuda, bench.near, way, kBytes);
  use_device(bench.cuda, 1);
  bench.far.memory = allocate(bench.cuda, bench.far, way, kBytes);
  connect(bench.near, bench.far);
  return bench;
}

void expect_bytes(const Cuda& cuda, CuAddress at, const std::vector<unsigned char>& wanted,
                  const char* after) {
  std::vector<unsigned char> seen(wanted.size());
  must(cuda.to_host(seen.data(), at, seen.size()), "cuMemcpyDtoH");
  if (seen != wanted) die(after);
}

void one(const Bench& bench, ibv_wr_opcode opcode, size_t bytes, const char* name) {
  if (post(bench.near, bench.far, opcode, bytes) != 0) die("ibv_post_send");
  if (const ibv_wc_status status = wait(bench.near); status != IBV_WC_SUCCESS) {
    fprintf(stderr, "hostnic-gpu-memory: %s: %s\n", name, ibv_wc_status_str(status));
    exit(1);
  }
}

// A region of a part that does not begin the allocation: a dma-buf begins where it is exported.
void check_part(const Bench& bench, Way way) {
  constexpr size_t kAt = 1 << 20;
  End far = bench.far;
  far.memory.mr = register_part(bench.cuda, bench.far, way, bench.far.memory.address + kAt, 8192);
  far.memory.address += kAt;
  must(bench.cuda.fill(bench.far.memory.address, 1, kBytes), "cuMemsetD8");
  if (post(bench.near, far, IBV_WR_RDMA_WRITE, 8192) != 0) die("ibv_post_send");
  if (wait(bench.near) != IBV_WC_SUCCESS) die("WRITE into a part");
  std::vector<unsigned char> wanted(kBytes, 1);
  must(bench.cuda.to_host(wanted.data() + kAt, bench.near.memory.address, 8192), "cuMemcpyDtoH");
  expect_bytes(bench.cuda, bench.far.memory.address, wanted, "wrong bytes around a part");
  if (ibv_dereg_mr(far.memory.mr) != 0) die("ibv_dereg_mr");
}

void check_data(Way way) {
  const Bench bench = make_bench(way);
  const Cuda& cuda = bench.cuda;
  const auto first = pattern(1), second = pattern(2);
  must(cuda.to_device(bench.near.memory.address, first.data(), kBytes), "cuMemcpyHtoD");
  one(bench, IBV_WR_RDMA_WRITE, kBytes, "WRITE");
  expect_bytes(cuda, bench.far.memory.address, first, "wrong bytes after a WRITE");
  must(cuda.to_device(bench.far.memory.address, second.data(), kBytes), "cuMemcpyHtoD");
  one(bench, IBV_WR_RDMA_READ, kBytes, "READ");
  expect_bytes(cuda, bench.near.memory.address, second, "wrong bytes after a READ");
  ibv_sge sge{bench.far.memory.address, kMessage, bench.far.memory.mr->lkey};
  ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  must(cuda.fill(bench.far.memory.address, 0, kBytes), "cuMemsetD8");
  if (ibv_post_recv(bench.far.qp, &receive, &bad) != 0) die("ibv_post_recv");
  one(bench, IBV_WR_SEND, kMessage, "SEND");
  if (wait(bench.far) != IBV_WC_SUCCESS) die("the receive of a SEND");
  expect_bytes(cuda, bench.far.memory.address, {second.begin(), second.begin() + kMessage},
               "wrong bytes after a SEND");
  uint64_t word = 0;
  must(cuda.to_device(bench.far.memory.address, &word, sizeof(word)), "cuMemcpyHtoD");
  for (int i = 0; i < 5; ++i) one(bench, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, "FETCH_ADD");
  must(cuda.to_host(&word, bench.far.memory.address, sizeof(word)), "cuMemcpyDtoH");
  if (word != 5) die("atomics did not add up");
  check_part(bench, way);
  constexpr int kRounds = 200, kAtOnce = 16;
  const auto start = std::chrono::steady_clock::now();
  for (int posted = 0, done = 0; done < kRounds;) {
    for (; posted < kRounds && posted - done < kAtOnce; ++posted)
      if (post(bench.near, bench.far, IBV_WR_RDMA_WRITE, kMessage) != 0) die("ibv_post_send");
    if (wait(bench.near) != IBV_WC_SUCCESS) die("a WRITE of many");
    ++done;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  printf("WRITE of 1 MiB: %.0f MB/s, of this machine's memory and no GPU's\n",
         kRounds * static_cast<double>(kMessage) / 1e6 / took.count());
  must(cuda.free(bench.near.memory.address), "cuMemFree");
  must(cuda.free(bench.far.memory.address), "cuMemFree");
  if (ibv_dereg_mr(bench.near.memory.mr) != 0 || ibv_dereg_mr(bench.far.memory.mr) != 0)
    die("ibv_dereg_mr of freed memory");
  printf("gpu-memory: data ok\n");
}

// The far GPU's memory is freed while the near end writes into it.
void check_revocation(Way way) {
  const Bench bench = make_bench(way);
  std::atomic<bool> begun{false}, freed{false};
  std::thread owner([&] {
    while (!begun.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    void* context = nullptr;
    must(bench.cuda.context_create(&context, 8, 1), "cuCtxCreate");
    must(bench.cuda.free(bench.far.memory.address), "cuMemFree");
    freed.store(true);
  });
  int good = 0, after = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  while (status == IBV_WC_SUCCESS) {
    const bool was_freed = freed.load();
    const ibv_wr_opcode opcode = good % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    if (post(bench.near, bench.far, opcode, kMessage) != 0) die("ibv_post_send");
    status = wait(bench.near);
    if (status == IBV_WC_SUCCESS) ++good;
    if (status == IBV_WC_SUCCESS && was_freed) ++after;
    if (good == 4) begun.store(true);
  }
  owner.join();
  printf("%d requests were good, then: %s\n", good, ibv_wc_status_str(status));
  if (status != IBV_WC_REM_ACCESS_ERR) die("another status than a remote access error");
  if (after != 0) die("a request succeeded that was posted after the memory was freed");
  if (ibv_dereg_mr(bench.far.memory.mr) != 0) die("ibv_dereg_mr of freed memory");
  printf("gpu-memory: revocation ok\n");
}

sigjmp_buf back;
void jump(int) { siglongjmp(back, 1); }

// Says whether the processor may touch device memory.
void check_touch(Way way) {
  const Bench bench = make_bench(way);
  signal(SIGSEGV, jump);
  if (sigsetjmp(back, 1) == 0) {
    const volatile char byte = *reinterpret_cast<volatile char*>(bench.near.memory.address);
    static_cast<void>(byte);
    printf("gpu-memory: touched\n");
  } else {
    printf("gpu-memory: not to be touched\n");
  }
}

}  // namespace
}  // namespace hostnic::gpu_memory

int main(int argc, char** argv) {
  using namespace hostnic::gpu_memory;
  const std::string_view what = argc == 3 ? argv[1] : "", way = argc == 3 ? argv[2] : "";
  if ((way != "dmabuf" && way != "peer") ||
      (what != "data" && what != "revoke" && what != "touch")) {
    fprintf(stderr,
            "usage: hostnic lab --gpu 2 -- hostnic-gpu-memory data|revoke|touch dmabuf|peer\n");
    return 2;
  }
  setlinebuf(stdout);
  const Way chosen = way == "peer" ? Way::kPeer : Way::kDmaBuf;
  if (what == "data") check_data(chosen);
  if (what == "revoke") check_revocation(chosen);
  if (what == "touch") check_touch(chosen);
  return 0;
}
