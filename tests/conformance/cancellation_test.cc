// SPDX-License-Identifier: BSD-3-Clause
// pthread_cancel: on an adapter no verb is a cancellation point but the two that wait for events,
// and those leave nothing behind.
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

struct Work {
  const std::function<void()>* body;
  std::atomic<bool> running{false}, passed{false};
};

void* with_request_pending(void* argument) {
  auto& work = *static_cast<Work*>(argument);
  pthread_cancel(pthread_self());
  (*work.body)();
  work.passed = true;
  pthread_testcancel();
  return nullptr;
}

void* until_cancelled(void* argument) {
  auto& work = *static_cast<Work*>(argument);
  work.running = true;
  (*work.body)();
  work.passed = true;
  return nullptr;
}

class Cancellation : public Conformance {
 protected:
  // The verbs in `body` are called by a thread whose cancellation is requested already: the first
  // cancellation point ends it.
  static void expect_no_point(const char* name, const std::function<void()>& body) {
    Work work{&body};
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, with_request_pending, &work), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_TRUE(work.passed) << name << " is a cancellation point";
    EXPECT_EQ(result, PTHREAD_CANCELED) << name << " has taken the request away";
  }
  // A thread that waits in `body` is cancelled there.
  static void expect_point(const char* name, const std::function<void()>& body) {
    Work work{&body};
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, until_cancelled, &work), 0);
    while (!work.running) std::this_thread::yield();
    std::this_thread::sleep_for(kQuiet);
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED) << name;
    EXPECT_FALSE(work.passed) << name << " came back";
  }
  void write_and_check() {
    ibv_sge sge = near_host->sge(5000);
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    near->expect(1);
  }
};

