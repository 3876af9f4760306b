// SPDX-License-Identifier: BSD-3-Clause
// A region's memory is unmapped, and its addresses are given out again, before the region is
// deregistered: what is mapped there now is nobody's but the program's. (An adapter has the old
// pages pinned, so a late WRITE succeeds; it may as well fail.) And deregistration while packets
// still refer to the memory.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr size_t kPage = 4096, kLength = 64 * kPage;
// More than the heap has left over: what is freed of it is unmapped.
constexpr size_t kBlock = 64 << 20;

std::byte* map(void* at, int flags = 0) {
  return static_cast<std::byte*>(
      mmap(at, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
}
// As other languages' runtimes do it, past the C library.
std::byte* raw_map(void* at) {
  return reinterpret_cast<std::byte*>(syscall(SYS_mmap, at, kLength, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

struct Way {
  const char* name;
  std::byte* (*get)();
  // Takes the memory away and returns what is there next.
  std::byte* (*renew)(std::byte* memory);
};

const Way kWays[] = {
    {"unmapped", [] { return map(nullptr); },
     [](std::byte* memory) {
       EXPECT_EQ(munmap(memory, kLength), 0);
       return map(memory, MAP_FIXED);
     }},
    {"mapped_over", [] { return map(nullptr); },
     [](std::byte* memory) { return map(memory, MAP_FIXED); }},
    {"unmapped_by_system_call", [] { return map(nullptr); },
     [](std::byte* memory) {
       EXPECT_EQ(syscall(SYS_munmap, memory, kLength), 0);
       return raw_map(memory);
     }},
    {"moved", [] { return map(nullptr); },
     [](std::byte* memory) {
       EXPECT_NE(mremap(memory, kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, map(nullptr)),
                 MAP_FAILED);
       return map(memory, MAP_FIXED);
     }},
    {"freed",
     [] {
       mallopt(M_MMAP_THRESHOLD, 128 << 10);
       return static_cast<std::byte*>(std::malloc(kBlock));
     },
     [](std::byte* memory) {
       std::free(memory);
       return static_cast<std::byte*>(std::malloc(kBlock));
     }},
};

class GoneMemory : public Conformance, public testing::WithParamInterface<Way> {};

TEST_P(GoneMemory, WhatIsMappedNextIsLeftAlone) {
  for (const size_t skew : {size_t{0}, size_t{100}}) {
    connect();
    std::byte* memory = GetParam().get();
    ASSERT_NE(memory, MAP_FAILED);
    const size_t length = kLength - 2 * skew;
    std::memset(memory, 1, kLength);
    ibv_mr* mr = ibv_reg_mr(far_host->pd, memory + skew, length, kAllAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    std::byte* fresh = GetParam().renew(memory);
    ASSERT_NE(fresh, MAP_FAILED);
    std::memset(fresh, 0, kLength);
    std::ranges::fill(near_host->bytes(), std::byte{0x55});
    ibv_sge sge = near_host->sge(static_cast<uint32_t>(length));
    ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
    set_remote(wr, reinterpret_cast<uint64_t>(memory + skew), mr->rkey);
    ASSERT_EQ(near->post(wr), 0);
    const ibv_wc completion = near->next();
    EXPECT_EQ(completion.wr_id, 1u);
    EXPECT_TRUE(completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_REM_ACCESS_ERR)
        << ibv_wc_status_str(completion.status);
    const auto untouched = [&] {
      return std::ranges::all_of(std::span(fresh, kLength),
                                 [](std::byte byte) { return byte == std::byte{0}; });
    };
    EXPECT_TRUE(untouched());
    // A new region of the same addresses is none of the old one's.
    ibv_mr* again = ibv_reg_mr(far_host->pd, fresh + skew, length, kAllAccess);
    ASSERT_NE(again, nullptr) << strerror(errno);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_TRUE(untouched());
    connect();
    set_remote(wr, reinterpret_cast<uint64_t>(fresh + skew), again->rkey);
    ASSERT_EQ(near->post(wr), 0);
    near->expect(1);
    EXPECT_EQ(std::memcmp(fresh + skew, near_host->bytes().data(), length), 0);
    EXPECT_EQ(ibv_dereg_mr(again), 0);
    std::memset(fresh, 3, kLength);  // still mapped, and writable
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GoneMemory, testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

// A file that is mapped and registered becomes shorter. An adapter has the pages pinned; here a key
// that leads to them is out of use, once a NIC has found them missing: what it finds in their place
// never counts, and nothing else is lost.
class CutOffMemory : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    file_ = memfd_create("cut off", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file_, kLength), 0);
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    std::memset(memory_, 7, kLength);
  }
  void TearDown() override {
    munmap(memory_, kLength);
    close(file_);
    Conformance::TearDown();
  }
  ibv_mr* add(Host& host, size_t first, size_t length) {
    ibv_mr* mr = ibv_reg_mr(host.pd, memory_ + first, length, kAllAccess);
    EXPECT_NE(mr, nullptr) << strerror(errno);
    return mr;
  }
  // A request that names all of the memory, by the far side or by the near one's own scatter list.
  ibv_wc_status do_one(ibv_wr_opcode opcode, const ibv_mr* remote, const ibv_mr* local,
                       size_t offset, size_t length) {
    std::ranges::fill(near_host->bytes(), std::byte{0x55});
    ibv_sge sge = near_host->sge(static_cast<uint32_t>(length));
    if (local != nullptr) {
      sge.addr = reinterpret_cast<uint64_t>(memory_ + offset);
      sge.lkey = local->lkey;
    }
    ibv_send_wr wr = request(1, opcode, &sge, *far_host);
    if (remote != nullptr)
      set_remote(wr, reinterpret_cast<uint64_t>(memory_ + offset), remote->rkey);
    EXPECT_EQ(near->post(wr), 0);
    return near->next().status;
  }

  int file_ = -1;
  std::byte* memory_ = nullptr;
};

TEST_F(CutOffMemory, CostsTheKeyAndIsNeverZeros) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
    for (const size_t length : {size_t{8}, size_t{1000}, kPage, 8 * kPage}) {
      ASSERT_EQ(ftruncate(file_, kLength), 0);
      std::memset(memory_, 7, kLength);
      connect();
      ibv_mr* cut = add(*far_host, 0, kLength);
      ibv_mr* front = add(*far_host, 0, 2 * kPage);
      ASSERT_EQ(ftruncate(file_, kLength / 2), 0);
      EXPECT_EQ(do_one(opcode, cut, nullptr, kLength / 2 + 8, length), IBV_WC_REM_ACCESS_ERR)
          << length << " bytes by " << opcode;
      connect();
      EXPECT_EQ(do_one(IBV_WR_RDMA_READ, front, nullptr, 0, kPage), IBV_WC_SUCCESS)
          << "what is not cut off is there";
      EXPECT_EQ(near_host->bytes()[0], std::byte{7});
      EXPECT_EQ(ibv_dereg_mr(cut), 0);
      // The device lives, and the file's next pages are others.
      ASSERT_EQ(ftruncate(file_, kLength), 0);
      std::memset(memory_ + kLength / 2, 9, kLength / 2);
      ibv_mr* again = add(*far_host, 0, kLength);
      EXPECT_EQ(do_one(IBV_WR_RDMA_READ, again, nullptr, kLength / 2, kPage), IBV_WC_SUCCESS);
      EXPECT_EQ(near_host->bytes()[0], std::byte{9});
      EXPECT_EQ(ibv_dereg_mr(again), 0);
      EXPECT_EQ(ibv_dereg_mr(front), 0);
    }
  }
}

// What is sent from it, or received into it, is the program's own error.
TEST_F(CutOffMemory, IsNoSource) {
  for (const size_t length : {size_t{8}, size_t{1000}, 8 * kPage}) {
    ASSERT_EQ(ftruncate(file_, kLength), 0);
    std::memset(memory_, 7, kLength);
    connect();
    ibv_mr* cut = add(*near_host, 0, kLength);
    ASSERT_EQ(ftruncate(file_, 0), 0);
    EXPECT_EQ(do_one(IBV_WR_RDMA_WRITE, nullptr, cut, kPage, length), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_dereg_mr(cut), 0);
  }
}

TEST_F(CutOffMemory, HasNoAtomics) {
  connect();
  ibv_mr* cut = add(*far_host, 0, kLength);
  ASSERT_EQ(ftruncate(file_, kPage), 0);
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, *far_host);
  wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(memory_ + 2 * kPage);
  wr.wr.atomic.rkey = cut->rkey;
  wr.wr.atomic.compare_add = 1;
  ASSERT_EQ(near->post(wr), 0);
  EXPECT_EQ(near->next().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(cut), 0);
}

// Where nothing is mapped in hostnicd, all of the memory could be reached by the old key.
TEST(GoneMemoryByMemFd, WhatIsMappedNextIsLeftAlone) {
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command =
      "HOSTNIC_MEMORY=memfd '" + std::string(self) + "' --gtest_filter='*/GoneMemory.*' 1>&2";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

int ctl(const std::string& command) {
  return std::system(("hostnic ctl '" + command + "' > /dev/null").c_str());
}

class BusyMemory : public Conformance {
 protected:
  void TearDown() override {
    EXPECT_EQ(ctl("start"), 0);
    Conformance::TearDown();
  }
};

// Of a stream of packets some are on the wire when the NICs stop, and lie in the sender's memory:
// sooner or later, if the sender is the NIC that is served after the receiver. One stop of a dozen
// finds some.
TEST_F(BusyMemory, DeregistrationFailsWhilePacketsReferToIt) {
  if (!on_virtual_wire()) GTEST_SKIP() << "other ports have read the memory when a packet leaves";
  ibv_mr* mr = nullptr;
  int result = 0;
  for (int tries = 0; tries < 1000 && result == 0; ++tries) {
    connect();
    mr = ibv_reg_mr(far_host->pd, far_host->bytes().data(), Host::kBytes, kAllAccess);
    ASSERT_NE(mr, nullptr);
    std::atomic<bool> stop{false};
    std::atomic<int> done{0};
    std::thread sender([&] {
      ibv_sge sge = far_host->sge(Host::kBytes);
      sge.lkey = mr->lkey;
      int under_way = 0;
      while (!stop.load()) {
        if (under_way < 16 && far->post(request(1, IBV_WR_RDMA_WRITE, &sge, *near_host)) == 0)
          ++under_way;
        ibv_wc completion;
        const int polled = std::max(0, ibv_poll_cq(far->cq, 1, &completion));
        under_way -= polled;
        done += polled;
      }
    });
    // On a busy machine it may be long before the thread runs at all.
    const auto start = std::chrono::steady_clock::now();
    while (done.load() < 32 && std::chrono::steady_clock::now() - start < kPatience)
      std::this_thread::yield();
    EXPECT_EQ(ctl("stop"), 0);
    result = ibv_dereg_mr(mr);
    stop.store(true);
    sender.join();
    if (result == 0) {
      ASSERT_EQ(ctl("start"), 0);
    }
  }
  ASSERT_EQ(result, EBUSY);
  // It is no key any more, but an object that can be deregistered, and nothing is lost by the try.
  ASSERT_EQ(ctl("start"), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace hostnic::conformance