TEST_F(Cancellation, PassesOverObjects) {
  connect();
  ibv_pd* pd = near_host->pd;
  ibv_context* context = near_host->context;
  expect_no_point("opening", [] {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ibv_context* opened = ibv_open_device(list[0]);
    EXPECT_NE(opened, nullptr);
    ibv_free_device_list(list);
    EXPECT_EQ(ibv_close_device(opened), 0);
  });
  expect_no_point("registering", [&] {
    void* memory =
        mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr = ibv_reg_mr(pd, static_cast<char*>(memory) + 100, 900'000, kAllAccess);
    EXPECT_NE(mr, nullptr);
    munmap(memory, 4096);  // goes through this library as well
    if (mr != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    munmap(memory, 1 << 20);
  });
  expect_no_point("moving what is registered", [&] {
    constexpr size_t kBytes = 1 << 20, kQuarter = kBytes / 4;
    const auto map = [](void* at, int flags) {
      return static_cast<char*>(
          mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
    };
    char* memory = map(nullptr, 0);
    ibv_mr* mr = ibv_reg_mr(pd, memory, kBytes, kAllAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(madvise(memory, kQuarter, MADV_DONTNEED), 0);
    EXPECT_EQ(madvise(memory, kQuarter, MADV_DONTFORK), 0);
    char* moved = static_cast<char*>(mremap(memory + kQuarter, kQuarter, 2 * kQuarter,
                                            MREMAP_MAYMOVE | MREMAP_FIXED, map(nullptr, 0)));
    ASSERT_NE(moved, MAP_FAILED);
    EXPECT_EQ(map(memory, MAP_FIXED), memory);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    munmap(moved, kBytes);
    munmap(memory, kBytes);
    void* block = malloc(kBytes);
    mr = ibv_reg_mr(pd, block, kBytes, kAllAccess);
    ASSERT_NE(mr, nullptr);
    block = realloc(block, 4 * kBytes);
    free(block);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  });
  expect_no_point("replacing what is registered", [&] {
    constexpr size_t kBytes = 1 << 20;
    const auto add = [&](void* memory) {
      ibv_mr* mr = ibv_reg_mr(pd, static_cast<char*>(memory) + 100, kBytes - 100, kAllAccess);
      EXPECT_NE(mr, nullptr);
      return mr;
    };
    const int id = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* private_mr = add(memory);
    EXPECT_EQ(shmat(id, memory, SHM_REMAP), memory);
    ibv_mr* segment_mr = add(memory);
    EXPECT_EQ(shmdt(memory), 0);
    EXPECT_EQ(ibv_dereg_mr(private_mr), 0);
    EXPECT_EQ(ibv_dereg_mr(segment_mr), 0);
    shmctl(id, IPC_RMID, nullptr);
    void* heap = sbrk(kBytes);
    ibv_mr* heap_mr = add(heap);
    EXPECT_EQ(sbrk(-static_cast<intptr_t>(kBytes / 2)), static_cast<char*>(heap) + kBytes);
    EXPECT_EQ(brk(heap), 0);
    EXPECT_EQ(ibv_dereg_mr(heap_mr), 0);
  });
  expect_no_point("creating", [&] {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    ibv_cq_ex* cq_ex = ibv_create_cq_ex(context, &attr);
    ASSERT_TRUE(channel != nullptr && cq != nullptr && cq_ex != nullptr);
    EXPECT_EQ(ibv_resize_cq(cq, 100), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    Endpoint end(*near_host, {});
    EXPECT_EQ(end.to_init(), 0);
    EXPECT_EQ(end.to_reset(), 0);
    ibv_mw* window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
  });
  expect_no_point("asking", [&] {
    ibv_device_attr device{};
    ibv_port_attr port{};
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_device(context, &device), 0);
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    EXPECT_EQ(near->state(), IBV_QPS_RTS);
  });
  write_and_check();
}

TEST_F(Cancellation, PassesOverTheDataPath) {
  connect();
  ibv_cq* cq = near->cq;
  expect_no_point("posting and polling", [&] {
    for (uint64_t i = 0; i < 200; ++i) {
      ibv_sge sge = near_host->sge(64);
      EXPECT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
      near->expect(i);  // polls long enough to yield and to nap
    }
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_wc wc{};
    for (int i = 0; i < 10'000; ++i) EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  });
  write_and_check();
}

TEST_F(Cancellation, EndsWhoWaitsForACompletionEvent) {
  connect();
  ibv_comp_channel* channel = ibv_create_comp_channel(near_host->context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(near_host->context, 16, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  for (int i = 0; i < 3; ++i) {
    expect_point("ibv_get_cq_event", [channel] {
      ibv_cq* got = nullptr;
      void* context = nullptr;
      ibv_get_cq_event(channel, &got, &context);
    });
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  write_and_check();
}

TEST_F(Cancellation, EndsWhoWaitsForADeviceEvent) {
  connect();
  for (int i = 0; i < 3; ++i) {
    expect_point("ibv_get_async_event", [this] {
      ibv_async_event event{};
      ibv_get_async_event(near_host->context, &event);
    });
  }
  write_and_check();
  // A later event goes to whoever asks then.
  ASSERT_EQ(far->to(IBV_QPS_ERR), 0);
}

size_t descriptors() {
  using std::filesystem::directory_iterator;
  return static_cast<size_t>(
      std::distance(directory_iterator("/proc/self/fd"), directory_iterator()));
}

TEST_F(Cancellation, EndsWhoWaitsForAnRdmaCmEvent) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  const size_t before = descriptors();
  for (int i = 0; i < 3; ++i) {
    expect_point("rdma_get_cm_event", [channel] {
      rdma_cm_event* event = nullptr;
      rdma_get_cm_event(channel, &event);
    });
  }
  EXPECT_EQ(descriptors(), before);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

// At any moment of a loop without a cancellation point, which ends nevertheless.
TEST_F(Cancellation, AtAnyMoment) {
  connect();
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::function<void()> loop = [&] {
    for (;;) {
      ibv_mr* mr = ibv_reg_mr(near_host->pd, static_cast<char*>(memory) + 100, 300'000, kAllAccess);
      if (mr != nullptr) ibv_dereg_mr(mr);
    }
  };
  for (int i = 0; i < 50; ++i) {
    Work work{&loop};
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, until_cancelled, &work), 0);
    while (!work.running) std::this_thread::yield();
    usleep(i * 37 % 1000);
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
  }
  munmap(memory, 1 << 20);
  write_and_check();
}

}  // namespace
}  // namespace hostnic::conformance
